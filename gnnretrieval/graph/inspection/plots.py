"""Plots of a graph's figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from gnnretrieval.graph.inspection.agreement import MEANING, Agreement
from gnnretrieval.graph.inspection.connectivity import Degrees, Histogram, ScoresByRank
from gnnretrieval.graph.inspection.report import GraphReport
from gnnretrieval.pages.axes import Axis, percent
from gnnretrieval.pages.html import Figure, source
from gnnretrieval.pages.plots import Line, bar_plot, line_plot, lying_bars
from gnnretrieval.pages.quantities import in_bytes


def plots_of(figures: GraphReport, place: str | None = None) -> Iterator[Figure]:
    """Plots of the figures of a graph.

    Args:
        figures: The figures.
        place: Path of the graph relative to the page, which then names each plot's files; None: it names none.
    """

    def of(figure: Figure, *files: str) -> Figure:
        return figure if place is None else figure._replace(source=source(*(f"{place}/{file}" for file in files)))

    yield of(_degrees(figures.queries_per_passage), "passage_indptr.npy")
    if figures.labelled_passage_among_neighbours:
        yield of(_recall(figures.labelled_passage_among_neighbours), "neighbors.npy", "texts.sqlite")
    if figures.agreement is not None:
        yield of(_agreement(figures.agreement), "query_features.npy", "texts.sqlite")
    yield of(_scores(figures.scores.by_rank), "scores.npy")
    yield of(_disk(figures.files), "meta.json")


def _degrees(degrees: Degrees) -> Figure:
    bins = degrees.histogram
    names = [str(bin_.first) if bin_.first == bin_.last else f"{bin_.first}-{bin_.last}" for bin_ in bins]
    counts = [bin_.passages for bin_ in bins]
    return Figure(
        "Queries per passage",
        "Passages by the number of queries joined to them, both on a logarithmic scale. A long tail to the right means "
        f"hubs: here the 1 % with most queries have {degrees.edges_of_top_percent:.1%} of the edges.",
        bar_plot("Passages by the number of queries joined to them", names, counts, "queries", "passages", log=True),
    )


def _recall(recall: Mapping[str, float]) -> Figure:
    look = "points" if len(recall) <= 40 else "line"
    line = Line("share of queries", [int(rank) for rank in recall], list(recall.values()), look=look)
    last = list(recall)[-1]
    return Figure(
        "Queries with a relevant passage among their first neighbours",
        "The curve ends at the graph's recall ceiling: for the other queries no retrieved passage is relevant.",
        line_plot(
            f"Share of queries with a relevant passage among their first neighbours, by rank: {recall[last]:.1%} at "
            f"rank {last}",
            [line],
            Axis("rank", low=0),
            Axis("share of queries", percent, low=0, high=1),
        ),
    )


def _agreement(agreement: Agreement) -> Figure:
    def steps(counted: Histogram, name: str, series: int) -> Line:
        total = max(1, sum(counted.counts))
        shares = [count / total for count in counted.counts]
        return Line(name, _middles(counted.edges), shares, series, look="area")

    return Figure(
        "Do the questions of one passage paraphrase each other?",
        MEANING,
        line_plot(
            f"Cosines of two questions: of one passage, mean {agreement.mean:.2f}, and of random pairs, mean "
            f"{agreement.random.mean:.2f}",
            [
                steps(agreement.random.histogram, "random pairs", 1),
                steps(agreement.histogram, "of one passage", 0),
            ],
            Axis("cosine of two questions"),
            Axis("share", percent, low=0),
        ),
    )


def _scores(by_rank: ScoresByRank) -> Figure:
    middles = _middles(by_rank.edges)
    lines = [
        Line(f"rank {rank}", middles, [count / max(1, sum(counts)) for count in counts], series, look="steps")
        for series, (rank, counts) in enumerate(by_rank.ranks.items())
    ]
    return Figure(
        "Scores of the edges by rank",
        "The dual-encoder's similarity. If the curves of the first and the last rank lie apart, a smaller k drops weak "
        "edges; if they overlap, the rank says little.",
        line_plot("Scores of the edges, by rank", lines, Axis("score"), Axis("share of queries", percent, low=0)),
    )


def _disk(files: Mapping[str, int]) -> Figure:
    total = in_bytes(sum(files.values()))
    rows = [(name, [(size, in_bytes(size))]) for name, size in files.items()]
    return Figure("Bytes on disk", f"{total} in all.", lying_bars(f"Bytes on disk by file, {total} in all", rows))


def _middles(edges: list[float]) -> list[float]:
    return [(low + high) / 2 for low, high in pairwise(edges)]
