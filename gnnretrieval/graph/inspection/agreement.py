"""Agreement of a passage's questions: whether they paraphrase each other, and so how much a graph can help.

A GNN-encoder moves a passage towards the questions joined to it. This brings it closer to the next question about it
only if questions about one passage are alike. The figure to look at before training is therefore the mean cosine of a
passage's labelled questions, corrected for the cosine of random questions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.inspection.text_figures import NamedText
from gnnretrieval.data.text_store import TextStore
from gnnretrieval.graph.inspection.connectivity import Histogram, MeanAndPercentiles, histogram, percentiles
from gnnretrieval.graph.interchange import shown_queries
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.pages.reports import Figures
from gnnretrieval.storage.array_checks import require_finite
from gnnretrieval.storage.arrays import blocks, gather_rows, release

QUESTIONS = 1_000_000  # maximum number of questions read; of more, a seeded sample of passages with all their questions
RANDOM_PAIRS = 20_000
COMPARED = 200  # questions of a passage that are compared, to name the two least alike
_BLOCK = 4096  # questions read at a time
MEANING = (
    "Paraphrase is the mean cosine of a passage's own questions, on a scale where 0 is that of random questions and 1 "
    "that of equal ones. Near 1, a passage that moves towards its training questions also moves towards the next one. "
    "Near 0, its questions ask about different things, and a graph has little to add."
)


class RandomPairs(MeanAndPercentiles):
    """Cosines of random pairs of queries."""

    histogram: Histogram


class Disagreeing(Figures):
    """A passage with questions that are little alike."""

    id: str
    title: str
    questions: int
    agreement: float
    """Mean cosine of its questions."""
    cosine: float
    """Of the two in ``apart``."""
    apart: list[NamedText]
    """Its two questions that are least alike."""


class _Counted(Figures):
    passages: int
    questions: int
    passages_in_all: int
    """Passages with at least two questions, of which ``passages`` are a sample."""
    share_of_queries: float
    """Queries of the graph that share a relevant passage with another."""


class Agreement(MeanAndPercentiles, _Counted):  # in JSON the fields of the last base come first
    """Mean cosines of the labelled questions of one passage."""

    histogram: Histogram
    random: RandomPairs
    paraphrase: float
    """The mean on a scale where 0 is that of random pairs and 1 that of equal questions."""
    share_above_random: float
    """Share of passages with an agreement above the 99th percentile of random pairs."""
    disagreeing: list[Disagreeing]
    meaning: str
    """What ``paraphrase`` says, in words."""


def agreement_figures(store: Graph, most: int, seed: int) -> Agreement | None:
    r"""Agreement of the labelled questions of one passage.

    The agreement of a passage is the mean pairwise cosine of its ``c >= 2`` questions. With unit vectors
    :math:`u_1 … u_c` it is :math:`(\lVert \sum_i u_i \rVert^2 - c) / (c (c - 1))`, which takes time linear in ``c``.
    With :math:`a` its mean over passages and :math:`r` the mean cosine of random pairs of questions, the *paraphrase*
    figure is :math:`(a - r) / (1 - r)`, corrected for chance as Cohen's :math:`\kappa`.

    Args:
        store: The graph.
        most: Number of passages with the lowest agreement to name.
        seed: Seed of the random pairs, and of the sample if there are too many questions.

    Returns:
        The figures; None if no passage has two questions.
    """
    labels = store.labels[np.argsort(store.labels[:, 1], kind="stable")]
    passages, starts, counts = np.unique(labels[:, 1], return_index=True, return_counts=True)
    several = np.flatnonzero(counts >= 2)
    if not len(several):
        return None
    in_all, siblings = len(several), len(np.unique(labels[np.repeat(counts >= 2, counts), 0]))
    # whole passages are sampled, not questions: half a passage's questions would change its agreement
    if counts[several].sum() > QUESTIONS:
        chosen = np.random.default_rng([seed, 1]).permutation(several)
        several = np.sort(chosen[: max(1, int(np.searchsorted(np.cumsum(counts[chosen]), QUESTIONS, side="right")))])
    agreement = _agreement(store, labels, starts[several], counts[several])
    random = _random_pairs(store, seed)
    require_finite(np.concatenate([agreement, random])[:, None], store.path / "query_features.npy")
    mean, chance = float(agreement.mean()), float(random.mean())
    low = float(min(agreement.min(), random.min()))
    least = np.lexsort((passages[several], agreement))[:most]
    with store.texts() as texts:
        disagreeing = [
            _named(store, texts, int(passages[group]), labels[starts[group] : starts[group] + counts[group], 0], value)
            for group, value in zip(several[least], agreement[least].tolist(), strict=True)
        ]
    release(store.query_features)
    return Agreement(
        passages=len(several),
        questions=int(counts[several].sum()),
        passages_in_all=in_all,
        share_of_queries=siblings / len(shown_queries(store)),
        mean=mean,
        **percentiles(agreement),
        histogram=histogram(agreement, low, 1.0),
        random=RandomPairs(mean=chance, **percentiles(random), histogram=histogram(random, low, 1.0)),
        paraphrase=(mean - chance) / max(1 - chance, 1e-6),
        share_above_random=float((agreement > np.percentile(random, 99)).mean()),
        disagreeing=disagreeing,
        meaning=MEANING,
    )


def unit_queries(store: Graph, rows: Rows) -> NDArray[np.float32]:
    """Normalised features of some queries ``(len(rows), d)``; a zero vector stays zero."""
    vectors = gather_rows(store.query_features, rows)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = vectors / np.maximum(lengths, np.float32(1e-12))
    return unit


def _agreement(store: Graph, labels: Rows, starts: Rows, counts: Rows) -> NDArray[np.float64]:
    """Mean pairwise cosine of each group of ``labels`` ``(groups,)``, computed in blocks of whole groups."""
    means = np.empty(len(starts))
    ends = np.cumsum(counts)
    first = 0
    while first < len(starts):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _BLOCK, side="right")))
        means[first:last] = _mean_cosines(store, labels, starts[first:last], counts[first:last])
        first = last
        release(store.query_features)
    return means


def _mean_cosines(store: Graph, labels: Rows, starts: Rows, counts: Rows) -> NDArray[np.float64]:
    offsets = np.concatenate([[0], np.cumsum(counts)[:-1]])
    places = np.arange(counts.sum()) + np.repeat(starts - offsets, counts)
    unit = unit_queries(store, labels[places, 0])
    total = np.add.reduceat(unit, offsets, axis=0, dtype=np.float64)
    own = np.add.reduceat((unit.astype(np.float64) ** 2).sum(1), offsets)  # c, less its zero vectors
    mean: NDArray[np.float64] = ((total**2).sum(1) - own) / (counts * (counts - 1))
    return np.clip(mean, -1, 1)


def _random_pairs(store: Graph, seed: int) -> NDArray[np.float32]:
    """Cosines of random pairs of different queries ``(RANDOM_PAIRS,)``."""
    shown = shown_queries(store)
    n = len(shown)  # at least 2, because some passage has two questions
    rng = np.random.default_rng([seed, 2])
    places = rng.integers(n, size=RANDOM_PAIRS)
    first, second = shown[places], shown[(places + rng.integers(1, n, size=RANDOM_PAIRS)) % n]
    cosines = np.empty(RANDOM_PAIRS, dtype=np.float32)
    for part in blocks(RANDOM_PAIRS, _BLOCK):
        cosines[part] = (unit_queries(store, first[part]) * unit_queries(store, second[part])).sum(1)
        release(store.query_features)
    return np.clip(cosines, -1, 1)


def _named(store: Graph, texts: TextStore, passage: int, queries: Rows, agreement: float) -> Disagreeing:
    """A passage with its two questions that are least alike."""
    unit = unit_queries(store, queries[:COMPARED])
    cosines = unit @ unit.T
    first, second = np.unravel_index(int(np.argmin(cosines + 3 * np.eye(len(unit)))), cosines.shape)
    named = texts.passage(passage)
    apart = [texts.query(int(queries[place])) for place in sorted((int(first), int(second)))]
    return Disagreeing(
        id=named.id,
        title=named.title,
        questions=len(queries),
        agreement=agreement,
        cosine=float(cosines[first, second]),
        apart=[NamedText(id=query.id, text=query.text) for query in apart],
    )
