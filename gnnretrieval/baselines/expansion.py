"""Dense document expansion: passages encoded again with their training questions.

doc2query (Nogueira et al. 2019) appends generated questions to a passage; here they are the questions of the training
split, and the dual-encoder reads the longer text. They come before the passage, since an encoder cuts off the end of a
long text. The vector is mixed with that of the passage alone, by a weight that is chosen on dev.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.baselines import EXPANSION
from gnnretrieval.baselines.dense import DenseSetting, lowest_mean, measure_dense
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.opening import encoder_of
from gnnretrieval.encoders.settings import ENDPOINT, EncoderSettings
from gnnretrieval.encoders.text_encoder import TextEncoder
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.feedback.clicked_questions import ClickedQuestions
from gnnretrieval.graph.store import Graph
from gnnretrieval.index.lexical import label_questions
from gnnretrieval.nn.label_messages import Mapped, MessageGraph
from gnnretrieval.progress import progress
from gnnretrieval.training.gnn.corpus_part import mean_length
from gnnretrieval.training.gnn.ladder import log_ranks, reciprocal, together

WEIGHTS = tuple(tenth / 10 for tenth in range(11))
MOST = 20_000  # passages with questions that are encoded again by default, at most
_AT_ONCE = 256  # texts


class Expanded(NamedTuple):
    """Vectors of the passages that have training questions, encoded with them.

    Attributes:
        rows: Rows of these passages ``(r,)`` int64.
        vectors: ``(r, d)`` float32, as the similarity compares them.
    """

    rows: Tensor
    vectors: Tensor

    @classmethod
    def of(cls, store: Graph, encoder: TextEncoder, visible: NDArray[np.bool_] | None = None) -> Expanded:
        """Encode the passages of ``store`` with the questions that are labelled with them.

        Args:
            store: The graph.
            encoder: The encoder of its features.
            visible: ``(n,)`` bool, True for the questions to take; None: all.
        """
        questions = label_questions(store, visible)
        rows = sorted(questions)
        with store.texts() as texts:
            expanded = [
                "\n".join([*questions[row], passage])
                for row, passage in zip(rows, texts.texts_of_passages(rows), strict=True)
            ]
        vectors = [np.zeros((0, encoder.dimension), dtype=np.float32)]
        with progress("encoding passages with their questions", len(rows), "passages") as meter:
            for start in range(0, len(rows), _AT_ONCE):
                vectors.append(encoder.encode(expanded[start : start + _AT_ONCE], "passage"))
                meter.advance(len(vectors[-1]))
        expanded_vectors = store.similarity.prepare_array(np.concatenate(vectors))
        if not store.similarity.normalize:  # as message_graph divides the passages
            expanded_vectors = expanded_vectors / mean_length(store.passage_features)
        return cls(torch.tensor(rows, dtype=torch.int64), torch.from_numpy(expanded_vectors))

    def mixed(self, graph: MessageGraph, weight: float) -> MessageGraph:
        """The graph with ``unit((1 - w) h_p + w h_expanded)`` as features of these passages."""
        if not weight:
            return graph
        passages = graph.passages.clone()
        mixed = torch.lerp(passages[self.rows], self.vectors, weight)
        passages[self.rows] = graph.prepare(mixed)
        return graph._replace(passages=passages)


def expanding_encoder(store: Graph, features: Features, device: str = "cpu", *, wanted: bool = False) -> TextEncoder:
    """Open the encoder of ``features`` to encode passages with their questions.

    Args:
        store: The graph.
        features: Features of its passages.
        device: Device of a checkpoint.
        wanted: Whether the user asked for the expansion. If not, no text is sent to an endpoint, and at most
            :data:`MOST` passages are encoded.

    Raises:
        GnnRetrievalError: It cannot be opened, it encodes sentences, or the expansion costs too much by default.
    """
    if features.has_sentences:
        raise GnnRetrievalError(f"{features.path} has vectors of sentences: {EXPANSION} needs one per passage.")
    count = len(np.unique(store.labels[:, 1]))
    settings = EncoderSettings.parse(features.meta["encoder"], features.path / "meta.json")
    if not wanted and (count > MOST or settings.checkpoint.startswith(ENDPOINT)):
        raise GnnRetrievalError(f"{count:,} passages would be encoded again: only = {EXPANSION} (--only) does this.")
    return encoder_of(features.meta, features.path, device)


def choose_weight(
    graph: MessageGraph,
    expanded: Expanded,
    queries: NDArray[np.floating],
    relevant: Sequence[Sequence[int]],
    parts: NDArray[np.integer],
    clicked: ClickedQuestions | None = None,
) -> tuple[float, float]:
    """The weight of :data:`WEIGHTS` that is best on dev, the smallest of equally good ones, and its RR@10.

    It is chosen by RR@10 and log rank together, as the other baselines.

    Args:
        graph: The graph without the questions that are held out.
        expanded: Its expanded passages.
        queries: Features of the dev questions ``(q, d)``.
        relevant: Rows of the relevant passages of each dev question.
        parts: Kind of each dev question ``(q,)``; a weight counts by its lowest mean over the kinds.
        clicked: How the dev questions count if their labels are clicks; None: all alike.
    """
    features = torch.from_numpy(np.asarray(queries, dtype=np.float32))
    by_weight: dict[float, NDArray[np.int64]] = {}
    for weight in WEIGHTS:
        (ranks,) = measure_dense(
            Mapped(expanded.mixed(graph, weight), None), [DenseSetting()], features, relevant, clicked
        )
        by_weight[weight] = ranks
    plain = by_weight[WEIGHTS[0]]
    add = together(reciprocal(plain), log_ranks(plain))

    def value(weight: float) -> float:
        ranks = by_weight[weight]
        return lowest_mean(add(reciprocal(ranks), log_ranks(ranks)), parts, clicked)

    best = max(WEIGHTS, key=value)
    return best, lowest_mean(reciprocal(by_weight[best]), parts, clicked)
