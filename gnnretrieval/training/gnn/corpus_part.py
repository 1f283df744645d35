"""layer = linear where memory does not hold all vectors: training on a part of the corpus, and embedding in blocks.

Heads, label mean, prior and local scaling change a passage by its own questions alone. So a part of the corpus shows
what they gain, and all passages can be embedded block by block. Rejection is left out: it moves a passage by questions
whose attention depends on all passages that they retrieved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.encoders.exact_search import exact_top_k
from gnnretrieval.feedback.clicked_questions import ClickedQuestions
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.nn.label_messages import SAMPLE, Heads, MessageGraph, Messages, bank_rows, message_vectors
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks, gather_rows
from gnnretrieval.training.gnn.held_out import HeldOut
from gnnretrieval.training.gnn.judged import rows_of

PASSAGES = 200_000  # of a part, if the number is not given
HARD = 50  # the dual-encoder's best passages of each dev question
_READ = 65536  # vectors read at a time
_COPIES = 8  # float32 arrays of a block's vectors that are in memory at the same time


class CorpusPart(NamedTuple):
    """A graph or a part of it, to train and choose on; all rows are those of the part.

    Attributes:
        graph: Its passages and questions. A part lacks the passages that a question retrieved.
        held_out: The dev questions that are measured.
        taught: ``(n',)`` bool, True for questions to train on.
        is_whole: Whether it is all of the graph.
    """

    graph: MessageGraph
    held_out: HeldOut
    taught: Tensor
    is_whole: bool = False

    @classmethod
    def of(cls, store: Graph, held_out: HeldOut, taught: Tensor, passages: int, seed: int) -> CorpusPart:
        """A part with about ``passages`` passages.

        It has the relevant passages of the dev questions, the :data:`HARD` best by the dual-encoder, and those that
        were shown for them. Labelled passages of randomly drawn questions follow, up to half of the part, with at most
        as many questions as the part has passages. The rest is drawn at random from the corpus.

        Args:
            store: The graph.
            held_out: The dev questions.
            taught: ``(n,)`` bool, True for questions to train on.
            passages: Number of passages.
            seed: Seed of the random choices.
        """
        rng = np.random.default_rng([seed, 0, 5])
        nodes = _Nodes(store)
        dev = held_out.only(rows_of(len(held_out.relevant)).tolist())
        labels = _some_labels(nodes.labels, passages, rng)
        wanted = np.union1d(labels[:, 1], _of_dev(store, dev))
        drawn = np.setdiff1d(rng.choice(store.num_passages, min(passages, store.num_passages), replace=False), wanted)
        drawn = rng.permutation(drawn)[: max(0, passages - len(wanted))]
        rows = np.union1d(wanted, drawn)
        queries = np.union1d(labels[:, 0], nodes.bank_rows)
        in_part = dev._replace(
            relevant=[_places(rows, some) for some in dev.relevant],
            hidden=None if dev.hidden is None else dev.hidden[queries],
            may_join=None if dev.may_join is None else dev.may_join[queries],
            clicked=_clicks_among(rows, dev.clicked),
            clicked_in_graph=dev.clicked_in_graph and _clicks_among(rows, dev.clicked_in_graph.only(queries.tolist())),
        )
        return cls(nodes.graph(rows, queries, labels), in_part, taught[torch.from_numpy(queries)])


def most_nodes(passages: int) -> int:
    """Passages and questions of a part with so many passages, at most."""
    return 2 * passages + SAMPLE


def message_blocks(
    heads: Heads | None, messages: Messages, store: Graph, memory: int, only: Rows | None = None
) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
    """Rows ``(b,)`` and vectors ``(b, d)`` of all passages, or of ``only`` some, block by block.

    Args:
        heads: Heads of the model; None: the identity.
        messages: Its messages, without rejection.
        store: The graph.
        memory: Bytes for the vectors of a block.
        only: ``(r,)`` sorted rows; None: all.
    """
    nodes = _Nodes(store)
    rows = np.arange(store.num_passages) if only is None else only
    labels = nodes.labels[np.argsort(nodes.labels[:, 1], kind="stable")]
    bank = nodes.queries(nodes.bank_rows)
    for part in blocks(len(rows), max(1, memory // (4 * store.dimension * _COPIES))):
        here = rows[part]
        first, last = np.searchsorted(labels[:, 1], [here[0], here[-1] + 1])
        own = labels[first:last]
        own = own[np.isin(own[:, 1], here)]
        graph = nodes.graph(here, np.unique(own[:, 0]), own)._replace(bank=bank)
        yield here, message_vectors(graph, heads, messages).numpy()


class _Nodes:
    """Vectors and visible labels of a graph, as :func:`gnnretrieval.training.gnn.ladder.message_graph` has them.

    Attributes:
        labels: ``(L, 2)`` labels of the visible questions.
        bank_rows: Rows of the visible questions among which nearness is searched.
    """

    def __init__(self, store: Graph) -> None:
        self._store = store
        visible = np.ones(store.num_queries, dtype=bool) if store.visible is None else store.visible
        self.labels = store.labels
        self.bank_rows: Rows = bank_rows(torch.from_numpy(visible)).numpy()
        self._lengths = (1.0, 1.0)
        if not store.similarity.normalize:
            self._lengths = mean_length(store.passage_features), mean_length(store.query_features)

    def queries(self, rows: Rows) -> Tensor:
        """Vectors of questions ``(r, d)``."""
        return self._prepared(self._store.query_features, rows, self._lengths[1])

    def graph(self, passages: Rows, queries: Rows, labels: Rows) -> MessageGraph:
        """The graph of these sorted rows, with labels between them."""
        similarity = self._store.similarity
        places = [np.searchsorted(queries, labels[:, 0]), np.searchsorted(passages, labels[:, 1])]
        return MessageGraph(
            self._prepared(self._store.passage_features, passages, self._lengths[0]),
            self.queries(queries),
            torch.empty((len(queries), 0), dtype=torch.int64),
            torch.from_numpy(np.stack(places, axis=1)),
            torch.ones(len(queries), dtype=torch.bool),
            similarity.normalize,
            similarity.scale if similarity.normalize else similarity.scale_of_mean(*self._lengths),
        )

    def _prepared(self, vectors: NDArray[np.floating], rows: Rows, length: float) -> Tensor:
        similarity = self._store.similarity
        prepared = torch.from_numpy(similarity.prepare_array(gather_rows(vectors, rows)))
        return prepared if similarity.normalize else prepared / length


def mean_length(vectors: NDArray[np.floating]) -> float:
    """Mean length of vectors ``(m, d)``, read in blocks."""
    total = 0.0
    for part in blocks(len(vectors), _READ):
        total += float(np.linalg.norm(gather_rows(vectors, np.arange(part.start, part.stop)), axis=1).sum())
    return max(total / max(len(vectors), 1), 1e-12)


def _some_labels(labels: Rows, most: int, rng: np.random.Generator) -> Rows:
    """Labels ``(L', 2)`` of randomly drawn questions: at most ``most``, and half as many passages."""
    questions, place = np.unique(labels[:, 0], return_inverse=True)
    place = rng.permutation(len(questions))[place]  # of each label's question in a random order
    order = np.argsort(place, kind="stable")
    is_new = np.zeros(len(order), dtype=bool)
    is_new[np.unique(labels[order, 1], return_index=True)[1]] = True
    fits = (np.cumsum(is_new) <= most // 2) & (place[order] < most)
    return labels[np.sort(order[fits])]


def _of_dev(store: Graph, dev: HeldOut) -> Rows:
    """Passages that are relevant to the dev questions or were shown for them, and the dual-encoder's best."""
    vectors = np.asarray(dev.queries, dtype=np.float32)
    with progress("searching for dev questions", store.num_passages, "passages") as meter:
        most = min(HARD, store.num_passages)
        best, _ = exact_top_k(vectors, store.passage_features, most, store.similarity, advance=meter.advance)
    listed = [*dev.relevant]
    if dev.clicked is not None:
        listed += [rows for rows in dev.clicked.shown if rows is not None]
    return np.unique(np.concatenate([best.ravel(), *(np.array(rows, dtype=np.int64) for rows in listed)]))


def _places(rows: Rows, some: Sequence[int]) -> list[int]:
    """Places in ``rows`` of those of ``some`` rows that are there."""
    wanted = np.array(some, dtype=np.int64)
    places: list[int] = np.searchsorted(rows, wanted[np.isin(wanted, rows)]).tolist()
    return places


def _clicks_among(rows: Rows, clicked: ClickedQuestions | None) -> ClickedQuestions | None:
    """The clicks on the passages of a part."""
    if clicked is None:
        return None
    return ClickedQuestions(
        [_places(rows, some) for some in clicked.relevant],
        [None if some is None else _places(rows, some) for some in clicked.shown],
        clicked.weights,
    )
