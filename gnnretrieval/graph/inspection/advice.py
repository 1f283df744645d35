"""Warnings about a graph: each names a figure and a remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gnnretrieval.graph.inspection.overlap import SplitOverlap
from gnnretrieval.graph.inspection.report import GraphReport

CROWDED = 15.0  # mean queries per passage above which passages turn into hubs
HUB = 50  # a hub has this many times the mean number of queries
# Share of the edges into the 1 % of the passages with most queries. In graphs of three real sets it is 0.05 to 0.10.
HUBS = 0.2
NEVER_FOUND = 0.5
LOW_CEILING = 0.5
PARAPHRASES = 0.5


class Gain(NamedTuple):
    """RR@10 x 100 that a measured set gained (benchmarks/results/same_labels.json).

    Attributes:
        over_encoder: Over its dual-encoder.
        over_best: Over the strongest dense baseline of the same labels.
        interval: 95 % bootstrap interval of ``over_best``, by question.
    """

    over_encoder: float
    over_best: float
    interval: tuple[float, float]


# Of measured sets with fewer paraphrases. Five sets are too few for an interval of what another set gains.
GAINED = {"squad-open": Gain(6.7, 0.9, (0.7, 1.2))}
GAINED_UNTAUGHT = {  # no relevant test passage has training questions
    "squad-open-by-passage": Gain(12.7, 0.4, (0.2, 0.6)),
    "fairytaleqa": Gain(10.0, 0.2, (-1.1, 1.5)),
}
FEW_SIBLINGS = 0.05  # share of the queries below which the agreement says little about the graph
NEAR_QUERIES = 0.1
NEAR_PASSAGES = 0.05
UNTAUGHT = 0.1


def warnings_of(figures: GraphReport) -> Iterator[str]:
    """Warnings from the figures of a graph."""
    yield from _of_degrees(figures)
    yield from _of_labels(figures)
    yield from _of_duplicates(figures)
    yield from _of_overlap(figures.overlap.splits)


def _of_degrees(figures: GraphReport) -> Iterator[str]:
    degrees = figures.queries_per_passage
    if degrees.mean > CROWDED:
        fitting = max(1, int(CROWDED * figures.passages / figures.queries))
        remedy = f"Try k = {fitting} (graph build --k)." if fitting < figures.k else "Build it from fewer queries."
        yield f"{degrees.mean:.1f} queries per passage: passages turn into hubs. {remedy}"
    if degrees.max > HUB * max(degrees.mean, 1):
        hub = figures.most_found[0]
        yield (
            f"{hub.queries:,} queries are joined to passage {hub.id}, {degrees.max / degrees.mean:.0f} times the "
            "mean: if its text is boilerplate, delete it."
        )
    if figures.passages >= 100 and degrees.edges_of_top_percent > HUBS:
        yield (
            f"The 1 % of the passages with most queries have {degrees.edges_of_top_percent:.0%} of the edges: they are "
            "hubs, which mix questions about many subjects. Use a smaller k, or fine-tune the dual-encoder."
        )
    if degrees.share_never_found > NEVER_FOUND:
        yield (
            f"{degrees.share_never_found:.0%} of the passages are joined to no query: they keep the dual-encoder's "
            "vector. More training queries, or a larger k, would reach more."
        )


def _of_labels(figures: GraphReport) -> Iterator[str]:
    recall, k, agreement = figures.labelled_passage_among_neighbours, figures.k, figures.agreement
    if not recall:
        yield "No query of the graph has a relevant passage: training is not possible. Add judgements."
    elif (ceiling := recall[str(k)]) < LOW_CEILING:
        yield (
            f"Only {ceiling:.0%} of the queries have their relevant passage among their {k} neighbours: "
            "the dual-encoder seldom finds it. Passages with training questions learn from these all the same; for the "
            "others a better dual-encoder, or a larger k, would help more than the graph."
        )
    if recall and (agreement is None or agreement.share_of_queries < FEW_SIBLINGS):
        share = 0.0 if agreement is None else agreement.share_of_queries
        yield (
            f"Only {share:.1%} of the queries have the same relevant passage as another query: what a passage learns "
            "comes from questions about other passages. Add questions about passages that have one (from a click log, "
            "or generated)."
        )
    elif agreement is not None and agreement.paraphrase < PARAPHRASES:
        measured = GAINED_UNTAUGHT if _untaught(figures.overlap.splits) else GAINED
        gains = "; ".join(
            f"{name} gained {gain.over_encoder:.1f} over its dual-encoder, and {gain.over_best:.1f} "
            f"({gain.interval[0]:.1f} to {gain.interval[1]:.1f})"
            for name, gain in measured.items()
        )
        yield (
            f"The questions of one passage agree by {agreement.paraphrase:.2f} (0: no more alike than any two, 1: the "
            "same), so old questions say little about a passage's next one. Of the measured sets most like this one, "
            f"{gains} over the strongest simple use of the same labels (RR@10 × 100, 95 % interval). Compare with "
            "gnnretrieval baselines; add rephrased questions, or split passages."
        )


def _of_duplicates(figures: GraphReport) -> Iterator[str]:
    near = figures.near_duplicates
    queries, passages = near.queries, near.passages
    if queries.share > NEAR_QUERIES:
        yield (
            f"{queries.share:.0%} of the queries have a near-duplicate (cosine {near.threshold:g} or more): when "
            "training masks one, the other stays in the graph, unless it has the same text, and gives the answer away. "
            "Merge them, or train with --mask-unit passage."
        )
    if passages.share > NEAR_PASSAGES:
        yield (
            f"{passages.share:.0%} of the retrieved passages have a near-duplicate in the same list (cosine "
            f"{near.threshold:g} or more); a copy without a label counts as wrong. Merge them, or label both."
        )


def _of_overlap(splits: Mapping[str, SplitOverlap]) -> Iterator[str]:
    for name, split in splits.items():
        if count := max(split.same_id, split.same_text):
            yield (
                f"Queries of {name} are in the graph, by id or text ({count:,} of {split.queries:,}): on these, "
                f"results measure memory. Remove them from {name} or from the graph's split."
            )
    if untaught := _untaught(splits):
        shares = ", ".join(f"{share:.0%} in {name}" for name, share in untaught.items())
        yield (
            f"Few relevant passages have training questions ({shares}): the graph moves them only by questions about "
            "other passages. If all future questions are about passages without training questions, train with "
            "--mask-unit mixed; part of the gain comes from ranking the other passages lower. If they are about both "
            "kinds, --passage-edges hard-negatives gains less, but also among passages of one kind."
        )


def _untaught(splits: Mapping[str, SplitOverlap]) -> dict[str, float]:
    """Splits with few relevant passages that have training questions, and the share of these."""
    return {
        name: split.share_with_training_questions
        for name, split in splits.items()
        if split.relevant_passages and split.share_with_training_questions < UNTAUGHT
    }
