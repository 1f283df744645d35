"""Ranking passages by their retrieved sentences (DCSR, 3.3): the probability that one of them has the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.runs.ranking import ties_by_id
from gnnretrieval.data.runs.trec import Run, rank_rows
from gnnretrieval.data.sentence_split import split_sentences
from gnnretrieval.encoders.exact_search import exact_top_k
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.sparse_features import SparseFeatures
from gnnretrieval.index.faiss_index import Index
from gnnretrieval.index.late_search import late_run
from gnnretrieval.index.sparse_search import sparse_run
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks

_BLOCK = 1024  # questions searched together
_PASSAGES = 100  # a question retrieves as many sentences as this number of passages has on average


class AnsweringPassages(NamedTuple):
    """Passages of one question, by row.

    Attributes:
        rows: Passage rows ``(r,)``, ascending.
        scores: ``HasAns`` of each passage ``(r,)`` float64, 0 to 1.
        sentences: Each passage's sentence of the highest score ``(r,)``, counted from 0 within the passage.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]
    sentences: NDArray[np.int64]


def sentences_looked_at(num_sentences: int, num_passages: int) -> int:
    """Number of sentences that a question retrieves: 100 times their mean per passage ``k̄``, or all if fewer."""
    return min(num_sentences, round(_PASSAGES * num_sentences / num_passages))


def has_answer(
    rows: NDArray[np.int64], scores: NDArray[np.floating], starts: NDArray[np.int64], scale: float
) -> AnsweringPassages:
    r"""Passages of one question, scored by the sentences that it retrieves, eq. 2:

    .. math:: \mathrm{HasAns}(P) = 1 - \prod_{i=1}^{n} (1 - p_{s_i})

    where :math:`p` is the softmax over the scores of all retrieved sentences, times ``scale``; other sentences have
    probability 0. Logarithms are summed in float64, so that small probabilities keep their order.

    Args:
        rows: Sentence rows ``(K,)``; negative ones are left out.
        scores: Similarities of the sentences ``(K,)``.
        starts: First sentence row of each passage, and one past the last ``(m + 1,)``.
        scale: The similarity's factor in a softmax.
    """
    retrieved = rows >= 0
    rows, logits = rows[retrieved], scale * scores[retrieved].astype(np.float64)
    order = np.lexsort((rows, -logits))  # best first
    rows, logits = rows[order], logits[order]
    weights = np.exp(logits - logits[:1])  # the largest is 1, so none overflows
    with np.errstate(divide="ignore"):  # a probability of 1 leaves no doubt: log 0
        doubts = np.log1p(-weights / weights.sum())
    passage_of = np.searchsorted(starts, rows, side="right") - 1  # (K,)
    passages, best, index = np.unique(passage_of, return_index=True, return_inverse=True)
    totals = np.bincount(index, weights=doubts, minlength=len(passages))
    return AnsweringPassages(passages, -np.expm1(totals), rows[best] - starts[passages])


def sentence_run(source: Features | Index, query_ids: Sequence[str], queries: NDArray[np.floating], depth: int) -> Run:
    """The run over vectors of questions, with passages ranked by :func:`has_answer`.

    A passage without a sentence among the :func:`sentences_looked_at` is not in the run.

    Args:
        source: Features or an index with vectors of sentences; over features the search is exact.
        query_ids: Ids of the questions.
        queries: Their vectors ``(q, d)``.
        depth: Maximum number of passages per question.

    Raises:
        ArtifactError: The source has no vectors of sentences.
    """
    passage_ids = source.passage_ids() if isinstance(source, Features) else source.texts.passage_ids()
    starts = np.asarray(source.sentence_starts)
    run: Run = {}
    with progress("searching", len(query_ids), "queries") as meter:
        for part in blocks(len(query_ids), _BLOCK):
            for query_id, rows, scores in zip(query_ids[part], *_nearest(source, queries[part]), strict=True):
                passages = has_answer(rows, scores, starts, source.similarity.scale)
                (ranking,) = rank_rows(passages.rows[None], passages.scores[None], passage_ids)
                run[query_id] = ranking[:depth]
            meter.advance(part.stop - part.start)
    return run


def features_run(features: Features | SparseFeatures, query_ids: Sequence[str], depth: int) -> Run:
    """The exact run over queries of the features: by terms, tokens (MaxSim) or sentences, if they have them."""
    if isinstance(features, SparseFeatures):
        return sparse_run(features, query_ids, depth)
    if features.has_tokens:
        return late_run(features, query_ids, depth)
    queries = features.queries[features.rows_of(query_ids)]
    if features.has_sentences:
        return sentence_run(features, query_ids, queries, depth)
    passage_ids = features.passage_ids()
    with progress("searching", len(passage_ids), "passages") as meter:
        nearest = exact_top_k(
            queries,
            features.passages,
            min(depth, len(passage_ids)),
            features.similarity,
            advance=meter.advance,
            ties=ties_by_id(passage_ids),
        )
    return dict(zip(query_ids, rank_rows(*nearest, passage_ids), strict=True))


def answering_passages(index: Index, query: NDArray[np.floating]) -> AnsweringPassages:
    """The passages that an index of sentences retrieves for one question's vector ``(1, d)``.

    Raises:
        ArtifactError: It is an index of whole passages.
    """
    (rows,), (scores,) = _nearest(index, query)
    return has_answer(rows, scores, np.asarray(index.sentence_starts), index.similarity.scale)


def _nearest(source: Features | Index, queries: NDArray[np.floating]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    starts = source.sentence_starts
    most = sentences_looked_at(int(starts[-1]), len(starts) - 1)
    if isinstance(source, Features):
        return exact_top_k(queries, source.sentences, most, source.similarity)
    return source.search(queries, most)


def sentence_text(text: str, number: int) -> str:
    """Sentence ``number`` of a passage's full text; the whole text if it has no sentences."""
    spans = split_sentences(text)
    if not spans:
        return text
    start, end = spans[number]
    return text[start:end]
