"""Warnings about a graph: each says what was found and what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

CROWDED = 15.0  # queries a passage above which a graph's passages turn into hubs
HUB = 50  # times the mean number of queries
# Share of the edges held by the most-found 1 % of the passages. Graphs of three real sets hold 0.05 to 0.10 there.
HUBS = 0.2
NEVER_FOUND = 0.5
LOW_CEILING = 0.5
# With MiniLM and the same training, the docstring corpus has 0.60 and gains 16 points of RR@10 by the graph; SQuAD 0.43
# gains 3, fairytale questions 0.34 and 1 among passages alike (docs/when-a-graph-helps.md). Three sets: a hint, no law.
PARAPHRASES = 0.5
FEW_SIBLINGS = 0.05  # share of the queries below which agreement says little about the graph
NEAR_QUERIES = 0.1
NEAR_PASSAGES = 0.05
UNTAUGHT = 0.1


def warnings_of(figures: Mapping[str, Any]) -> Iterator[str]:
    """Warnings from the figures of :func:`~gnnretrieval.graph.inspection.inspect.inspect_graph`."""
    yield from _of_degrees(figures)
    yield from _of_labels(figures)
    yield from _of_duplicates(figures)
    yield from _of_overlap(figures["overlap"]["splits"])


def _of_degrees(figures: Mapping[str, Any]) -> Iterator[str]:
    degrees = figures["queries_per_passage"]
    if degrees["mean"] > CROWDED:
        fitting = max(1, int(CROWDED * figures["passages"] / figures["queries"]))
        remedy = f"Try k = {fitting} (graph build --k)." if fitting < figures["k"] else "Build it from fewer queries."
        yield f"{degrees['mean']:.1f} queries a passage: passages turn into hubs. {remedy}"
    if degrees["max"] > HUB * max(degrees["mean"], 1):
        hub = figures["most_found"][0]
        yield (
            f"Passage {hub['id']} was found by {hub['queries']:,} queries, {degrees['max'] / degrees['mean']:.0f} "
            "times the mean: if its text is boilerplate, delete it."
        )
    if figures["passages"] >= 100 and degrees["edges_of_top_percent"] > HUBS:
        yield (
            f"The most-found 1 % of the passages hold {degrees['edges_of_top_percent']:.0%} of the edges: hubs, which "
            "mix questions of many subjects. Use a smaller k, or fine-tune the dual-encoder."
        )
    if degrees["share_never_found"] > NEVER_FOUND:
        yield (
            f"{degrees['share_never_found']:.0%} of the passages were found by no query: they stay as the "
            "dual-encoder has them. More training queries, or a larger k, would reach more."
        )


def _of_labels(figures: Mapping[str, Any]) -> Iterator[str]:
    recall, k, agreement = figures["labelled_passage_among_neighbours"], figures["k"], figures["agreement"]
    if not recall:
        yield "No query of the graph has a labelled passage: nothing can be trained over it. Add judgements."
    elif (ceiling := recall[str(k)]) < LOW_CEILING:
        yield (
            f"Only {ceiling:.0%} of the queries have their relevant passage among their {k} neighbours: "
            "a better dual-encoder, or a larger k, would help more than the graph."
        )
    if recall and (agreement is None or agreement["share_of_queries"] < FEW_SIBLINGS):
        share = 0.0 if agreement is None else agreement["share_of_queries"]
        yield (
            f"{share:.1%} of the queries share their passage with another one: a passage hears of its next question "
            "from strangers' questions alone. Add questions about passages that have one (a click log, generated ones)."
        )
    elif agreement is not None and agreement["paraphrase"] < PARAPHRASES:
        yield (
            f"Too few paraphrases: the questions of one passage agree by {agreement['paraphrase']:.2f} (0 as any two, "
            f"1 the same; below {PARAPHRASES:g} a graph told little about a passage's next question). Keep small "
            "context scales among the choices, add rephrased questions, or split passages into shorter ones."
        )


def _of_duplicates(figures: Mapping[str, Any]) -> Iterator[str]:
    near = figures["near_duplicates"]
    queries, passages = near["queries"], near["passages"]
    if queries["share"] > NEAR_QUERIES:
        yield (
            f"{queries['share']:.0%} of the queries have a near-duplicate (cosine {near['threshold']:g} or more): the "
            "twin of a masked query stays in the graph and gives its answer away. Merge them, or train with "
            "--mask-unit passage."
        )
    if passages["share"] > NEAR_PASSAGES:
        yield (
            f"{passages['share']:.0%} of the passages that were found have a near-duplicate beside them (cosine "
            f"{near['threshold']:g} or more), and an unlabelled copy counts as wrong: merge them, or label both."
        )


def _of_overlap(splits: Mapping[str, Any]) -> Iterator[str]:
    for name, split in splits.items():
        if count := max(split["same_id"], split["same_text"]):
            yield (
                f"Queries of {name} are in the graph, by id or text ({count:,} of {split['queries']:,}): results on "
                f"{name} measure memory on them. Take them out of one of the two."
            )
    untaught = {
        name: split["share_with_training_questions"]
        for name, split in splits.items()
        if split["relevant_passages"] and split["share_with_training_questions"] < UNTAUGHT
    }
    if untaught:
        shares = ", ".join(f"{share:.0%} of those of {name}" for name, share in untaught.items())
        yield (
            f"Hardly any passage that is asked for has a training question of its own ({shares}): the graph moves "
            "them by strangers' questions alone. If all questions to come are about such passages, train with "
            "--mask-unit mixed; part of the gain is other passages being put lower. If they are about both kinds, "
            "--passage-edges hard-negatives gains less, and gains it among passages of one kind too."
        )
