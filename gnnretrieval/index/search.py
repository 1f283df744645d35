"""Search by vectors of questions, for hits and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.ranking import ties_by_id
from gnnretrieval.data.runs.trec import Run, rank_rows, require_writable_ids
from gnnretrieval.data.text_store import PassageRow, TextStore
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.vector_file import VectorFile
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.index.faiss_index import Index
from gnnretrieval.index.sentence_search import answering_passages, sentence_run, sentence_text
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks

_BLOCK = 1024  # questions encoded or searched together


class Hit(NamedTuple):
    """A retrieved passage.

    Attributes:
        rank: Its rank, from 1.
        row: Its row in the index.
        id: Its id.
        title: Its title; empty if it has none or the index holds no texts.
        text: Its text.
        score: Similarity to the question; from an index of sentences, the probability that it has the answer; with BM25
            or a cross-encoder, the score by which they rank (:class:`gnnretrieval.index.hybrid.Ranker`).
        sentence: From an index of sentences, its sentence of the highest score.
    """

    rank: int
    row: int
    id: str
    title: str
    text: str
    score: float
    sentence: str | None = None


def hits_of(texts: TextStore, rows: NDArray[np.int64], scores: NDArray[np.floating]) -> list[Hit]:
    """One question's rows ``(k,)`` and scores ``(k,)`` as hits, in the order of law 1; rows -1 must be last."""
    passages = [texts.passage(row) for row in rows.tolist() if row >= 0]
    return _ranked(passages, scores[: len(passages)])


def hits_of_ranking(texts: TextStore, ranking: Sequence[ScoredPassage]) -> list[Hit]:
    """The hits of a question's ranking in a run."""
    passages = [texts.passage_by_id(scored.passage_id) for scored in ranking]
    return [_hit(rank, *pair, None) for rank, pair in enumerate(zip(passages, ranking, strict=True), 1)]


def hits_by_sentences(index: Index, vector: NDArray[np.floating], k: int) -> list[Hit]:
    """The ``k`` best passages for one question's vector ``(1, d)``, ranked by their sentences."""
    answering = answering_passages(index, np.asarray(vector, dtype=np.float32))
    passages = [index.texts.passage(row) for row in answering.rows.tolist()]
    return _ranked(passages, answering.scores, answering.sentences, k)


def _ranked(
    passages: Sequence[PassageRow],
    scores: NDArray[np.floating],
    sentences: NDArray[np.int64] | None = None,
    k: int | None = None,
) -> list[Hit]:
    place = {passage.id: number for number, passage in enumerate(passages)}
    (ranked,) = rank_rows(np.arange(len(passages))[None], scores[None], [*place])
    hits = []
    for rank, scored in enumerate(ranked[:k], 1):
        passage = passages[place[scored.passage_id]]
        sentence = None
        if sentences is not None:
            sentence = sentence_text(passage.full_text, int(sentences[place[passage.id]]))
        hits.append(_hit(rank, passage, scored, sentence))
    return hits


def _hit(rank: int, passage: PassageRow, scored: ScoredPassage, sentence: str | None) -> Hit:
    return Hit(rank, passage.row, passage.id, passage.title, passage.text, scored.score, sentence)


def index_run(index: Index, query_ids: Sequence[str], queries: NDArray[np.floating], depth: int) -> Run:
    """The run of an index over vectors of questions ``(q, d)``, with at most ``depth`` passages each."""
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


def vectors_run(index: Index, vectors: VectorFile, depth: int) -> Run:
    """The run of an index over questions given as a file of vectors with ids.

    Raises:
        InputError: The file has no ids, or ids that a run cannot hold; or its vectors have another dimension than the
            index, are not finite, or are zero although the similarity is cosine.
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
    queries = np.empty((vectors.count, vectors.dimension), dtype=np.float32)
    for part, block in vectors.blocks():
        if index.similarity.normalize and not (lengths := np.linalg.norm(block, axis=1)).all():
            vectors.refuse(part.start + int((lengths == 0).argmax()), "is zero, which has no cosine")
        queries[part] = block
    return index_run(index, vectors.ids, queries, depth)


def features_vectors(
    index: Index, features: Features, texts_hash: str, query_ids: Sequence[str]
) -> NDArray[np.floating]:
    """Vectors ``(q, d)`` of a dataset's queries, from ``features``.

    Raises:
        ArtifactError: The features are of other texts, or from another encoder than the index's.
    """
    if features.meta["inputs"].get("texts") != texts_hash:
        raise ArtifactError(f"{features.path}: features of other texts than this dataset's. Encode this dataset.")
    if features.meta["checkpoint_hash"]["query"] != index.meta["checkpoint_hash"]["query"]:
        encoders = (features.meta["encoder"], index.meta["encoder"])
        by, wanted = (encoder["query_checkpoint"] or encoder["checkpoint"] for encoder in encoders)
        raise ArtifactError(
            f"{features.path}: queries by {by}, and {index.path} wants those of {wanted}"
            f"{' with the weights it had then' if by == wanted else ''}. Give features by the same encoder."
        )
    return features.queries[features.rows_of(query_ids)]


def bm25_run(bm25: BM25, queries: Mapping[str, str], passage_ids: Sequence[str], depth: int) -> Run:
    """BM25's run over texts of questions by id, with at most ``depth`` passages each."""
    run: Run = {}
    with progress("ranking by BM25", len(queries), "queries") as meter:
        rankings = bm25.top_k_of(list(queries.values()), depth, meter.advance, ties_by_id(passage_ids))
        for query_id, (rows, scores) in zip(queries, rankings, strict=True):
            (run[query_id],) = rank_rows(rows[None], scores[None], passage_ids)
    return run
