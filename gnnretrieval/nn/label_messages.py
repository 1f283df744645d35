"""Messages along label edges and from rejected passages, and local scaling, in the space of a linear head."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from gnnretrieval.nn.passage_updates import updated
from gnnretrieval.nn.rejection import rejected

NEAREST = 10  # queries that make up a passage's nearness
SAMPLE = 16384  # maximum number of queries among which they are searched
_QUERIES = 1024  # queries per block
_LEAST, _MOST = 0.5, 2.0  # limits of a passage's nearness, as multiples of the level
KEPT = 2**28  # bytes of what is kept from one call to the next, at most; more is computed again

Sides = Literal["both", "queries", "apart"]


class Heads(NamedTuple):
    """Matrices ``H_q`` of queries and ``H_p`` of passages, ``(d, d)`` each; a shared head is both."""

    queries: Tensor
    passages: Tensor

    @classmethod
    def shared(cls, head: Tensor) -> Heads:
        """The same head ``(d, d)`` on both sides."""
        return cls(head, head)

    def to(self, device: torch.device) -> Heads:
        """The heads on a device."""
        return Heads(self.queries.to(device), self.passages.to(device))


class MessageGraph(NamedTuple):
    """Node features and edges of the messages, in memory.

    Attributes:
        passages: ``h_p`` ``(m, d)`` float32, normalised if ``normalize``.
        queries: ``h_q`` ``(n, d)`` float32, normalised if ``normalize``.
        neighbors: ``(n, k)`` int64, passages that each query retrieved.
        labels: ``(L, 2)`` int64, relevant (query row, passage row) pairs of visible queries.
        visible: ``(n,)`` bool, True for queries that are in the graph.
        normalize: Whether the similarity is the cosine.
        scale: ``τ``, factor on the similarity in a softmax.
        bank: ``(b, d)`` queries among which nearness is searched, of a part of a larger graph; None: the visible ones.
    """

    passages: Tensor
    queries: Tensor
    neighbors: Tensor
    labels: Tensor
    visible: Tensor
    normalize: bool
    scale: float
    bank: Tensor | None = None

    def to(self, device: str | torch.device) -> MessageGraph:
        """The graph on a device."""
        tensors = {name: value for name, value in self._asdict().items() if isinstance(value, Tensor)}
        moved: dict[str, Any] = {name: value.to(device) for name, value in tensors.items()}
        return self._replace(**moved)

    @property
    def device(self) -> torch.device:
        """The device of all tensors."""
        return self.passages.device

    def prepare(self, vectors: Tensor) -> Tensor:
        """Vectors ``(…, d)`` as the similarity compares them: of length 1 for the cosine."""
        return F.normalize(vectors, dim=-1) if self.normalize else vectors

    def without(self, hidden: Tensor) -> MessageGraph:
        """The graph without the queries where ``hidden`` ``(n,)`` is True: no labels and no rejections of theirs."""
        hidden = hidden.to(self.device)
        return self._replace(labels=self.labels[~hidden[self.labels[:, 0]]], visible=self.visible & ~hidden)

    @property
    def label_counts(self) -> Tensor:
        """Number of visible queries with a label on each passage ``(m,)`` float32."""
        return torch.bincount(self.labels[:, 1], minlength=len(self.passages)).float()


class Messages(NamedTuple):
    """Weights of the messages and training of the head. With all at 0 the vectors are the dual-encoder's.

    Attributes:
        steps: Training steps of the head; 0: the head is the identity.
        mean: ``w``, weight of the mean of a passage's labelled queries.
        rounds: Number of rejection rounds.
        step_size: ``η``, step size of a round.
        prior: ``c``: the vectors of passages with labelled queries are multiplied by ``1 + c``; it may be negative.
        trained_mean: ``w`` during the training of the head.
        scaling: ``γ``, exponent of local scaling: the vectors of passages that are near to many queries get shorter.
        level: ``r``, nearness at which scaling does not change a vector; 0: the mean over the passages. Fixed after
            training, so that new queries change only the passages that they are near to.
        sides: ``both``: one head for both sides; ``apart``: one for queries and one for passages.
        questions: ``w'``, weight of a passage's nearest labelled query; with it a passage has several vectors
            (:func:`several_vectors`).
        passes: Passes of updates over the labels (:func:`gnnretrieval.nn.passage_updates.updated`).
        update_size: ``η'``, step size of an update.
    """

    steps: int = 0
    mean: float = 0.0
    rounds: int = 0
    step_size: float = 0.0
    prior: float = 0.0
    trained_mean: float = 0.0
    scaling: float = 0.0
    level: float = 0.0
    sides: Sides = "both"
    questions: float = 0.0
    passes: int = 0
    update_size: float = 0.0

    @property
    def head(self) -> Messages:
        """The head alone, without messages."""
        return Messages(self.steps, trained_mean=self.trained_mean, sides=self.sides)

    @property
    def needs_all(self) -> bool:
        """Whether a passage's vector depends on more than its own edges."""
        return bool(self.rounds or self.passes)

    @property
    def keeps_lengths(self) -> bool:
        """Whether the vectors of a cosine encoder stay of length 1."""
        return not (self.steps or self.prior or self.scaling)


class Mapped:
    """Features after the heads, not of length 1 yet.

    Args:
        graph: Features and labels.
        heads: ``H_q`` and ``H_p``; None: the identity.
    """

    def __init__(self, graph: MessageGraph, heads: Heads | None) -> None:
        self.graph, self.heads, self.passages, self.queries = graph, heads, graph.passages, graph.queries
        if heads is not None:
            self.passages, self.queries = self.passages @ heads.passages.T, self.queries @ heads.queries.T

    @cached_property
    def means(self) -> Tensor:
        """Mean of each passage's labelled queries ``(m, d)``; the passage itself without any."""
        query, passage = self.graph.labels.T
        sums = torch.zeros_like(self.passages).index_add_(0, passage, self.queries[query])
        counts = self.graph.label_counts[:, None]
        return torch.where(counts > 0, sums / counts.clamp(min=1), self.passages)

    @cached_property
    def compared(self) -> Tensor:
        """Queries ``(n, d)``, ready to compare."""
        return self.queries if self.queries is self.graph.queries else self.graph.prepare(self.queries)


@dataclass
class Computed:
    """What several calls with the same graph have in common, and compute once.

    Attributes:
        near: Nearness of the passages, by the messages that it depends on.
        mapped: The features after the last head, by :attr:`Messages.head`, if they are small.
        moved: The passages after the last label mean and rejection, with its weights, likewise.
        updates: The passages after the last updates, by messages with each number of passes, if they are small.
        passes: Numbers of passes that other calls may want.
    """

    near: dict[Messages, Tensor] = field(default_factory=dict)
    mapped: dict[Messages, Mapped] = field(default_factory=dict)
    moved: dict[Messages, tuple[Tensor, Tensor]] = field(default_factory=dict)
    updates: dict[Messages, Tensor] = field(default_factory=dict)
    passes: Collection[int] = ()

    def after(self, graph: MessageGraph, heads: Heads | None, messages: Messages) -> Mapped:
        """The features after ``heads``, which are those of ``messages``."""
        head = messages.head
        if head not in self.mapped:
            self.mapped.clear()
            mapped = Mapped(graph, heads)
            # two arrays of passages, with their means, and two of queries, with those of length 1
            if 8 * (len(graph.passages) + len(graph.queries)) * graph.passages.shape[1] > KEPT:
                return mapped
            self.mapped[head] = mapped
        return self.mapped[head]

    def rejected(self, mapped: Mapped, messages: Messages) -> tuple[Tensor, Tensor]:
        """The passages ``(m, d)`` after label mean and rejection of ``messages``, and the weights of the latter."""
        wanted = messages.head._replace(mean=messages.mean, rounds=messages.rounds, step_size=messages.step_size)
        if wanted not in self.moved:
            self.moved.clear()
            passages, queries = mixed(mapped, messages.mean)
            made = rejected(mapped.graph, passages, queries, messages.rounds, messages.step_size)
            if 4 * passages.numel() > KEPT:
                return made
            self.moved[wanted] = made
        return self.moved[wanted]

    def updated(self, graph: MessageGraph, passages: Tensor, queries: Tensor, messages: Messages) -> Tensor:
        """The passages ``(m, d)`` after the updates of ``messages``."""
        wanted = messages._replace(prior=0.0, scaling=0.0, level=0.0, questions=0.0)
        if wanted not in self.updates:
            self.updates.clear()
            passes = {*self.passes, messages.passes}
            if 4 * passages.numel() * len(passes) > KEPT:
                passes = {messages.passes}
            made = updated(graph, passages, queries, passes, messages.update_size)
            if len(passes) == 1:
                return made[messages.passes].passages
            self.updates = {wanted._replace(passes=count): after.passages for count, after in made.items()}
        return self.updates[wanted]


def message_vectors(
    graph: MessageGraph,
    heads: Heads | None,
    messages: Messages,
    computed: Computed | None = None,
    most: int | None = None,
) -> Tensor:
    r"""Passage vectors after all messages ``(m, d)`` float32, for the dot product with plain query vectors.

    .. math::
        z_p &= \widehat{(1 - w)\, H_p h_p + \tfrac{w}{|L_p|} \sum_{q \in L_p} H_q h_q} \\
        z_p &\leftarrow \widehat{z_p^{(0)} - \eta \sum_{t} \sum_{q \in N_p \setminus L_p} \pi_{qp}^{(t)}
        \widehat{H_q h_q}},
        \qquad \pi_{qp} = \mathrm{softmax}_{p \in N_q \cup L_q}(\tau\, z_p^\top \widehat{H_q h_q}) \\
        z_p &\leftarrow \mathrm{updated}(z_p) \\
        v_p &= (1 + c\,[L_p \ne \emptyset])\, (r / r_p)^{\gamma}\; H_q^\top z_p, \qquad
        r_p = \tfrac{1}{10} \sum_{q \in \mathrm{top}_{10}(p)} z_p^\top \widehat{H_q h_q}

    The label mean is one hop of uniform attention over label edges. In a rejection round each query spreads attention
    over its passages. Those that it retrieved but that are not relevant to it move away from it: a gradient step on
    eq. 12 with respect to the passages. Updates are more such steps, over all labels, in which queries pull their
    passages too (:func:`gnnretrieval.nn.passage_updates.updated`). Local scaling ranks hubs lower, the passages that
    are near to many queries: the passages' half of CSLS (Conneau et al. 2018, eq. 4) as a factor (Zelnik-Manor and
    Perona 2004). As
    :math:`(H_q h_q)^\top z_p = h_q^\top (H_q^\top z_p)`, the queries' head is folded into the passage vectors, and
    encoding a query costs no more than before.

    Args:
        graph: Features and edges.
        heads: ``H_q`` and ``H_p``; None: the identity.
        messages: Weights of the messages.
        computed: What earlier calls with the same graph, and the same heads for the same :attr:`Messages.head`,
            computed; None: nothing.
        most: Only the vectors of the first ``most`` passages ``(most, d)``; None: of all.
    """
    computed = Computed() if computed is None else computed
    vectors, queries, _ = _projected(graph, heads, messages, computed)
    return _folded(graph, heads, messages, vectors[:most], queries, computed)


def _folded(
    graph: MessageGraph, heads: Heads | None, messages: Messages, vectors: Tensor, queries: Tensor, computed: Computed
) -> Tensor:
    """``v_p`` of the first passages, from their ``z_p`` ``(most, d)`` and the queries ``(n, d)``."""
    if graph.bank is not None and messages.scaling:
        queries = graph.bank if heads is None else graph.prepare(graph.bank @ heads.queries.T)
    folded = vectors if heads is None else vectors @ heads.queries
    if messages.prior:
        folded = folded * (1 + messages.prior * (graph.label_counts[: len(vectors)] > 0).float())[:, None]
    if messages.scaling:
        near, before = computed.near, messages._replace(prior=0.0, scaling=0.0, level=0.0)
        if before not in near:
            near[before] = nearness(graph, vectors, queries)
        level = messages.level or float(near[before].mean())
        folded = folded * local_scale(near[before], level, messages.scaling)[:, None]
    return folded


def question_vectors(graph: MessageGraph, heads: Heads | None, messages: Messages) -> Tensor:
    r"""Vectors of the queries ``(n, d)``, to rank passages by their nearest labelled query (:func:`nearest_question`).

    .. math:: u_q = (1 + c)\, H_q^\top \widehat{H_q h_q}

    As :func:`message_vectors` they are for the dot product with plain query vectors. Passages are not read.
    """
    if heads is None:
        return graph.queries * (1 + messages.prior)
    return graph.prepare(graph.queries @ heads.queries.T) @ heads.queries * (1 + messages.prior)


def several_vectors(graph: MessageGraph, heads: Heads | None, messages: Messages) -> tuple[Tensor, Tensor]:
    r"""Each passage's own vector, and one more for each of its labelled queries.

    .. math:: v_p, \qquad v_{pq} = (1 - w')\, v_p + w'\, u_q \quad (q \in L_p)

    A passage scores by the best of its vectors, which is

    .. math:: s(q, p) = (1 - w')\, q^\top v_p + w' \max(q^\top v_p, \max_{q' \in L_p} q^\top u_{q'})

    The mean of a passage's training questions loses what tells them apart; the nearest of them does not. It is the
    equation of the baseline ``question-index``, over the vectors of the GNN-encoder.

    Args:
        graph: Features and edges.
        heads: ``H_q`` and ``H_p``; None: the identity.
        messages: Weights of the messages; ``w'`` is its ``questions``.

    Returns:
        Vectors ``(m + L, d)``, those of the passages first, and the row of each one's passage ``(m + L,)``.
    """
    passages, queries = message_vectors(graph, heads, messages), question_vectors(graph, heads, messages)
    query, passage = graph.labels.T
    of_queries = torch.lerp(passages[passage], queries[query], messages.questions)
    return torch.cat([passages, of_queries]), torch.cat([torch.arange(len(passages), device=graph.device), passage])


def nearest_question(graph: MessageGraph, scores: Tensor, of_queries: Tensor) -> Tensor:
    """Highest score of each passage and its labelled queries ``(b, m)``.

    Args:
        graph: Labels.
        scores: Scores of the passages ``(b, m)``.
        of_queries: Scores of the graph's queries ``(b, n)``.
    """
    query, passage = graph.labels.T
    return scores.scatter_reduce(1, passage.expand(len(scores), -1), of_queries[:, query], "amax")


def seen_by_heads(graph: MessageGraph, heads: Heads, messages: Messages) -> tuple[Tensor, Tensor, Tensor]:
    r"""Passages before and after the messages, and queries, in the space that the heads map to.

    There :math:`\widehat{H_q h_q}^\top z_p` is what ranks, before prior and local scaling.

    Returns:
        :math:`\widehat{H_p h_p}` ``(m, d)``, ``z_p`` ``(m, d)`` and :math:`\widehat{H_q h_q}` ``(n, d)``.
    """
    after, queries, _ = _projected(graph, heads, messages)
    return graph.prepare(graph.passages @ heads.passages.T), after, queries


def rejections(
    graph: MessageGraph, heads: Heads | None, messages: Messages, computed: Computed | None = None
) -> Tensor:
    """Weight with which each query pushed away each passage that it retrieved, ``η Σ_t π`` ``(n, k)`` float32."""
    return _projected(graph, heads, messages._replace(passes=0), computed)[2]


class Moves(NamedTuple):
    """What the updates did, in the space of the heads.

    Attributes:
        by: ``u_p - z_p``, by what each passage was moved ``(m, d)``.
        ends: ``z_p`` after them ``(m, d)``.
        pulls: Weight with which the query of each label pulled its passage ``(L,)``.
    """

    by: Tensor
    ends: Tensor
    pulls: Tensor


def moves(graph: MessageGraph, heads: Heads | None, messages: Messages, computed: Computed | None = None) -> Moves:
    """The moves of the updates (:func:`gnnretrieval.nn.passage_updates.updated`)."""
    passages, queries, _ = _projected(graph, heads, messages._replace(passes=0), computed)
    made = updated(graph, passages, queries, [messages.passes], messages.update_size)[messages.passes]
    return Moves(made.lengths[:, None] * made.passages - passages, made.passages, made.pulls)


def moved_vectors(
    graph: MessageGraph, heads: Heads | None, messages: Messages, by: Tensor, computed: Computed | None = None
) -> Tensor:
    """As :func:`message_vectors`, of the first ``r`` passages, which are moved ``by`` ``(r, d)`` instead of updated."""
    computed = Computed() if computed is None else computed
    passages, queries, _ = _projected(graph, heads, messages._replace(passes=0), computed)
    return _folded(graph, heads, messages, graph.prepare(passages[: len(by)] + by), queries, computed)


def mean_nearness(graph: MessageGraph, heads: Heads | None, messages: Messages) -> float:
    """``r``, the mean of ``r_p`` over the passages."""
    vectors, queries, _ = _projected(graph, heads, messages)
    return float(nearness(graph, vectors, queries).mean())


def nearness(graph: MessageGraph, passages: Tensor, queries: Tensor) -> Tensor:
    """``r_p``, each passage's mean similarity to its :data:`NEAREST` nearest visible queries ``(m,)``.

    They are searched exactly, among at most :data:`SAMPLE` queries.

    Args:
        graph: The edges.
        passages: ``z_p`` ``(m, d)``.
        queries: ``(n, d)``, in the same space; those of the bank ``(b, d)``, if the graph has one.
    """
    bank = queries if graph.bank is not None else queries[bank_rows(graph.visible)]
    if not len(bank):
        return passages.new_zeros(len(passages))
    most = min(NEAREST, len(bank))
    block = max(1, _QUERIES * _QUERIES * 16 // len(bank))  # 64 MiB of similarities
    return torch.cat([(part @ bank.T).topk(most, dim=1).values.mean(1) for part in torch.split(passages, block)])


def bank_rows(visible: Tensor) -> Tensor:
    """Rows of at most :data:`SAMPLE` visible queries; more queries later replace few of them."""
    rows = torch.nonzero(visible).ravel()
    if len(rows) <= SAMPLE:
        return rows
    spread = rows * 2654435769 % 2**32  # multiplicative hashing (Knuth, 6.4)
    return rows[spread.argsort(stable=True)[:SAMPLE]].sort().values


def local_scale(near: Tensor, level: float, scaling: float) -> Tensor:
    """``(r / r_p)^γ`` ``(m,)``, ``r_p`` limited to half and twice ``r``; 1 if the level ``r`` is not positive."""
    if level <= 0:
        return torch.ones_like(near)
    return (near / level).clamp(_LEAST, _MOST) ** -scaling


def _projected(
    graph: MessageGraph, heads: Heads | None, messages: Messages, computed: Computed | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """``z_p`` after all messages ``(m, d)``, queries ``(n, d)``, and the weights of :func:`rejections`."""
    computed = Computed() if computed is None else computed
    mapped = computed.after(graph, heads, messages)
    passages, strength = computed.rejected(mapped, messages)
    if messages.passes:
        passages = computed.updated(graph, passages, mapped.compared, messages)
    return passages, mapped.compared, strength


def mixed(mapped: Mapped, weight: float) -> tuple[Tensor, Tensor]:
    """Passages with their label mean ``(m, d)``, and queries ``(n, d)``, ready to compare.

    A passage without labels has no label mean.

    Args:
        mapped: Both after their heads.
        weight: ``w``, weight of the label mean.
    """
    passages = torch.lerp(mapped.passages, mapped.means, weight) if weight else mapped.passages
    return mapped.graph.prepare(passages), mapped.compared
