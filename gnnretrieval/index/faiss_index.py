"""A FAISS index over passage vectors, exact inner product, with ids and texts beside it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.artifacts import Artifact, open_artifact, relative_to
from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.making import make_artifact
from gnnretrieval.progress import progress
from gnnretrieval.training.embeddings import Embeddings

KIND = "index"
FILE, TEXTS = "index.faiss", "texts.sqlite"
_BLOCK = 65536


def import_faiss() -> Any:
    """The module ``faiss``.

    Raises:
        GnnRetrievalError: it is not installed, or twice, by faiss-cpu and faiss-gpu.
    """
    installed = sorted(
        {
            name
            for distribution in metadata.distributions()
            if (name := (distribution.metadata["Name"] or "").lower()).startswith(("faiss-cpu", "faiss-gpu"))
        }
    )
    if len(installed) > 1:
        raise GnnRetrievalError(f"{' and '.join(installed)} own the same module: uninstall both, then install one.")
    try:
        import faiss
    except ImportError:
        raise GnnRetrievalError("FAISS is not installed: pip install 'gnnretrieval[cpu]' (or [gpu]).") from None
    return faiss


class PassageIndex(Artifact):
    """An index on disk."""

    @cached_property
    def faiss(self) -> Any:
        """The FAISS index; its ids are rows of :attr:`texts`."""
        try:
            return import_faiss().read_index(str(self.path / FILE))
        except RuntimeError as error:
            raise InputError(
                "this is no FAISS index, or a damaged one. Build the index again.", self.path / FILE
            ) from error

    @cached_property
    def texts(self) -> TextStore:
        """Ids and texts by row."""
        return TextStore(self.path / TEXTS)

    @property
    def encoder_settings(self) -> EncoderSettings:
        """The encoder that questions are encoded with."""
        return EncoderSettings.parse(self.meta["encoder"], self.path / "meta.json")

    @property
    def similarity(self) -> Similarity:
        """How questions and passages are compared."""
        return Similarity.parse(self.meta["similarity"], self.path / "meta.json")

    def search(self, queries: NDArray[np.floating], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Rows ``(q, k)`` and scores ``(q, k)`` of the nearest passages; row -1 where there are fewer than ``k``."""
        prepared = np.ascontiguousarray(self.similarity.prepare_array(queries))
        scores, rows = self.faiss.search(prepared, k)
        return rows, scores


def open_index(path: str | Path) -> PassageIndex:
    """Open the index at ``path``; errors as :func:`gnnretrieval.artifacts.open_artifact`."""
    artifact = open_artifact(path, KIND, ("encoder", "similarity", "checkpoint_hash", "system", "made_from"))
    return PassageIndex(artifact.path, artifact.meta)


def build_index(
    source: Embeddings | Features,
    out: str | Path,
    *,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> PassageIndex:
    """Index the passages of ``source``: a GNN-encoder's embeddings, or a dual-encoder's own features.

    Raises:
        GnnRetrievalError: FAISS is not installed.
    """
    faiss = import_faiss()

    def write(directory: Path) -> dict[str, Any]:
        vectors = source.passages
        index = faiss.IndexFlatIP(int(vectors.shape[1]))
        with progress("indexing", len(vectors), "passages") as meter:
            for start in range(0, len(vectors), _BLOCK):
                block = source.similarity.prepare_array(vectors[start : start + _BLOCK])
                index.add(np.ascontiguousarray(block))
                meter.advance(len(block))
        faiss.write_index(index, str(directory / FILE))
        shutil.copyfile(source.path / (TEXTS), directory / TEXTS)
        return {
            "encoder": source.meta["encoder"],
            "similarity": source.similarity.model_dump(),
            "checkpoint_hash": source.meta["checkpoint_hash"],
            "system": "dual-encoder" if isinstance(source, Features) else "gnn-encoder",
            "num_passages": len(vectors),
            "dimension": int(vectors.shape[1]),
            "bytes": (directory / FILE).stat().st_size,
            "made_from": {source.meta["kind"]: relative_to(out, source.path)},
        }

    artifact = make_artifact(
        out,
        KIND,
        inputs={source.meta["kind"]: source.hash},
        config={"factory": "Flat", "metric": "inner product"},
        write=write,
        overwrite=overwrite,
        say=say,
    )
    return PassageIndex(artifact.path, artifact.meta)
