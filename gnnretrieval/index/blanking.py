"""Overwriting the removed and replaced vectors of an index with zeros; until then, a search only skips them."""

from __future__ import annotations

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


def _blank(part: Any, numbers: NDArray[np.int64], index: Index) -> None:
    faiss = import_faiss()
    part = faiss.downcast_index(part)
    if isinstance(part, faiss.IndexPreTransform):
        _blank(part.index, numbers, index)
    elif isinstance(part, faiss.IndexRefine):
        _blank(part.base_index, numbers, index)
        _blank(part.refine_index, numbers, index)
    elif isinstance(part, faiss.IndexHNSW):
        _blank(part.storage, numbers, index)
    elif isinstance(part, faiss.IndexFlatCodes):
        codes = faiss.rev_swig_ptr(part.codes.data(), part.ntotal * part.code_size)
        codes.reshape(part.ntotal, part.code_size)[numbers] = 0
    elif isinstance(part, faiss.IndexIVF) and part.code_size:
        for number in range(part.nlist):
            size = part.invlists.list_size(number)
            ids = faiss.rev_swig_ptr(part.invlists.get_ids(number), size)
            codes = faiss.rev_swig_ptr(part.invlists.get_codes(number), size * part.code_size)
            codes.reshape(size, part.code_size)[np.isin(ids, numbers)] = 0
    else:
        raise ArtifactError(
            f"{index.path}: vectors of {index.config['factory']} cannot be taken out one by one. "
            "Build the index again, from vectors without these passages."
        )
