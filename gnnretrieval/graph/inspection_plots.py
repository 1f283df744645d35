"""The plots of a graph's figures, without colours: the page gives them those of its scheme."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from gnnretrieval.graph.agreement import MEANING
from gnnretrieval.graph.inspection_text import in_bytes
from gnnretrieval.page import Plot, figure_of


def plots_of(figures: Mapping[str, Any]) -> list[Plot]:
    """The plots of the figures of :func:`~gnnretrieval.graph.inspect.inspect_graph`."""
    plots = [_degrees(figures["queries_per_passage"])]
    if figures["labelled_passage_among_neighbours"]:
        plots.append(_recall(figures["labelled_passage_among_neighbours"]))
    if figures["agreement"] is not None:
        plots.append(_agreement(figures["agreement"]))
    return [*plots, _scores(figures["scores"]["by_rank"]), _disk(figures["files"])]


def _degrees(degrees: Mapping[str, Any]) -> Plot:
    import plotly.graph_objects as go

    bins = degrees["histogram"]
    names = [str(bin_["from"]) if bin_["from"] == bin_["to"] else f"{bin_['from']}-{bin_['to']}" for bin_ in bins]
    bars = go.Bar(x=names, y=[bin_["passages"] for bin_ in bins], hovertemplate="%{y:,} passages<extra>%{x}</extra>")
    return Plot(
        "degrees",
        "Queries that found a passage",
        "Passages by the number of queries that found them, both on a logarithmic scale. A long tail to the right are "
        f"hubs: here the most-found 1 % hold {degrees['edges_of_top_percent']:.1%} of the edges.",
        figure_of(
            [bars],
            xaxis={"title": {"text": "queries"}, "type": "category"},
            yaxis={"title": {"text": "passages"}, "type": "log", "dtick": 1},
            bargap=0.15,
        ),
    )


def _recall(recall: Mapping[str, float]) -> Plot:
    import plotly.graph_objects as go

    line = go.Scatter(
        x=[int(rank) for rank in recall],
        y=list(recall.values()),
        mode="lines+markers" if len(recall) <= 40 else "lines",
        hovertemplate="%{y:.1%} within %{x}<extra></extra>",
    )
    return Plot(
        "recall",
        "Queries whose relevant passage is among their first neighbours",
        "Where the curve ends is the graph's ceiling: for the other queries no edge leads to what they ask for.",
        figure_of(
            [line],
            xaxis={"title": {"text": "rank"}, "rangemode": "tozero"},
            yaxis={"title": {"text": "share of queries"}, "tickformat": ".0%", "range": [0, 1.03]},
        ),
    )


def _agreement(agreement: Mapping[str, Any]) -> Plot:
    import plotly.graph_objects as go

    def bars(counted: Mapping[str, Any], name: str) -> Any:
        edges, counts = counted["edges"], counted["counts"]
        middles = [(low + high) / 2 for low, high in pairwise(edges)]
        total = max(1, sum(counts))
        return go.Bar(
            x=middles,
            y=[count / total for count in counts],
            name=name,
            opacity=0.75,
            hovertemplate="%{y:.1%} at cosine %{x:.2f}<extra>" + name + "</extra>",
        )

    return Plot(
        "agreement",
        "Do the questions of one passage paraphrase each other?",
        MEANING,
        figure_of(
            [bars(agreement["histogram"], "of one passage"), bars(agreement["random"]["histogram"], "random pairs")],
            barmode="overlay",
            bargap=0,
            xaxis={"title": {"text": "cosine of two questions"}},
            yaxis={"title": {"text": "share"}, "tickformat": ".0%"},
            legend={"orientation": "h", "y": 1.12, "x": 0},
        ),
    )


def _scores(by_rank: Mapping[str, Any]) -> Plot:
    import plotly.graph_objects as go

    edges = by_rank["edges"]
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    lines = [
        go.Scatter(
            x=middles,
            y=[count / max(1, sum(counts)) for count in counts],
            name=f"rank {rank}",
            mode="lines",
            line={"shape": "hvh"},
            hovertemplate="%{y:.1%} at %{x:.3f}<extra>rank " + rank + "</extra>",
        )
        for rank, counts in by_rank["ranks"].items()
    ]
    return Plot(
        "scores",
        "Scores of the edges by rank",
        "The dual-encoder's similarity. Where the curves of the first and the last rank lie apart, a smaller k drops "
        "weak edges; where they overlap, rank says little.",
        figure_of(
            lines,
            xaxis={"title": {"text": "score"}},
            yaxis={"title": {"text": "share of queries"}, "tickformat": ".0%", "rangemode": "tozero"},
            legend={"orientation": "h", "y": 1.12, "x": 0},
        ),
    )


def _disk(files: Mapping[str, int]) -> Plot:
    import plotly.graph_objects as go

    names = list(files)[::-1]
    bars = go.Bar(
        x=[files[name] for name in names],
        y=names,
        orientation="h",
        text=[in_bytes(files[name]) for name in names],
        textposition="auto",
        cliponaxis=False,
        hovertemplate="%{text}<extra>%{y}</extra>",
    )
    return Plot(
        "disk",
        "Bytes on disk",
        f"{in_bytes(sum(files.values()))} in all.",
        figure_of([bars], xaxis={"visible": False}, yaxis={"automargin": True}, bargap=0.3),
    )
