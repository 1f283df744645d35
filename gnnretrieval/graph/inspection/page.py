"""The figures of a graph as one HTML page with plots, which opens offline."""

from __future__ import annotations

from collections.abc import Iterator

from gnnretrieval.errors import counted
from gnnretrieval.graph.inspection.overlap import Overlap
from gnnretrieval.graph.inspection.plots import plots_of
from gnnretrieval.graph.inspection.report import GraphReport
from gnnretrieval.pages.html import Html, figures, page, paragraph, section, short, table, tiles, warnings
from gnnretrieval.pages.quantities import in_bytes


def page_of(report: GraphReport) -> str:
    """HTML page of the figures."""
    plots = section("Plots", figures(plots_of(report)))
    shown = (warnings(report.warnings), tiles(tiles_of(report)), plots, *_tables(report))
    return page(f"{report.path}: the graph", summary_of(report), *shown)


def summary_of(report: GraphReport) -> str:
    """Size, encoder and edge features of the graph, in a line."""
    return (
        f"{counted(report.passages, 'passage')}, {counted(report.queries, 'query')}, k = {report.k}: "
        f"{counted(report.edges, 'edge')}. {report.dimension} dimensions by {report.encoder}; edge features: "
        f"{', '.join(report.edge_features) or 'none'}."
    )


def tiles_of(report: GraphReport) -> Iterator[tuple[str, str]]:
    """The main figures, each with its meaning."""
    degrees, recall = report.queries_per_passage, report.labelled_passage_among_neighbours
    if recall:
        yield f"{recall[str(report.k)]:.1%}", f"of queries reach their passage within k = {report.k}"
    if report.agreement is not None:
        yield f"{report.agreement.paraphrase:.2f}", "paraphrase: 0 like any two questions, 1 the same"
    yield f"{degrees.mean:.1f}", f"queries per passage; at most {degrees.max:,}"
    yield f"{degrees.share_never_found:.1%}", "of passages joined to no query"
    yield f"{report.near_duplicates.queries.share:.1%}", "of queries have a near-duplicate"
    yield f"{report.near_duplicates.passages.share:.1%}", "of retrieved passages have a near-duplicate"
    yield in_bytes(report.memory.training_batch), "to train --layer gat against the batch's passages"
    yield in_bytes(report.memory.training_corpus), "to train --layer gat against all passages"
    yield in_bytes(report.memory.embedding), "to embed every passage by --layer gat"


def _tables(report: GraphReport) -> Iterator[Html]:
    most = [
        (row.id, f"{row.queries:,}", row.title if row.title != row.id else "", short(row.text))
        for row in report.most_found
    ]
    title = "Passages joined to most queries"
    yield section(title, table(("passage", "queries", "title", "text"), most, numbers=[1]))
    near = report.near_duplicates
    for what, pairs in (("queries", near.queries), ("passages", near.passages)):
        rows = [(f"{example.cosine:.3f}", *(short(side.text) for side in example.pair)) for example in pairs.examples]
        title = f"Near-duplicate {what}: {counted(pairs.pairs, 'pair')} of cosine {near.threshold:g} or more"
        yield section(title, table(("cosine", "one", "other"), rows, numbers=[0]))
    if report.agreement is not None:
        disagreeing = [
            (row.id, f"{row.agreement:.3f}", row.questions, *(short(side.text) for side in row.apart))
            for row in report.agreement.disagreeing
        ]
        named = ("passage", "agreement", "questions", "one question", "another")
        yield section("Passages whose questions disagree most", table(named, disagreeing, numbers=[1, 2]))
    yield section("Other splits and the graph", _overlap(report.overlap))


def _overlap(overlap: Overlap) -> Html:
    if not overlap.splits:
        return paragraph(f"Not compared: {overlap.why or 'the dataset has no other split'}.")
    rows = [
        (
            name,
            f"{split.queries:,}",
            f"{split.same_id:,}",
            f"{split.same_text:,}",
            f"{split.relevant_passages:,}",
            f"{split.share_with_training_questions:.1%}",
            f"{split.share_never_found:.1%}",
        )
        for name, split in overlap.splits.items()
    ]
    head = (
        "queries",
        "id in graph",
        "text in graph",
        "relevant passages",
        "with training questions",
        "joined to no query",
    )
    return table(("split", *head), rows, numbers=range(1, 7))
