"""Search: questions to ranked passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.arrays import blocks
from gnnretrieval.data.trec import Run, rank_rows, require_writable_ids
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.vector_file import VectorFile
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.index.faiss_index import PassageIndex
from gnnretrieval.index.sentence_search import answering_passages, sentence_run, sentence_text
from gnnretrieval.progress import progress

_BLOCK = 1024  # questions encoded or searched together


class Hit(NamedTuple):
    """A passage found.

    Attributes:
        rank: From 1.
        row: Its row in the index.
        id: Its id.
        title: Its title, empty where it has none or the index holds no texts.
        text: Its text.
        score: Similarity to the question; from an index of sentences, the probability that it has the answer.
        sentence: The sentence that it was found by, from an index of sentences.
    """

    rank: int
    row: int
    id: str
    title: str
    text: str
    score: float
    sentence: str | None = None


class Searcher:
    """Answers questions from an index; the encoder is loaded once.

    Args:
        index: The index.
        device: Where questions are encoded.

    Raises:
        GnnRetrievalError: the encoder that the index was built with is not at hand, or has other weights now.
    """

    def __init__(self, index: PassageIndex, device: str = "cpu") -> None:
        self.index = index
        self.encoder = DualEncoder(index.encoder_settings, device)
        if self.encoder.query_checkpoint.hash != index.meta["checkpoint_hash"]["query"]:
            raise GnnRetrievalError(
                f"{index.path}: encoded by {self.encoder.query_checkpoint.name}, which has other weights now. "
                "Encode and index again, or give back the weights it had."
            )

    def encode(self, question: str) -> NDArray[np.float32]:
        """The question's vector ``(1, d)``.

        Raises:
            InputError: the question is empty.
        """
        if not question.strip():
            raise InputError("the question is empty: give some words.")
        return self.encoder.encode([question], "query")

    def encode_all(self, questions: Sequence[str]) -> NDArray[np.float32]:
        """Vectors ``(q, d)`` of many questions, with progress."""
        vectors = np.empty((len(questions), self.encoder.dimension), dtype=np.float32)
        with progress("encoding queries", len(questions), "queries") as meter:
            for part in blocks(len(questions), _BLOCK):
                vectors[part] = self.encoder.encode(questions[part], "query")
                meter.advance(part.stop - part.start)
        return vectors

    def search(self, question: str, k: int = 10) -> list[Hit]:
        """The ``k`` best passages for ``question``, fewer where the index holds fewer."""
        return self.hits(self.encode(question), k)

    def hits(self, vector: NDArray[np.float32], k: int) -> list[Hit]:
        """The ``k`` best passages for one question's vector ``(1, d)``."""
        if self.index.is_of_sentences:
            return self._hits_by_sentences(vector, k)
        rows, scores = self.index.search(vector, min(k, self.index.meta["num_passages"]))
        passages = {
            passage.id: (passage, float(score))
            for row, score in zip(rows[0].tolist(), scores[0], strict=True)
            if row >= 0
            for passage in [self.index.texts.passage(row)]
        }
        (ranked,) = rank_rows(
            np.arange(len(passages))[None], np.array([[s for _, s in passages.values()]]), [*passages]
        )
        hits = []
        for number, (id_, score) in enumerate(ranked, 1):
            passage = passages[id_][0]
            hits.append(Hit(number, passage.row, id_, passage.title, passage.text, score))
        return hits

    def _hits_by_sentences(self, vector: NDArray[np.float32], k: int) -> list[Hit]:
        found = answering_passages(self.index, vector)
        passages = [self.index.texts.passage(row) for row in found.rows.tolist()]
        places = {passage.id: place for place, passage in enumerate(passages)}
        (ranked,) = rank_rows(np.arange(len(passages))[None], found.scores[None], [*places])
        hits = []
        for number, (id_, score) in enumerate(ranked[:k], 1):
            passage = passages[places[id_]]
            sentence = sentence_text(passage.full_text, int(found.sentences[places[id_]]))
            hits.append(Hit(number, passage.row, id_, passage.title, passage.text, score, sentence))
        return hits


def index_run(index: PassageIndex, query_ids: Sequence[str], queries: NDArray[np.floating], depth: int) -> Run:
    """The run of an index over questions' vectors ``(q, d)``."""
    if index.is_of_sentences:
        return sentence_run(index, query_ids, queries, depth)
    run: Run = {}
    depth, passage_ids = min(depth, index.meta["num_passages"]), index.texts.passage_ids()
    with progress("searching", len(query_ids), "queries") as meter:
        for part in blocks(len(query_ids), _BLOCK):
            rows, scores = index.search(queries[part], depth)
            run.update(zip(query_ids[part], rank_rows(rows, scores, passage_ids), strict=True))
            meter.advance(part.stop - part.start)
    return run


def vectors_run(index: PassageIndex, vectors: VectorFile, depth: int) -> Run:
    """The run of an index over questions given as vectors, by their ids.

    Raises:
        InputError: the file says no ids, or ids that no run can hold, or its vectors are not as wide as the index's,
            not finite, or zero where the similarity is cosine.
    """
    if vectors.ids is None:
        raise InputError("these questions have no ids, which a run needs: give a file of ids.", vectors.path)
    require_writable_ids(vectors.ids, vectors.path)
    if vectors.dimension != index.meta["dimension"]:
        raise InputError(
            f"vectors of {vectors.dimension} numbers, and {index.path} indexes {index.meta['dimension']}: "
            f"give those of {index.encoder_settings.checkpoint}.",
            vectors.path,
        )
    found = np.empty((vectors.count, vectors.dimension), dtype=np.float32)
    for part, block in vectors.blocks():
        if index.similarity.normalize and not (lengths := np.linalg.norm(block, axis=1)).all():
            vectors.refuse(part.start + int((lengths == 0).argmax()), "is zero, which has no cosine")
        found[part] = block
    return index_run(index, vectors.ids, found, depth)


def features_vectors(
    index: PassageIndex, features: Features, texts_hash: str, query_ids: Sequence[str]
) -> NDArray[np.floating]:
    """Vectors ``(q, d)`` of a dataset's queries, encoded before into ``features``.

    Raises:
        ArtifactError: they are of other texts, or by another encoder than the index's.
    """
    if features.meta["inputs"].get("texts") != texts_hash:
        raise ArtifactError(f"{features.path}: features of other texts than this dataset's. Encode this dataset.")
    if features.meta["checkpoint_hash"]["query"] != index.meta["checkpoint_hash"]["query"]:
        ours, its = (made.meta["encoder"] for made in (features, index))
        by, wanted = (encoder["query_checkpoint"] or encoder["checkpoint"] for encoder in (ours, its))
        raise ArtifactError(
            f"{features.path}: queries by {by}, and {index.path} wants those of {wanted}"
            f"{' with the weights it had then' if by == wanted else ''}. Give features by the same encoder."
        )
    return features.queries[features.rows_of(query_ids)]


def bm25_run(bm25: BM25, queries: Mapping[str, str], passage_ids: Sequence[str], depth: int) -> Run:
    """The run of BM25 over questions' texts by id."""
    run: Run = {}
    with progress("ranking by BM25", len(queries), "queries") as meter:
        found = bm25.top_k_of(list(queries.values()), depth, meter.advance)
        for query_id, (rows, scores) in zip(queries, found, strict=True):
            (run[query_id],) = rank_rows(rows[None], scores[None], passage_ids)
    return run
