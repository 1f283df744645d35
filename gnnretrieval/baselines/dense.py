"""Dense baselines: one-line uses of the labels that the GNN-encoder sees, over the same features.

Each is a special case of :func:`score`: heads, a label mean, an index of the training questions, or a prior on passages
that have training questions. A setting is chosen on dev, as a careful user would: the best mean RR@10.
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
from gnnretrieval.nn.label_messages import MessageGraph, label_mean
from gnnretrieval.progress import progress
from gnnretrieval.training.gnn.head import Heads, Sides, train_heads
from gnnretrieval.training.gnn.ladder import PRIORS, STEPS, reciprocal_ranks_of_scores

_QUERIES = 256  # scored together
_TENTHS = tuple(tenth / 10 for tenth in range(11))


class DenseSetting(NamedTuple):
    """Settings of a dense baseline. All zero is the dual-encoder.

    Attributes:
        steps: Steps that its heads were trained for; 0: none.
        sides: What the heads are on.
        mean: Weight of the mean of a passage's training questions.
        questions: Weight of the best similarity with a passage or one of its training questions, beside the
            similarity with the passage.
        prior: Share by which passages with training questions score higher, or lower below 0.
    """

    steps: int = 0
    sides: Sides = "both"
    mean: float = 0.0
    questions: float = 0.0
    prior: float = 0.0

    def in_words(self) -> str:
        """What is not zero."""
        parts = {"steps": self.steps, "mean": self.mean, "questions": self.questions, "prior": self.prior}
        return ", ".join(f"{name} {value:g}" for name, value in parts.items() if value) or "the dual-encoder"


CHOICES: Mapping[str, Sequence[DenseSetting]] = {
    "label-prior": [DenseSetting(prior=prior) for prior in sorted(PRIORS, key=abs)],
    "label-mean": [DenseSetting(mean=mean) for mean in _TENTHS],
    "question-index": [DenseSetting(questions=weight) for weight in _TENTHS],
    "linear-head": [DenseSetting(steps) for steps in (0, *STEPS)],
    "linear-head-queries": [DenseSetting(steps, "queries") for steps in (0, *STEPS)],
    "linear-heads-apart": [DenseSetting(steps, "apart") for steps in (0, *STEPS)],
    "linear-head+label-mean": [DenseSetting(steps, mean=mean) for steps, mean in product((0, *STEPS), _TENTHS)],
}  # by baseline, the simplest first: of equal ones it is taken


class DenseBaseline(NamedTuple):
    """A baseline that is ready to rank.

    Attributes:
        setting: Chosen on dev.
        dev: Mean RR@10 that chose it; of the part of dev where it is lowest, if there are several.
        graph: Features and labels.
        heads: None: the identity.
    """

    setting: DenseSetting
    dev: float
    graph: MessageGraph
    heads: Heads | None

    @torch.no_grad()
    def run(
        self, query_ids: Sequence[str], queries: NDArray[np.floating], passage_ids: Sequence[str], depth: int
    ) -> Run:
        """Rank all passages for queries, given their features ``(q, d)``."""
        run: Run = {}
        sides = prepared(self.graph, self.heads, self.setting)
        for start in range(0, len(query_ids), _QUERIES):
            part = slice(start, start + _QUERIES)
            asked = torch.from_numpy(np.asarray(queries[part], dtype=np.float32))
            found = score(self.graph, sides, self.setting, asked).topk(min(depth, len(passage_ids)), dim=1)
            ranked = rank_rows(found.indices.numpy(), found.values.numpy(), passage_ids)
            run.update(zip(query_ids[part], ranked, strict=True))
        return run


class Sided(NamedTuple):
    """Vectors as they are compared: passages ``(m, d)``, the graph's queries ``(n, d)``, and the head of new ones."""

    passages: Tensor
    queries: Tensor
    head: Tensor | None


def prepared(graph: MessageGraph, heads: Heads | None, setting: DenseSetting) -> Sided:
    """What :func:`score` compares with."""
    mixed = label_mean(graph, setting.mean)
    if heads is None:
        return Sided(graph.prepare(mixed), graph.queries, None)
    passages, queries = mixed @ heads.passages.T, graph.queries @ heads.queries.T
    return Sided(graph.prepare(passages), graph.prepare(queries), heads.queries)


def score(graph: MessageGraph, sides: Sided, setting: DenseSetting, queries: Tensor) -> Tensor:
    r"""Scores ``(b, m)`` of all passages for features of queries ``(b, d)``.

    .. math:: s(q, p) &= (1 + c\,[L_p \ne \emptyset]) \bigl((1 - w)\, q^\top p
        + w \max(q^\top p, \max_{q' \in L_p} q^\top q')\bigr)
    """
    return next(scores_of(graph, sides, [setting], queries))


def scores_of(graph: MessageGraph, sides: Sided, settings: Sequence[DenseSetting], queries: Tensor) -> Iterator[Tensor]:
    """The same for several settings of one ``sides``, each in its turn."""
    asked = graph.prepare(queries if sides.head is None else queries @ sides.head.T)
    plain, best = asked @ sides.passages.T, None
    for setting in settings:
        scores = plain
        if setting.questions:
            if best is None:
                to_query, to_passage = graph.labels.T
                of_labels = (asked @ sides.queries.T)[:, to_query]  # (b, L)
                best = plain.scatter_reduce(1, to_passage.expand(len(asked), -1), of_labels, "amax")
            scores = torch.lerp(plain, best, setting.questions)
        yield scores * (1 + setting.prior * (graph.label_counts > 0).float())


@torch.no_grad()
def _measured(
    graph: MessageGraph,
    heads: Heads | None,
    settings: Sequence[DenseSetting],
    queries: Tensor,
    relevant: Sequence[Sequence[int]],
) -> NDArray[np.float64]:
    """RR@10 of each dev question by settings that differ in ``questions`` and ``prior`` alone ``(settings, q)``."""
    sides = prepared(graph, heads, settings[0])
    found = np.zeros((len(settings), len(relevant)))
    for start in range(0, len(relevant), _QUERIES):
        part = slice(start, start + _QUERIES)
        for row, scores in enumerate(scores_of(graph, sides, settings, queries[part])):
            found[row, part] = reciprocal_ranks_of_scores(scores, relevant[part])
    return found


def choose_dense(
    graph: MessageGraph,
    whole: MessageGraph,
    queries: NDArray[np.floating],
    relevant: Sequence[Sequence[int]],
    parts: NDArray[np.integer],
    *,
    priors: bool = True,
    seed: int = 0,
    names: Sequence[str] = tuple(CHOICES),
) -> dict[str, DenseBaseline]:
    """Every baseline with its best setting on dev; heads are trained on all labels of ``whole`` once it is chosen.

    Args:
        graph: Without questions that are held out to choose by.
        whole: With them; the same graph where none are.
        queries: Features ``(q, d)`` of the dev questions.
        relevant: Rows of their relevant passages.
        parts: Which kind of question each is; a setting is worth its mean on the kind it does worst on.
        priors: Whether dev says how often questions are about passages with training questions (a dev split does).
        seed: Of the order of the pairs that heads are trained on.
        names: Of the baselines.
    """
    asked = torch.from_numpy(np.asarray(queries, dtype=np.float32))
    wanted = {name: CHOICES[name] for name in CHOICES if name in names and (priors or name != "label-prior")}
    shapes = dict.fromkeys((one.steps, one.sides) for choices in wanted.values() for one in choices if one.steps)
    heads: dict[tuple[int, str], Heads] = {}
    with progress("training the baselines' heads", sum(steps for steps, _ in shapes), "steps") as meter:
        for steps, sides in shapes:
            heads[steps, sides] = train_heads(graph, steps, sides=sides, seed=seed)
            meter.advance(steps)
    found, measured = {}, dict[DenseSetting, float]()
    alike: dict[DenseSetting, list[DenseSetting]] = {}
    for one in dict.fromkeys(one for choices in wanted.values() for one in choices):
        alike.setdefault(one._replace(questions=0.0, prior=0.0), []).append(one)
    for shared, settings in alike.items():
        found_of = _measured(graph, heads.get((shared.steps, shared.sides)), settings, asked, relevant)
        for one, values in zip(settings, found_of, strict=True):
            measured[one] = min(float(values[parts == part].mean()) for part in np.unique(parts))
    for name, choices in wanted.items():
        best = max(choices, key=lambda one: measured[one])
        its = heads.get((best.steps, best.sides))
        if its is not None and whole is not graph:
            its = train_heads(whole, best.steps, sides=best.sides, seed=seed)
        found[name] = DenseBaseline(best, measured[best], whole, its)
    return found
