"""What the figures of a dataset say should be changed: sentences, each with what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gnnretrieval.data.inspection.near_copies import ALIKE_WORDS

LONG_PASSAGE = 200  # words: about the 256 word pieces after which common encoders cut a passage off
FEW_TEST_QUERIES = 100  # below this the difference of two systems is seldom significant
NEAR_QUERIES = 0.01  # share of a split's queries from which near-duplicates in another are worth a warning
MUCH_OF_QUERIES = 0.01  # the same of queries that are cut
MANY_COPIES = 0.2  # share of a split's queries above which near copies of training questions are worth a warning
MUCH = 0.1  # share from which long passages, or test passages seen in training, are worth a warning


def warnings_of(figures: Mapping[str, Any]) -> Iterator[str]:
    """The warnings of the figures of :func:`~gnnretrieval.data.inspection.inspect.inspect_dataset`."""
    yield from _of_missing_splits(figures["splits"])
    for name, split in figures["splits"].items():
        if hopeless := split["queries_without_relevant"]:
            yield (
                f"Queries of {name} have no relevant passage ({_of(hopeless, split['queries'])}) and score 0 whatever"
                " the system: delete their judgements, or judge more passages."
            )
        if below := split["negative_grades"]:
            yield (
                f"Judgements of {name} are below 0 ({_of(below, split['judgements'])}), which count as not relevant:"
                " make sure that this is what they mean."
            )
    for name, count in figures["shared_with_train"].items():
        if count:
            yield (
                f"Queries of {name} have the text of a train query ({_of(count, figures['splits'][name]['queries'])}):"
                f" move them to train, or results on {name} measure memory."
            )
    share = figures["test_passages_in_train_share"]
    if share is not None and share >= MUCH:
        yield (
            f"Of the passages relevant in test, {share:.0%} are relevant to a train query too: say so beside results,"
            " and to measure unseen passages split the judgements by passage."
        )
    yield from _of_leakage(figures["leakage"])
    yield from _of_near_copies(figures["near_copies"])
    if count := figures["duplicate_passages"]:
        yield (
            f"Passages repeat the text of an earlier one ({_of(count, figures['passages'])}), and finding the copy that"
            " is not judged counts as wrong: merge them, unless their titles tell them apart."
        )
    if count := figures["duplicate_queries"]:
        yield (
            f"Queries repeat the text of an earlier one ({_of(count, figures['queries'])}), and where their relevant"
            " passages differ no system can satisfy both: merge them and their judgements."
        )
    yield from _of_near_duplicates(figures["near_duplicates"])
    if 0 < (count := figures["passages_without_title"]) < figures["passages"]:
        yield (
            f"Some passages have no title ({_of(count, figures['passages'])}): give all of them one, or compare systems"
            " without titles."
        )
    if figures["tokens"]:
        yield from _of_tokens(figures["tokens"])
    elif figures["long_passages_share"] >= MUCH:
        yield (
            f"Of the passages, {figures['long_passages_share']:.0%} have more than {LONG_PASSAGE} words, and encoders"
            " cut off what is beyond their maximum length: raise it, or split the passages."
        )
    if count := figures["ids_with_whitespace"]:
        yield f"Ids contain white space ({count:,}) and cannot be written to a TREC run: rename them."
    yield from _of_problems(figures["problems"])


def _of_leakage(leakage: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for pair in leakage:
        name, of = pair["split"], pair["of"]
        if pair["near"] and pair["near"] >= NEAR_QUERIES * pair["queries"]:
            yield (
                f"Queries of {name} are near-duplicates of one of {of} ({_of(pair['near'], pair['queries'])}): look at"
                f" the examples, and move those that ask the same to {of}."
            )
        if of != "train" and pair["same_text"]:
            yield (
                f"Queries of {name} have the text of one of {of} ({_of(pair['same_text'], pair['queries'])}): take them"
                f" out of one, or settings chosen on {of} know {name}."
            )


def _of_near_copies(copies: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for its in copies:
        share = its["by_words"]["at_least"][str(ALIKE_WORDS)]
        if share > MANY_COPIES:
            yield (
                f"Of the queries of {its['split']}, {share:.0%} have half of their words or more in common with a"
                f" {its['of']} query of the same passage, which a system that learns from queries can remember:"
                " report gains with and without them."
            )


def _of_near_duplicates(figures: Mapping[str, Any]) -> Iterator[str]:
    near = figures["passages"]
    if near["share"] >= MUCH:
        yield (
            f"Of the passages, {near['share']:.0%} are near-duplicates of another, of which often one alone is judged:"
            " merge those that say the same, or judge both."
        )


def _of_tokens(tokens: Mapping[str, Any]) -> Iterator[str]:
    for name, least in (("passages", MUCH), ("queries", MUCH_OF_QUERIES)):
        counted = tokens[name]
        if counted["share_cut"] >= least:
            remedy = "raise --max-tokens if the encoder can, or split them" if name == "passages" else "shorten them"
            yield (
                f"Of the {name}, {counted['share_cut']:.0%} are cut at {counted['limit']} tokens, and"
                f" {counted['share_lost']:.0%} of their tokens are never read: {remedy}."
            )


def _of_problems(problems: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    # Ids have their own warning.
    notices = [its for its in problems if its["severity"] == "notice" and its["kind"] != "white space in an id"]
    if notices:
        kinds = ", ".join(dict.fromkeys(problem["kind"] for problem in notices))
        lines = sum(problem["count"] for problem in notices)
        yield f"Lines look wrong ({lines:,}: {kinds}): look at them among the problems, and correct their source."


def _of_missing_splits(splits: Mapping[str, Any]) -> Iterator[str]:
    uses = {
        "train": "train a model on",
        "dev": "choose settings on (training holds out a tenth of train instead)",
        "test": "report results on",
    }
    for name, use in uses.items():
        if name not in splits:
            yield f"There is no {name} split, so nothing to {use}: add judgements in {name}.tsv."
    if "test" in splits and splits["test"]["queries"] < FEW_TEST_QUERIES:
        yield (
            f"The test split is too small to tell systems apart ({splits['test']['queries']} queries):"
            f" judge at least {FEW_TEST_QUERIES}."
        )


def _of(count: int, total: int) -> str:
    return f"{count:,} of {total:,}"
