"""Overwriting the removed and replaced vectors of an index with zeros; until then, a search only skips them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.faiss_search import import_faiss
from gnnretrieval.errors import ArtifactError
from gnnretrieval.index.building import numbers_itself, open_shards
from gnnretrieval.index.faiss_index import Index
from gnnretrieval.storage.updating import rewrite


def blank_vectors(index: Index, directory: Path) -> None:
    """Write the FAISS files of ``index`` to ``directory``, with zeros for every removed or replaced vector.

    Raises:
        ArtifactError: Vectors of this kind of index cannot be overwritten one by one.
    """
    faiss, rows, first = import_faiss(), index.rows_by_number, 0
    for name in index.files:
        (shard,) = open_shards([index.path / name], in_memory=True)
        if not numbers_itself(shard):  # otherwise removed vectors are no longer in it
            count = int(shard.ntotal)
            dead = np.empty(0, dtype=np.int64) if rows is None else np.flatnonzero(rows[first : first + count] < 0)
            _blank(shard, dead, index)
            first += count
        faiss.write_index(shard, str(rewrite(directory, name)))


def require_blankable(index: Index) -> None:
    """Check that :func:`blank_vectors` can overwrite vectors of this kind of index.

    Raises:
        ArtifactError: Vectors of this kind of index cannot be overwritten one by one.
    """
    for shard in open_shards([index.path / name for name in index.files]):
        for _ in _holders(shard, index):
            pass


def _blank(shard: Any, numbers: NDArray[np.int64], index: Index) -> None:
    faiss = import_faiss()
    for part in _holders(shard, index):
        if isinstance(part, faiss.IndexFlatCodes):
            codes = faiss.rev_swig_ptr(part.codes.data(), part.ntotal * part.code_size)
            codes.reshape(part.ntotal, part.code_size)[numbers] = 0
            continue
        for number in range(part.nlist):
            size = part.invlists.list_size(number)
            ids = faiss.rev_swig_ptr(part.invlists.get_ids(number), size)
            codes = faiss.rev_swig_ptr(part.invlists.get_codes(number), size * part.code_size)
            codes.reshape(size, part.code_size)[np.isin(ids, numbers)] = 0


def _holders(part: Any, index: Index) -> Iterator[Any]:
    """The indexes inside a FAISS index that hold vectors or their codes, one after the other in memory."""
    faiss = import_faiss()
    part = faiss.downcast_index(part)
    if isinstance(part, faiss.IndexPreTransform):
        yield from _holders(part.index, index)
    elif isinstance(part, faiss.IndexRefine):
        yield from _holders(part.base_index, index)
        yield from _holders(part.refine_index, index)
    elif isinstance(part, faiss.IndexHNSW):
        yield from _holders(part.storage, index)
    # fast-scan lists lay the codes of 32 vectors into one another
    elif isinstance(part, faiss.IndexFlatCodes) or (
        isinstance(part, faiss.IndexIVF) and part.code_size and not isinstance(part, faiss.IndexIVFFastScan)
    ):
        yield part
    else:
        raise ArtifactError(
            f"{index.path}: vectors of {index.config['factory']} cannot be taken out one by one, and nothing was "
            "purged. Build the index again, from vectors without these passages."
        )
