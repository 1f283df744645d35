"""A FAISS index over passage vectors, exact inner product, with ids and texts beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.arrays import blocks, load_array
from gnnretrieval.artifacts import Artifact, open_artifact, relative_to, share_file
from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.faiss_search import import_faiss
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.sentence_files import SENTENCE_STARTS
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.making import make_artifact
from gnnretrieval.progress import progress
from gnnretrieval.training.embeddings import Embeddings
from gnnretrieval.updates import changed_since, rewrite, update_artifact

KIND = "index"
FILE, TEXTS = "index.faiss", "texts.sqlite"
_BLOCK = 65536  # passages added at a time


class PassageIndex(Artifact):
    """An index on disk."""

    @cached_property
    def faiss(self) -> Any:
        """The FAISS index; its ids are rows of :attr:`texts`, or of sentences (:attr:`sentence_starts`)."""
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

    @property
    def is_of_sentences(self) -> bool:
        """Whether its vectors are sentences', by which passages are ranked."""
        return "num_sentences" in self.meta

    @cached_property
    def sentence_starts(self) -> NDArray[np.int64]:
        """As :attr:`gnnretrieval.encoders.features.Features.sentence_starts`.

        Raises:
            ArtifactError: it is an index of whole passages.
        """
        if not self.is_of_sentences:
            raise ArtifactError(f"{self.path}: an index of whole passages. Build one with --sentences.")
        shape = (self.meta["num_passages"] + 1,)
        starts: NDArray[np.int64] = load_array(self.path / SENTENCE_STARTS, shape, np.int64)
        return starts

    def search(self, queries: NDArray[np.floating], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Rows ``(q, k)`` and scores ``(q, k)`` of the nearest vectors; row -1 where there are fewer than ``k``."""
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
    sentences: bool = False,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> PassageIndex:
    """Index the passages of ``source``: a GNN-encoder's embeddings, or a dual-encoder's own features.

    Args:
        source: What is indexed.
        out: Where the index goes.
        sentences: Index features' sentences instead; passages are then found by them
            (:mod:`gnnretrieval.index.sentence_search`).
        overwrite: Replace an index that was made from other vectors.
        say: Receives lines for the user.

    Raises:
        GnnRetrievalError: FAISS is not installed, or there are no vectors of sentences.
    """
    faiss = import_faiss()
    if sentences and not isinstance(source, Features):
        raise ArtifactError(f"{source.path}: embeddings of whole passages. Sentences are indexed from features.")
    of_sentences = source if sentences and isinstance(source, Features) else None
    config = {"factory": "Flat", "metric": "inner product"} | ({"vectors": "sentences"} if of_sentences else {})
    vectors = of_sentences.sentences if of_sentences else source.passages
    system = "gnn-encoder" if isinstance(source, Embeddings) else "sentences" if of_sentences else "dual-encoder"

    def write(directory: Path) -> dict[str, Any]:
        index = faiss.IndexFlatIP(int(vectors.shape[1]))
        with progress("indexing", len(vectors), "sentences" if of_sentences else "passages") as meter:
            for start in range(0, len(vectors), _BLOCK):
                block = source.similarity.prepare_array(vectors[start : start + _BLOCK])
                index.add(np.ascontiguousarray(block))
                meter.advance(len(block))
        faiss.write_index(index, str(directory / FILE))
        share_file(source.path / TEXTS, directory / TEXTS)
        if of_sentences:
            share_file(source.path / SENTENCE_STARTS, directory / SENTENCE_STARTS)
        return {
            "encoder": source.meta["encoder"],
            "similarity": source.similarity.model_dump(),
            "checkpoint_hash": source.meta["checkpoint_hash"],
            "system": system,
            "num_passages": source.meta["num_passages"],
            **({"num_sentences": len(vectors)} if of_sentences else {}),
            "dimension": int(vectors.shape[1]),
            "bytes": (directory / FILE).stat().st_size,
            "made_from": {source.meta["kind"]: relative_to(out, source.path)},
        }

    artifact = make_artifact(
        out,
        KIND,
        inputs={source.meta["kind"]: source.hash},
        config=config,
        write=write,
        overwrite=overwrite,
        say=say,
    )
    return PassageIndex(artifact.path, artifact.meta)


def update_index(
    source: Embeddings | Features, out: str | Path, *, say: Callable[[str], None] = lambda line: None
) -> PassageIndex:
    """Bring the index at ``out`` up to embeddings that were updated: ids stay, changed vectors are replaced in place.

    Raises:
        ArtifactError: the index was made from no earlier state of these embeddings.
    """
    current = open_index(out)
    before = current.meta["inputs"].get(source.meta["kind"], "")
    if before == source.hash:
        say(f"{out}: already up to date with {source.path}")
        return current
    changed = changed_since(source, before)
    if changed is None:
        raise ArtifactError(
            f"{out}: made from other vectors than any earlier state of {source.path}. Build it anew, without --changed."
        )

    def write(directory: Path) -> dict[str, Any]:
        faiss, index, vectors = import_faiss(), current.faiss, source.passages
        known = index.ntotal
        stored = faiss.rev_swig_ptr(index.get_xb(), known * index.d).reshape(known, index.d)
        replaced = changed[changed < known]
        stored[replaced] = source.similarity.prepare_array(vectors[replaced])
        for part in blocks(len(vectors) - known, _BLOCK):
            rows = slice(known + part.start, known + part.stop)
            index.add(np.ascontiguousarray(source.similarity.prepare_array(vectors[rows])))
        faiss.write_index(index, str(rewrite(directory, FILE)))
        share_file(source.path / TEXTS, directory / TEXTS)
        say(f"{len(replaced):,} vectors replaced, {len(vectors) - known:,} added")
        return {"num_passages": len(vectors), "bytes": (directory / FILE).stat().st_size}

    inputs = {source.meta["kind"]: source.hash}
    artifact = update_artifact(out, KIND, change=inputs, inputs=inputs, write=write, say=say)
    return PassageIndex(artifact.path, artifact.meta)
