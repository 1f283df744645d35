"""Warnings about a dataset, from its figures: sentences that say what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gnnretrieval.data.inspection.leakage import Leakage, SplitFigures
from gnnretrieval.data.inspection.near_copies import ALIKE_WORDS, NearCopies
from gnnretrieval.data.inspection.problems import Problem
from gnnretrieval.data.inspection.report import DatasetReport
from gnnretrieval.data.inspection.text_figures import NearDuplicateTexts, Tokens
from gnnretrieval.errors import counted

LONG_PASSAGE = 200  # words: about 256 word pieces, where common encoders truncate
FEW_TEST_QUERIES = 100  # with fewer, the difference of two systems is seldom significant
NEAR_QUERIES = 0.01  # least share of a split's queries with near-duplicates in another split, for a warning
MUCH_OF_QUERIES = 0.01  # least share of truncated queries, for a warning
MANY_COPIES = 0.2  # share of a split's queries that are near copies of training questions; a warning above it
MUCH = 0.1  # least share of long passages, or of test passages seen in training, for a warning


def warnings_of(figures: DatasetReport) -> Iterator[str]:
    """The warnings of the figures of :func:`~gnnretrieval.data.inspection.inspect.inspect_dataset`."""
    yield from _of_missing_splits(figures.splits)
    yield from _of_judgements(figures)
    yield from _of_leakage(figures.leakage)
    yield from _of_near_copies(figures.near_copies)
    yield from _of_repeated_texts(figures)
    yield from _of_near_duplicates(figures.near_duplicates.passages)
    yield from _of_lengths(figures)
    if count := figures.ids_with_whitespace:
        yield f"Ids contain white space ({count:,}) and cannot be written to a TREC run: rename them."
    yield from _of_problems(figures.problems)


def _of_judgements(figures: DatasetReport) -> Iterator[str]:
    for name, split in figures.splits.items():
        if hopeless := split.queries_without_relevant:
            yield (
                f"Queries of {name} have no relevant passage ({_of(hopeless, split.queries)}) and score 0 with any"
                " system: delete their judgements, or judge more passages."
            )
        if below := split.negative_grades:
            yield (
                f"Judgements of {name} are below 0 ({_of(below, split.judgements)}) and count as not relevant:"
                " check that they mean this."
            )
    for name, count in figures.shared_with_train.items():
        if count:
            yield (
                f"Queries of {name} have the text of a train query ({_of(count, figures.splits[name].queries)}):"
                f" move them to train, or results on {name} measure memory."
            )
    share = figures.test_passages_in_train_share
    if share is not None and share >= MUCH:
        yield (
            f"Of the passages relevant in test, {share:.0%} are also relevant to a train query: report this with"
            " results, or split the judgements by passage to measure unseen passages."
        )


def _of_repeated_texts(figures: DatasetReport) -> Iterator[str]:
    if count := figures.duplicate_passages:
        yield (
            f"Passages repeat the text of an earlier one ({_of(count, figures.passages)}), and a retrieved copy"
            " without judgement counts as wrong: merge them, unless their titles tell them apart."
        )
    if count := figures.duplicate_queries:
        yield (
            f"Queries repeat the text of an earlier one ({_of(count, figures.queries)}), and no system can satisfy"
            " both if their relevant passages differ: merge them and their judgements."
        )


def _of_lengths(figures: DatasetReport) -> Iterator[str]:
    if 0 < (count := figures.passages_without_title) < figures.passages:
        yield (
            f"Some passages have no title ({_of(count, figures.passages)}): give titles to all, or compare systems"
            " without titles."
        )
    if figures.tokens:
        yield from _of_tokens(figures.tokens)
    elif figures.long_passages_share >= MUCH:
        yield (
            f"Of the passages, {figures.long_passages_share:.0%} have more than {LONG_PASSAGE} words, and encoders"
            " truncate texts at their maximum length: raise it, or split the passages."
        )


def _of_leakage(leakage: Sequence[Leakage]) -> Iterator[str]:
    for pair in leakage:
        name, of = pair.split, pair.of
        if pair.near and pair.near >= NEAR_QUERIES * pair.queries:
            yield (
                f"Queries of {name} are near-duplicates of one of {of} ({_of(pair.near, pair.queries)}): look at"
                f" the examples, and move queries with the same meaning to {of}."
            )
        if of != "train" and pair.same_text:
            yield (
                f"Queries of {name} have the text of one of {of} ({_of(pair.same_text, pair.queries)}): remove"
                f" them from one split, or settings chosen on {of} fit {name}."
            )


def _of_near_copies(copies: Sequence[NearCopies]) -> Iterator[str]:
    for copy in copies:
        share = copy.by_words.at_least[str(ALIKE_WORDS)]
        if share > MANY_COPIES:
            yield (
                f"Of the queries of {copy.split}, {share:.0%} share half of their words or more with a"
                f" {copy.of} query of the same passage, and a system that learns from queries can remember these:"
                " report gains with and without them."
            )


def _of_near_duplicates(near: NearDuplicateTexts) -> Iterator[str]:
    if near.share >= MUCH:
        yield (
            f"Of the passages, {near.share:.0%} are near-duplicates of another, and often only one of them is"
            " judged: merge passages with the same content, or judge both."
        )


def _of_tokens(tokens: Tokens) -> Iterator[str]:
    for name, lengths, least in (("passages", tokens.passages, MUCH), ("queries", tokens.queries, MUCH_OF_QUERIES)):
        if lengths.share_cut >= least:
            remedy = "raise --max-tokens if the encoder can, or split them" if name == "passages" else "shorten them"
            yield (
                f"Of the {name}, {lengths.share_cut:.0%} are truncated at {lengths.limit} tokens, and"
                f" {lengths.share_lost:.0%} of all tokens are never read: {remedy}."
            )


def _of_problems(problems: Sequence[Problem]) -> Iterator[str]:
    # Ids have their own warning.
    notices = [problem for problem in problems if not problem.is_error and problem.kind != "white space in an id"]
    if notices:
        kinds = ", ".join(dict.fromkeys(problem.kind for problem in notices))
        lines = sum(problem.count for problem in notices)
        yield f"Lines look wrong ({lines:,}: {kinds}): see them under Problems, and correct their source."


def _of_missing_splits(splits: Mapping[str, SplitFigures]) -> Iterator[str]:
    uses = {
        "train": "train a model on",
        "dev": "choose settings on (training holds out a quarter of train instead)",
        "test": "report results on",
    }
    for name, use in uses.items():
        if name not in splits:
            yield f"There is no {name} split to {use}: add judgements in {name}.tsv."
    if "test" in splits and splits["test"].queries < FEW_TEST_QUERIES:
        yield (
            f"The test split is too small to tell systems apart ({counted(splits['test'].queries, 'query')}):"
            f" judge at least {FEW_TEST_QUERIES}."
        )


def _of(count: int, total: int) -> str:
    return f"{count:,} of {total:,}"
