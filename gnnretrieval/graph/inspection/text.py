"""The figures of a graph as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from gnnretrieval.errors import counted
from gnnretrieval.graph.inspection.agreement import Agreement
from gnnretrieval.graph.inspection.connectivity import PERCENTILES, Percentiles
from gnnretrieval.graph.inspection.near_duplicates import NearDuplicates
from gnnretrieval.graph.inspection.overlap import Overlap
from gnnretrieval.graph.inspection.report import GraphReport
from gnnretrieval.pages.html import short
from gnnretrieval.pages.quantities import in_bytes

_WIDTH = 100
_LABEL = 26
_SHOWN = 60  # characters of an example's text


def format_graph(figures: GraphReport) -> str:
    """Aligned lines of the figures of a graph, warnings last."""
    return "\n".join(
        [
            f"{counted(figures.passages, 'passage')}, {counted(figures.queries, 'query')}, k = {figures.k}: "
            f"{counted(figures.edges, 'edge')}",
            f"{figures.dimension} dimensions by {figures.encoder}; edge features: "
            f"{', '.join(figures.edge_features) or 'none'}",
            *_connectivity(figures),
            *_agreement(figures.agreement),
            *_duplicates(figures.near_duplicates),
            *_overlap(figures.overlap),
            *_bytes(figures),
            *_warnings(figures.warnings),
        ]
    )


def shown_ranks(recall: Mapping[str, float]) -> dict[str, float]:
    """Recall of at most twelve ranks, with the first and the last."""
    ranks = [int(rank) for rank in recall]
    if len(ranks) > 12:
        ranks = sorted({1, 2, 3, 5, 10, ranks[-1], *(rank for rank in (15, 20, 25, 50, 100, 200) if rank in ranks)})
    return {str(rank): recall[str(rank)] for rank in ranks}


def _line(label: str, value: str) -> str:
    return f"  {label:<{_LABEL}}{value}"


def _spread(values: Percentiles, form: str) -> str:
    return ", ".join(f"p{percent} {getattr(values, f'p{percent}'):{form}}" for percent in PERCENTILES)


def _connectivity(figures: GraphReport) -> Iterator[str]:
    degrees, recall = figures.queries_per_passage, shown_ranks(figures.labelled_passage_among_neighbours)
    yield "\nEdges"
    yield _line("queries per passage", f"mean {degrees.mean:.1f}, {_spread(degrees, '.0f')}, max {degrees.max:,}")
    yield _line("joined to no query", f"{degrees.share_never_found:.1%} of the passages")
    yield _line("1 % with most queries", f"have {degrees.edges_of_top_percent:.1%} of the edges")
    for number, passage in enumerate(figures.most_found):
        yield _line(
            "" if number else "most queries",
            f"{passage.queries:>7,}  {_named(passage.id, passage.title or passage.text)}",
        )
    yield _line("scores", _spread(figures.scores, ".3f"))
    yield "\nQueries with a relevant passage among their first neighbours (the last is the graph's recall ceiling)"
    if not recall:
        yield _line("", "no query has a label")
        return
    width = max(len(rank) for rank in recall) + 3
    yield _line("rank", "".join(f"{rank:>{max(width, 7)}}" for rank in recall))
    yield _line(
        f"of {figures.labelled_queries:,} queries", "".join(f"{s:>{max(width, 7)}.1%}" for s in recall.values())
    )


def _named(id_: str, title: str) -> str:
    title = short(title, _SHOWN)
    return id_ if id_ == title else f"{id_}  {title}"


def _agreement(figures: Agreement | None) -> Iterator[str]:
    yield "\nDo the questions of one passage paraphrase each other?"
    if figures is None:
        yield _line("", "not known: no passage has two labelled questions")
        return
    yield _line(
        "paraphrase", f"{figures.paraphrase:.2f}   (0: no more alike than any two questions, 1: the same question)"
    )
    yield _line("cosine, same passage", f"mean {figures.mean:.3f}, {_spread(figures, '.2f')}")
    yield _line("cosine, random pairs", f"mean {figures.random.mean:.3f}, {_spread(figures.random, '.2f')}")
    over = f"{counted(figures.passages, 'passage')} with two questions or more"
    if figures.passages < figures.passages_in_all:
        over += f", sampled from {figures.passages_in_all:,}"
    yield _line("counted over", f"{over}; {figures.share_of_queries:.1%} of the queries")
    for line in textwrap.wrap(figures.meaning, _WIDTH):
        yield f"  {line}"
    for number, passage in enumerate(figures.disagreeing):
        yield _line(
            "" if number else "disagree most",
            f"{passage.agreement:>6.3f}  {_named(passage.id, passage.title)} ({passage.questions} questions)",
        )
        yield from (_line("", f"        {short(query.text, 90)}") for query in passage.apart)


def _duplicates(figures: NearDuplicates) -> Iterator[str]:
    yield f"\nNear-duplicates (cosine {figures.threshold:g} or more)"
    for name, near in (("queries", figures.queries), ("passages", figures.passages)):
        retrieved = "" if name == "queries" else " retrieved"
        sample = f" in a sample; {near.of:,} in all" if near.compared < near.of else ""
        yield _line(
            name,
            f"{near.near:,} of {near.compared:,}{retrieved} ({near.share:.1%}){sample}: "
            f"{counted(near.pairs, 'pair')}, {near.same_text:,} with the same text",
        )
        for example in near.examples:
            for number, side in enumerate(example.pair):
                cosine = f"{example.cosine:>6.3f}" if not number else " " * 6
                yield _line("", f"{cosine}  {short(side.text, 90)}")


def _overlap(figures: Overlap) -> Iterator[str]:
    yield "\nOther splits and the graph"
    if not figures.splits:
        yield _line("", f"not compared: {figures.why or 'the dataset has no other split'}")
        return
    yield (
        f"  {'split':<12}{'queries':>9}{'same id':>9}{'same text':>11}{'relevant passages':>19}"
        f"{'with training questions':>25}{'joined to no query':>20}"
    )
    for name, split in figures.splits.items():
        yield (
            f"  {name:<12}{split.queries:>9,}{split.same_id:>9,}{split.same_text:>11,}"
            f"{split.relevant_passages:>19,}{split.share_with_training_questions:>25.1%}"
            f"{split.share_never_found:>20.1%}"
        )


def _bytes(figures: GraphReport) -> Iterator[str]:
    yield "\nBytes"
    yield _line("on disk", in_bytes(figures.bytes_on_disk))
    for name, count in figures.files.items():
        yield _line("", f"{in_bytes(count):>10}  {name}")
    memory = figures.memory
    yield _line(
        "memory of --layer gat",
        f"{in_bytes(memory.training_corpus)} to train against all passages (--candidates corpus), or",
    )
    yield _line("", f"{in_bytes(memory.training_batch)} against the batch's (--candidates batch);")
    yield _line("", f"{in_bytes(memory.embedding)} to embed")
    yield _line("of the default layer", "see gnnretrieval train --dry-run")


def _warnings(warnings: list[str]) -> Iterator[str]:
    yield ""
    if not warnings:
        yield "No warnings."
    for warning in warnings:
        yield from textwrap.wrap(f"Warning: {warning}", _WIDTH + 12, subsequent_indent="  ")
