"""Dense baselines: simple uses of the labels that the GNN-encoder sees, over the same features.

Each is a special case of :func:`score`: linear heads, a label mean, passage vectors that are updated by their training
questions, an index of these questions, a prior on passages that have some, or local scaling. The setting with the best
mean RR@10 on dev is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.data.runs.ranking import rank_rows
from gnnretrieval.data.runs.trec import Run
from gnnretrieval.feedback.clicked_questions import ClickedQuestions
from gnnretrieval.nn.label_messages import (
    Computed,
    Heads,
    Mapped,
    MessageGraph,
    Messages,
    Sides,
    local_scale,
    mixed,
    nearest_question,
    nearness,
)
from gnnretrieval.progress import progress
from gnnretrieval.training.gnn.head import HeadTraining, train_each, train_heads
from gnnretrieval.training.gnn.ladder import (
    PRIORS,
    SCALINGS,
    STEPS,
    UPDATE_SIZES,
    first_ranks_of_scores,
    log_ranks,
    reciprocal,
    scores_among,
    steps_over,
    together,
)

_QUERIES = 256  # queries that are scored together
_TENTHS = tuple(tenth / 10 for tenth in range(11))
_FIFTHS = _TENTHS[::2]


class DenseSetting(NamedTuple):
    """Settings of a dense baseline. With zeros only, it is the dual-encoder.

    Attributes:
        steps: Training steps of the heads; 0: no heads.
        sides: Which side the heads are on.
        mean: Weight of the mean vector of a passage's training questions.
        questions: Weight ``w`` of the largest similarity with a passage or one of its training questions; the
            similarity with the passage has the weight ``1 - w``.
        prior: Share by which passages with training questions score higher; below 0, lower.
        scaling: Exponent of local scaling (:func:`gnnretrieval.nn.label_messages.message_vectors`).
        passes: Passes of updates (:func:`gnnretrieval.nn.passage_updates.updated`).
        update: Step size of these.
    """

    steps: int = 0
    sides: Sides = "both"
    mean: float = 0.0
    questions: float = 0.0
    prior: float = 0.0
    scaling: float = 0.0
    passes: int = 0
    update: float = 0.0

    def in_words(self) -> str:
        """The settings that are not zero, as text."""
        parts = {name: getattr(self, name) for name in self._fields if name != "sides"}
        return ", ".join(f"{name} {value:g}" for name, value in parts.items() if value) or "the dual-encoder"


PRIOR = "label-prior"  # ending of the names of baselines with a prior
_PRIORS = sorted(PRIORS, key=abs)
_PASSES = (2, 4, 8, 16)  # of passage updates: more than the ladder tries, since few other settings are tried here


def _with_label_mean(sides: Sides, priors: Sequence[float] = (0.0,)) -> list[DenseSetting]:
    """Settings of heads and label mean, with each prior."""
    return [
        DenseSetting(steps, sides, mean, prior=prior) for steps, mean, prior in product((0, *STEPS), _TENTHS, priors)
    ]


def _with_question_index(priors: Sequence[float] = (0.0,)) -> list[DenseSetting]:
    """Settings of separate heads and an index of the training questions, with each prior."""
    return [
        DenseSetting(steps, "apart", questions=weight, prior=prior)
        for steps, weight, prior in product((0, *STEPS), _FIFTHS, priors)
    ]


def _with_updates(priors: Sequence[float] = (0.0,)) -> list[DenseSetting]:
    """Settings of separate heads and updated passage vectors, with each prior."""
    heads = [DenseSetting(steps, "apart") for steps in (0, *STEPS)]
    updates = [(0.0, 0), *product(UPDATE_SIZES, _PASSES)]
    return [
        head._replace(passes=passes, update=size, prior=prior)
        for head, (size, passes), prior in product(heads, updates, priors)
    ]


CHOICES: Mapping[str, Sequence[DenseSetting]] = {
    "local-scaling": [DenseSetting(scaling=scaling) for scaling in SCALINGS],
    "label-prior": [DenseSetting(prior=prior) for prior in _PRIORS],
    "label-mean": [DenseSetting(mean=mean) for mean in _TENTHS],
    "question-index": [DenseSetting(questions=weight) for weight in _TENTHS],
    "linear-head": [DenseSetting(steps) for steps in (0, *STEPS)],
    "linear-head-queries": [DenseSetting(steps, "queries") for steps in (0, *STEPS)],
    "linear-heads-apart": [DenseSetting(steps, "apart") for steps in (0, *STEPS)],
    "linear-head+label-mean": _with_label_mean("both"),
    "linear-head+label-mean+label-prior": _with_label_mean("both", _PRIORS),
    "linear-heads-apart+label-mean": _with_label_mean("apart"),
    "linear-heads-apart+label-mean+label-prior": _with_label_mean("apart", _PRIORS),
    "linear-heads-apart+passage-updates": _with_updates(),
    "linear-heads-apart+passage-updates+label-prior": _with_updates(_PRIORS),
    "linear-heads-apart+question-index": _with_question_index(),
    "linear-heads-apart+question-index+label-prior": _with_question_index(_PRIORS),
}  # by baseline, the simplest first: of equally good settings, the first is chosen


class DenseBaseline(NamedTuple):
    """A baseline with its chosen setting, ready to rank.

    Attributes:
        setting: The setting that was chosen on dev.
        dev: Mean RR@10 on dev, which chose it: the lowest over the parts of dev.
        graph: Features and labels.
        heads: Linear heads; None: none.
        inside: The same without the questions that were held out, to rank these; None: none were.
    """

    setting: DenseSetting
    dev: float
    graph: MessageGraph
    heads: Heads | None
    inside: DenseBaseline | None = None

    @torch.no_grad()
    def run(
        self, query_ids: Sequence[str], queries: NDArray[np.floating], passage_ids: Sequence[str], depth: int
    ) -> Run:
        """Rank all passages for the queries.

        Args:
            query_ids: Ids of the queries.
            queries: Features of the queries ``(q, d)``.
            passage_ids: Ids of the passages in row order.
            depth: Passages per query.
        """
        run: Run = {}
        sides = prepared(Mapped(self.graph, self.heads), self.setting)
        for start in range(0, len(query_ids), _QUERIES):
            part = slice(start, start + _QUERIES)
            features = torch.from_numpy(np.asarray(queries[part], dtype=np.float32))  # (b, d)
            scores = score(self.graph, sides, self.setting, features.to(self.graph.device))  # (b, m)
            top = scores.topk(min(depth, len(passage_ids)), dim=1)
            ranked = rank_rows(top.indices.cpu().numpy(), top.values.cpu().numpy(), passage_ids)
            run.update(zip(query_ids[part], ranked, strict=True))
        return run


class Sided(NamedTuple):
    """Vectors that :func:`score` compares.

    Attributes:
        passages: Passages, after their head ``(m, d)``.
        queries: The graph's queries, after their head ``(n, d)``.
        head: Head for new queries ``(d, d)``; None: the identity.
    """

    passages: Tensor
    queries: Tensor
    head: Tensor | None


def prepared(mapped: Mapped, setting: DenseSetting, computed: Computed | None = None) -> Sided:
    """The vectors that :func:`score` compares: features after the heads, with label mean, updates and local scaling.

    What earlier calls with the same features ``computed`` is not computed again.
    """
    passages, queries = mixed(mapped, setting.mean)
    if setting.passes:
        updates = Messages(mean=setting.mean, passes=setting.passes, update_size=setting.update)
        passages = (computed or Computed()).updated(mapped.graph, passages, queries, updates)
    if setting.scaling:
        near = nearness(mapped.graph, passages, queries)
        passages = passages * local_scale(near, float(near.mean()), setting.scaling)[:, None]
    return Sided(passages, queries, None if mapped.heads is None else mapped.heads.queries)


def score(graph: MessageGraph, sides: Sided, setting: DenseSetting, queries: Tensor) -> Tensor:
    r"""Scores of all passages ``(b, m)`` for features of queries ``(b, d)``.

    .. math:: s(q, p) &= (1 + c\,[L_p \ne \emptyset]) \bigl((1 - w)\, q^\top p
        + w \max(q^\top p, \max_{q' \in L_p} q^\top q')\bigr)
    """
    return next(scores_of(graph, sides, [setting], queries))


def scores_of(graph: MessageGraph, sides: Sided, settings: Sequence[DenseSetting], queries: Tensor) -> Iterator[Tensor]:
    """Scores as :func:`score` gives them, for each of several settings that share ``sides``."""
    compared = graph.prepare(queries if sides.head is None else queries @ sides.head.T)  # (b, d)
    plain, best = compared @ sides.passages.T, None  # (b, m)
    for setting in settings:
        scores = plain
        if setting.questions:
            if best is None:
                best = nearest_question(graph, plain, compared @ sides.queries.T)  # (b, m)
            scores = torch.lerp(plain, best, setting.questions)
        yield scores * (1 + setting.prior * (graph.label_counts > 0).float())


@torch.no_grad()
def measure_dense(
    mapped: Mapped,
    settings: Sequence[DenseSetting],
    queries: Tensor,
    relevant: Sequence[Sequence[int]],
    clicked: ClickedQuestions | None = None,
    computed: Computed | None = None,
) -> NDArray[np.int64]:
    """Rank of the first relevant passage of each dev question ``(settings, q)``, by clicks among the passages shown.

    The settings differ only in ``questions`` and ``prior``; ``computed`` is as of :func:`prepared`.
    """
    sides = prepared(mapped, settings[0], computed)
    ranks = np.ones((len(settings), len(relevant)), dtype=np.int64)
    for start in range(0, len(relevant), _QUERIES):
        part = slice(start, start + _QUERIES)
        for row, scores in enumerate(scores_of(mapped.graph, sides, settings, queries[part])):
            ranked = scores if clicked is None else scores_among(scores, clicked.shown[part])
            ranks[row, part] = first_ranks_of_scores(ranked, relevant[part])
    return ranks


def lowest_mean(
    values: NDArray[np.float64], parts: NDArray[np.integer], clicked: ClickedQuestions | None = None
) -> float:
    """The lowest mean of values ``(q,)`` over the kinds of dev questions ``(q,)``; by clicks, the weighted mean."""
    kinds = np.unique(parts)
    if clicked is not None:
        values = values * clicked.shares
    shares = np.ones(len(values)) if clicked is None or len(kinds) == 1 else clicked.shares
    return min(float(values[parts == kind].mean() / shares[parts == kind].mean()) for kind in kinds)


def choose_dense(
    graph: MessageGraph,
    whole: MessageGraph,
    queries: NDArray[np.floating],
    relevant: Sequence[Sequence[int]],
    parts: NDArray[np.integer],
    *,
    priors: bool = True,
    learn_held_out: bool = True,
    seed: int = 0,
    names: Sequence[str] = tuple(CHOICES),
    clicked: ClickedQuestions | None = None,
) -> dict[str, DenseBaseline]:
    """Choose the best setting of every baseline on dev, by RR@10 and log rank together as training does.

    Args:
        graph: The graph without the questions that are held out.
        whole: The graph with them; the same object if none are held out.
        queries: Features of the dev questions ``(q, d)``.
        relevant: Rows of the relevant passages of each dev question.
        parts: Kind of each dev question ``(q,)``; a setting counts by its lowest mean over the kinds.
        priors: Whether to choose the baselines with a prior: only a dev split shows how often questions are about
            passages with training questions.
        learn_held_out: Whether the chosen heads are trained again on all labels of ``whole``, if questions are held
            out; not on queries of both train and dev.
        seed: Seed of the order of training pairs.
        names: Names of the baselines.
        clicked: How the dev questions count if their labels are clicks; None: all alike.

    Returns:
        The baselines with their chosen settings, by name.
    """
    features = torch.from_numpy(np.asarray(queries, dtype=np.float32)).to(graph.device)
    wanted = {
        name: [setting._replace(steps=steps_over(len(graph.labels), setting.steps)) for setting in CHOICES[name]]
        for name in CHOICES
        if name in names and (priors or not name.endswith(PRIOR))
    }
    settings = dict.fromkeys(setting for choices in wanted.values() for setting in choices)
    shapes = dict.fromkeys((setting.steps, setting.sides) for setting in settings if setting.steps)
    with progress("training the baselines' heads", sum(steps for steps, _ in shapes), "steps") as meter:
        trained = train_each(graph, [HeadTraining(*shape) for shape in shapes], seed=seed, advance=meter.advance)
    heads = dict(zip(shapes, trained, strict=True))
    # Settings that differ only in these two share their prepared vectors, so that each is prepared once.
    alike: dict[DenseSetting, list[DenseSetting]] = {}
    for setting in settings:
        alike.setdefault(setting._replace(questions=0.0, prior=0.0), []).append(setting)
    dev: dict[DenseSetting, float] = {}
    both: dict[DenseSetting, float] = {}
    mapped, computed = Mapped(graph, None), Computed(passes=_PASSES)
    (plain,) = measure_dense(mapped, [DenseSetting()], features, relevant, clicked)
    add = together(reciprocal(plain), log_ranks(plain))
    for shared, group in alike.items():
        of_group = heads.get((shared.steps, shared.sides))
        if mapped.heads is not of_group:
            mapped, computed = Mapped(graph, of_group), Computed(passes=_PASSES)
        by_setting = measure_dense(mapped, group, features, relevant, clicked, computed)
        for setting, ranks in zip(group, by_setting, strict=True):
            dev[setting] = lowest_mean(reciprocal(ranks), parts, clicked)
            both[setting] = lowest_mean(add(reciprocal(ranks), log_ranks(ranks)), parts, clicked)
    baselines = {}
    for name, choices in wanted.items():
        best = max(choices, key=lambda setting: both[setting])
        made = DenseBaseline(best, dev[best], graph, heads.get((best.steps, best.sides)))
        if whole is not graph:
            final = made.heads
            if final is not None and learn_held_out:
                final = train_heads(whole, best.steps, sides=best.sides, seed=seed)
            made = DenseBaseline(best, dev[best], whole, final, made)
        baselines[name] = made
    return baselines
