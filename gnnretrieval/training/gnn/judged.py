"""The questions that the ladder measures its settings on: dev's and, where these are few, training questions too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.data.runs.trec import Run, rank_rows
from gnnretrieval.feedback.clicked_questions import ClickedQuestions
from gnnretrieval.nn.label_messages import (
    KEPT,
    Computed,
    Heads,
    MessageGraph,
    Messages,
    Sides,
    message_vectors,
    nearest_question,
    question_vectors,
)
from gnnretrieval.storage.arrays import blocks
from gnnretrieval.training.gnn.held_out import first_copies, passages_by_query
from gnnretrieval.training.gnn.ladder import (
    HEADS,
    PASSES,
    QUESTIONS,
    SIDES,
    first_ranks,
    first_ranks_of_scores,
    heads_of,
    log_ranks,
    reciprocal,
    scores_among,
)

MOST = 2000  # maximum number of dev questions used
FEW, FOLDS = 500, 4  # with fewer dev questions than FEW, cross-validated training questions in FOLDS folds join them
MOST_HEADS = 3 * HEADS // 2 * (1 + FOLDS) + 6 * HEADS  # (d, d) arrays at the same time: all heads, and optimizers
BESIDE = 0.1  # share of the training questions that joint training leaves out where dev questions are few
_AT_ONCE = 256  # questions ranked together
ALIKE = 0.01  # p-value below which training questions differ from dev's and are not used


class Beside(NamedTuple):
    """Training questions that are judged beside few dev questions.

    Attributes:
        hidden: ``(n,)`` bool, True for these questions and their copies, which are not trained on.
        rows: ``(q,)`` rows of the questions in the graph, without copies.
        judged: How to judge them.
    """

    hidden: NDArray[np.bool_]
    rows: NDArray[np.int64]
    judged: Judged


def rows_of(count: int) -> NDArray[np.int64]:
    """Positions of the dev questions used, of ``count``: at most :data:`MOST`, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(MOST, count)).astype(np.int64))


@dataclass(frozen=True)
class Judged:
    """Questions for measuring settings, with a graph and heads that lack these questions.

    Attributes:
        graph: The graph without these questions.
        heads: Heads trained without them, by :attr:`Messages.head`.
        queries: ``(q, d)``, normalised if the similarity is cosine.
        relevant: Rows of each question's relevant passages.
        clicked: How the questions count if their labels are clicks; None: all alike.
        computed: What the messages that were measured have in common.
        best: Of the last head, in blocks of questions: the highest score of each passage's labelled queries ``(b, m)``.
        ranks: Ranks computed so far, by messages.
    """

    graph: MessageGraph
    heads: Mapping[Messages, Heads]
    queries: Tensor
    relevant: Sequence[Sequence[int]]
    clicked: ClickedQuestions | None = None
    computed: Computed = field(default_factory=lambda: Computed(passes=PASSES), init=False, repr=False)
    best: dict[Messages, list[Tensor]] = field(default_factory=dict, init=False, repr=False)
    ranks: dict[Messages, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        graph: MessageGraph,
        heads: Mapping[Messages, Heads],
        queries: NDArray[np.floating],
        relevant: Sequence[Sequence[int]],
        clicked: ClickedQuestions | None = None,
    ) -> Judged:
        """At most :data:`MOST` evenly spaced questions, from features ``(q, d)`` and the rows of relevant passages."""
        rows = rows_of(len(relevant))
        vectors = graph.prepare(torch.from_numpy(np.asarray(queries[rows], dtype=np.float32)).to(graph.device))
        passages = [list(relevant[row]) for row in rows.tolist()]
        return cls(graph, heads, vectors, passages, None if clicked is None else clicked.only(rows.tolist()))

    def only(self, rows: Sequence[int]) -> Judged:
        """The questions at these positions."""
        clicked = None if self.clicked is None else self.clicked.only(rows)
        return replace(self, queries=self.queries[rows], relevant=[self.relevant[row] for row in rows], clicked=clicked)

    def measure(self, messages: Messages) -> NDArray[np.float64]:
        """RR@10 of each question ``(q,)`` with these messages, :meth:`weighted`."""
        return self.weighted(reciprocal(self.first_ranks(messages)))

    def log_ranks(self, messages: Messages) -> NDArray[np.float64]:
        """Log rank of each question ``(q,)`` (:func:`gnnretrieval.training.gnn.ladder.log_ranks`), likewise."""
        return self.weighted(log_ranks(self.first_ranks(messages)))

    def measure_vectors(self, vectors: Tensor) -> NDArray[np.float64]:
        """RR@10 of each question ``(q,)`` by passage vectors ``(m, d)``, :meth:`weighted`."""
        return self.weighted(reciprocal(self._ranks_of(vectors)))

    @torch.no_grad()
    def first_ranks(self, messages: Messages) -> NDArray[np.int64]:
        """Rank of the first relevant passage of each question ``(q,)``; by clicks, among the passages shown."""
        if messages not in self.ranks and messages.questions:
            self._rank_with_questions(messages)
        elif messages not in self.ranks:
            heads = self.heads[messages.head] if messages.steps else None
            self.ranks[messages] = self._ranks_of(message_vectors(self.graph, heads, messages, self.computed))
        return self.ranks[messages]

    def _rank_with_questions(self, messages: Messages) -> None:
        """As :meth:`first_ranks` with every weight of the questions: their products are the same."""
        heads = self.heads[messages.head] if messages.steps else None
        vectors = message_vectors(self.graph, heads, messages._replace(questions=0.0), self.computed)
        weights = sorted({*QUESTIONS, messages.questions})
        ranks = np.ones((len(weights), len(self.relevant)), dtype=np.int64)
        parts = blocks(len(self.relevant), _AT_ONCE)
        for part, best in zip(parts, self._best_questions(heads, messages.head), strict=True):
            plain = self.queries[part] @ vectors.T  # (b, m)
            nearest = torch.maximum(plain, (1 + messages.prior) * best)
            weighted = torch.empty_like(plain)  # for all weights: allocating it costs more than they do
            for number, weight in enumerate(weights):
                scores = torch.lerp(plain, nearest, weight, out=weighted)
                if self.clicked is not None:
                    scores = scores_among(scores, self.clicked.shown[part])
                ranks[number, part] = first_ranks_of_scores(scores, self.relevant[part])
        self.ranks.update(zip((messages._replace(questions=weight) for weight in weights), ranks, strict=True))

    def _best_questions(self, heads: Heads | None, head: Messages) -> Iterator[Tensor]:
        """In blocks of questions: the highest score of each passage's labelled queries ``(b, m)``; -inf without any."""
        if head in self.best:
            yield from self.best[head]
            return
        self.best.clear()
        made, vectors = list[Tensor](), question_vectors(self.graph, heads, head)
        for part in blocks(len(self.relevant), _AT_ONCE):
            lowest = vectors.new_full((part.stop - part.start, len(self.graph.passages)), -torch.inf)
            block = nearest_question(self.graph, lowest, self.queries[part] @ vectors.T)
            made.append(block)
            if 4 * len(self.relevant) * lowest.shape[1] > KEPT:
                made.clear()
            yield block
        if made:
            self.best[head] = made

    def _ranks_of(self, vectors: Tensor) -> NDArray[np.int64]:
        shown = None if self.clicked is None else self.clicked.shown
        return first_ranks(vectors, self.queries, self.relevant, shown)

    def weighted(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values of the questions ``(q,)``; by clicks multiplied by each question's share of the weights.

        So their mean is the weighted mean (:mod:`gnnretrieval.feedback.clicked_questions`).
        """
        return values if self.clicked is None else self.clicked.shares * values

    @torch.no_grad()
    def run(self, messages: Messages, ids: Sequence[str], passage_ids: Sequence[str], depth: int) -> Run:
        """Rankings of the questions, whose ids are given, with these messages: at most ``depth`` passages each."""
        vectors = message_vectors(self.graph, self.heads[messages.head] if messages.steps else None, messages)
        top = (self.queries @ vectors.T).topk(min(depth, len(passage_ids)), dim=1)
        return dict(zip(ids, rank_rows(top.indices.cpu().numpy(), top.values.cpu().numpy(), passage_ids), strict=True))

    @property
    def warm(self) -> NDArray[np.bool_]:
        """Whether a relevant passage of each question has a label in the graph ``(q,)``."""
        counts = self.graph.label_counts.cpu()
        return np.array([bool((counts[list(rows)] > 0).any()) for rows in self.relevant], dtype=bool)


def cross_validated(
    graph: MessageGraph,
    dev: Judged | None,
    steps: Sequence[int],
    seed: int,
    taught: Tensor,
    advance: Callable[[int], None] = lambda steps: None,
    sides: Sequence[Sides] = SIDES,
    clicked: ClickedQuestions | None = None,
    may_join: NDArray[np.bool_] | None = None,
) -> list[Judged]:
    """Cross-validated training questions, which join the dev questions where these are few.

    The graph and the heads of a fold lack the fold's questions, and copies of them under other ids. Its heads make as
    many passes over their questions as the final heads over all. With a dev split, a random sample is returned in which
    the share of questions about passages with other questions is that of dev. If the dual-encoder ranks the sample
    better or worse than dev (p < 0.01), the questions are of another kind, and none are returned; those of event logs
    are always returned.

    Args:
        graph: The graph without the dev questions.
        dev: The questions of the dev split; None: there is none, and all questions are returned.
        steps: Training steps of the final heads.
        seed: Seed of the folds, the heads and the sample.
        taught: ``(n,)`` bool, True for queries to train on; others are not judged either.
        advance: Called with the number of steps done.
        sides: Kinds of heads.
        clicked: How the ``n`` queries of the graph count if their labels are clicks; None: all alike.
        may_join: ``(n,)`` bool, False for queries that must not be judged, since the dual-encoder learned from them: it
            ranks them better than new ones, and any change would look like a loss. None: all may.
    """
    rng = np.random.default_rng([seed, 0, 2])
    usable, labelled = _usable(graph, taught, may_join)
    fold = np.full(len(graph.queries), -1)
    fold[usable] = rng.permutation(len(usable)) % FOLDS
    first = first_copies(graph.queries.cpu().numpy(), labelled)
    fold[labelled] = fold[first]  # copies of a question are in its fold: they would give its answer away
    judged_once = usable[first[: len(usable)] == usable]
    relevant = passages_by_query(graph.labels.cpu().numpy())
    folds = []
    for number in range(FOLDS):
        hidden = torch.from_numpy(fold == number)
        if not bool(hidden.any()):
            continue
        inside = graph.without(hidden)
        here = judged_once[fold[judged_once] == number]
        share = 1 - 1 / FOLDS  # as many passes over fewer questions
        heads = heads_of(inside, steps, seed, taught, advance, share, sides)
        relevant_here = [relevant[row] for row in here.tolist()]
        clicked_here = None if clicked is None else clicked.only(here.tolist())
        folds.append(Judged(inside, heads, graph.prepare(graph.queries[here]), relevant_here, clicked_here))
    if not folds or dev is None:
        return folds
    # dev decides the mix of warm and cold questions: a graph helps the two kinds unequally
    warm = np.concatenate([judged.warm for judged in folds])
    kept = _matched(warm, float(dev.warm.mean()), rng)
    bounds = np.cumsum([0, *(len(judged.relevant) for judged in folds)])
    drawn = [
        judged.only(np.flatnonzero(kept[start:stop]).tolist())
        for judged, start, stop in zip(folds, bounds, bounds[1:], strict=False)
    ]
    drawn = [judged for judged in drawn if len(judged.relevant)]
    return drawn if _alike(dev, drawn) else []


def questions_beside(
    graph: MessageGraph,
    dev: Judged,
    seed: int,
    taught: Tensor,
    clicked: ClickedQuestions | None = None,
    may_join: NDArray[np.bool_] | None = None,
) -> Beside | None:
    """A tenth of the training questions, to be judged beside few dev questions by what is trained without them.

    As in :func:`cross_validated`, dev decides the share of questions about passages with other questions.

    Args:
        graph: The graph without the dev questions.
        dev: The dev questions.
        seed: Seed of the choice.
        taught: ``(n,)`` bool, True for queries that may be chosen.
        clicked: As in :func:`cross_validated`.
        may_join: As in :func:`cross_validated`.

    Returns:
        The questions; None: there are none, or the dual-encoder ranks them better or worse than dev's, so that they are
        of another kind.
    """
    rng = np.random.default_rng([seed, 0, 4])
    usable, labelled = _usable(graph, taught, may_join)
    chosen = np.zeros(len(graph.queries), dtype=bool)
    chosen[rng.permutation(usable)[: round(BESIDE * len(usable))]] = True
    first = first_copies(graph.queries.cpu().numpy(), labelled)
    chosen[labelled] = chosen[first]
    rows = usable[chosen[usable] & (first[: len(usable)] == usable)]
    if not len(rows):
        return None
    relevant = passages_by_query(graph.labels.cpu().numpy())
    judged = Judged(
        graph.without(torch.from_numpy(chosen)),
        {},
        graph.queries[rows],
        [relevant[row] for row in rows.tolist()],
        None if clicked is None else clicked.only(rows.tolist()),
    )
    kept = _matched(judged.warm, float(dev.warm.mean()), rng)
    chosen[rows[~kept]] = False  # these are trained on after all
    chosen[labelled] = chosen[first]
    wanted = np.flatnonzero(kept).tolist()
    judged = replace(judged.only(wanted), graph=graph.without(torch.from_numpy(chosen)))
    return Beside(chosen, rows[kept], judged) if _alike(dev, [judged] if wanted else []) else None


def _usable(
    graph: MessageGraph, taught: Tensor, may_join: NDArray[np.bool_] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the labelled queries that may be judged; and of all labelled queries, these first."""
    labelled = np.unique(graph.labels[:, 0].cpu().numpy())
    may = (taught.numpy() if may_join is None else taught.numpy() & may_join)[labelled]
    usable: NDArray[np.int64] = labelled[may]
    return usable, np.concatenate([usable, labelled[~may]])


def _alike(dev: Judged, drawn: Sequence[Judged]) -> bool:
    """Whether the dual-encoder ranks the sampled questions about as well as dev's.

    Questions from event logs are alike: they are of the same users. Dev's look easier only because dev is a shorter
    time: little but what is ranked high then gets enough clicks for a label.
    """
    if not drawn:
        return False
    if dev.clicked is not None:
        return True
    of_drawn, of_dev = np.concatenate([judged.measure(Messages()) for judged in drawn]), dev.measure(Messages())
    if min(len(of_drawn), len(of_dev)) < 2 or not (of_drawn.std() or of_dev.std()):
        return True  # no test is possible
    from scipy import stats  # loads for a second

    figures = [(values.mean(), values.std(ddof=1), len(values)) for values in (of_drawn, of_dev)]
    return not stats.ttest_ind_from_stats(*figures[0], *figures[1], equal_var=False).pvalue < ALIKE


def _matched(warm: NDArray[np.bool_], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Mask ``(q,)`` of the largest random sample with this share of warm questions."""
    of_warm, of_cold = rng.permutation(np.flatnonzero(warm)), rng.permutation(np.flatnonzero(~warm))
    most = [len(rows) / part for rows, part in ((of_warm, share), (of_cold, 1 - share)) if part > 0]
    total = min(most)
    kept = np.zeros(len(warm), dtype=bool)
    kept[of_warm[: round(total * share)]] = True
    kept[of_cold[: round(total * (1 - share))]] = True
    return kept
