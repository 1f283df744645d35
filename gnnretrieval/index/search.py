"""Search: questions to ranked passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.trec import Run, rank_rows
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.index.faiss_index import PassageIndex


class Hit(NamedTuple):
    """A passage found.

    Attributes:
        rank: From 1.
        row: Its row in the index.
        id: Its id.
        title: Its title, empty where it has none or the index holds no texts.
        text: Its text.
        score: Similarity to the question.
    """

    rank: int
    row: int
    id: str
    title: str
    text: str
    score: float


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

    def search(self, question: str, k: int = 10) -> list[Hit]:
        """The ``k`` best passages for ``question``, fewer where the index holds fewer."""
        return self.hits(self.encode(question), k)

    def hits(self, vector: NDArray[np.float32], k: int) -> list[Hit]:
        """The ``k`` best passages for one question's vector ``(1, d)``."""
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


def index_run(index: PassageIndex, query_ids: Sequence[str], queries: NDArray[np.floating], depth: int) -> Run:
    """The run of an index over questions' vectors ``(q, d)``."""
    rows, scores = index.search(queries, min(depth, index.meta["num_passages"]))
    ranked = rank_rows(rows, scores, index.texts.passage_ids())
    return dict(zip(query_ids, ranked, strict=True))


def bm25_run(bm25: BM25, queries: Mapping[str, str], passage_ids: Sequence[str], depth: int) -> Run:
    """The run of BM25 over questions' texts by id."""
    run: Run = {}
    for query_id, text in queries.items():
        rows, scores = bm25.top_k(text, depth)
        (run[query_id],) = rank_rows(rows[None], scores[None], passage_ids)
    return run
