"""The figures of a graph as one page with plots that opens offline: plotly's script is in it, and nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gnnretrieval import page
from gnnretrieval.graph.inspection_plots import plots_of
from gnnretrieval.graph.inspection_text import in_bytes


def write_page(figures: Mapping[str, Any], path: str | Path, name: str) -> None:
    """Write the figures of :func:`~gnnretrieval.graph.inspect.inspect_graph` as a :mod:`~gnnretrieval.page`.

    Args:
        figures: The figures.
        path: The file to write.
        name: What to call the graph in the title.

    Raises:
        GnnRetrievalError: no file can be written there.
    """
    page.write_page(page_of(figures, name), path)


def page_of(figures: Mapping[str, Any], name: str) -> str:
    """The page as text."""
    return page.page_of(
        f"{name}: the graph",
        name,
        f"{figures['passages']:,} passages, {figures['queries']:,} queries, k = {figures['k']}: "
        f"{figures['edges']:,} edges. {figures['dimension']} dimensions by {figures['encoder']}; edge features: "
        f"{', '.join(figures['edge_features']) or 'none'}.",
        plots_of(figures),
        above=page.warnings_list(figures["warnings"]) + page.tiles(_tiles(figures)),
        below="".join(_tables(figures)),
    )


def _tiles(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    degrees, recall = figures["queries_per_passage"], figures["labelled_passage_among_neighbours"]
    if recall:
        yield f"{recall[str(figures['k'])]:.1%}", f"of queries reach their passage within k = {figures['k']}"
    if figures["agreement"] is not None:
        yield f"{figures['agreement']['paraphrase']:.2f}", "paraphrase: 0 as any two questions, 1 the same"
    yield f"{degrees['mean']:.1f}", f"queries a passage; most {degrees['max']:,}"
    yield f"{degrees['share_never_found']:.1%}", "of passages found by no query"
    yield f"{figures['near_duplicates']['queries']['share']:.1%}", "of queries have a near-duplicate"
    yield f"{figures['near_duplicates']['passages']['share']:.1%}", "of found passages have a near-duplicate"
    yield in_bytes(figures["memory"]["training_batch"]), "to train against the batch's passages"
    yield in_bytes(figures["memory"]["training_corpus"]), "to train against all passages"
    yield in_bytes(figures["memory"]["embedding"]), "to embed every passage"


def _tables(figures: Mapping[str, Any]) -> Iterator[str]:
    found = [
        (f"{row['queries']:,}", row["id"], row["title"] if row["title"] != row["id"] else "", page.short(row["text"]))
        for row in figures["most_found"]
    ]
    yield page.table("Most-found passages", ("queries", "id", "title", "text"), found, numbers=1)
    near = figures["near_duplicates"]
    for what in ("queries", "passages"):
        rows = [
            (f"{example['cosine']:.3f}", *(f"{page.short(side['text'])}" for side in example["pair"]))
            for example in near[what]["examples"]
        ]
        title = f"Near-duplicate {what}: {near[what]['pairs']:,} pairs of cosine {near['threshold']:g} or more"
        yield page.table(title, ("cosine", "one", "other"), rows, numbers=1)
    if figures["agreement"] is not None:
        disagreeing = [
            (
                f"{row['agreement']:.3f}",
                str(row["questions"]),
                row["id"],
                *(page.short(side["text"]) for side in row["apart"]),
            )
            for row in figures["agreement"]["disagreeing"]
        ]
        named = ("agreement", "questions", "passage", "one question", "another")
        yield page.table("Passages whose questions disagree most", named, disagreeing, numbers=2)
    if figures["overlap"]["splits"]:
        splits = [
            (
                f"{split['queries']:,}",
                f"{split['same_id']:,}",
                f"{split['same_text']:,}",
                f"{split['relevant_passages']:,}",
                f"{split['share_with_training_questions']:.1%}",
                f"{split['share_never_found']:.1%}",
                name,
            )
            for name, split in figures["overlap"]["splits"].items()
        ]
        head = (
            "queries",
            "id in graph",
            "text in graph",
            "relevant passages",
            "with training questions",
            "never found",
        )
        yield page.table("Other splits and the graph", (*head, "split"), splits, numbers=6)
    else:
        why = figures["overlap"]["why"] or "the dataset has no other split"
        yield f"<section><h2>Other splits and the graph</h2><p>Not compared: {page.escape(why)}.</p></section>"
