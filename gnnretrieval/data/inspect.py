"""What is in a dataset, and what is wrong with it: figures, and warnings that say what to do."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.same_text import SeenTexts

LONG_PASSAGE = 200  # words: about the 256 word pieces after which common encoders cut a passage off
FEW_TEST_QUERIES = 100  # below this the difference of two systems is seldom significant
MUCH = 0.1  # share from which long passages, or test passages seen in training, are worth a warning


def inspect_dataset(dataset: Dataset) -> dict[str, Any]:
    """Figures about ``dataset``, as JSON values; shares are between 0 and 1, relevant is a relevance above 0.

    Returns:
        ``name``, ``hash``, ``passages``, ``queries``, ``unjudged_queries``; ``splits`` (by name: ``queries``,
        ``judgements``, ``judgements_per_query``, ``queries_without_relevant``, ``relevant_passages``);
        ``words_per_passage`` (title not counted) and ``words_per_query`` (``median``, ``p95``, ``max``);
        ``long_passages_share`` (over ``LONG_PASSAGE`` words); ``passages_without_title``; ``passages_without_text``;
        ``duplicate_passages`` and ``duplicate_queries`` (those whose normalised text an earlier one has);
        ``shared_with_train`` (by split: queries whose normalised text a train query has);
        ``test_passages_in_train_share`` (of the relevant passages of test, those relevant to a train query too; None
        where either split is missing); ``ids_with_whitespace``; ``warnings`` (sentences that say what to do).
    """
    figures: dict[str, Any] = {
        "name": dataset.name,
        "hash": dataset.hash,
        "passages": len(dataset.passage_ids),
        "queries": len(dataset.query_ids),
        **_of_passages(dataset),
        **_of_queries(dataset),
        **_of_splits(dataset),
        "ids_with_whitespace": sum(
            len(id_.split()) > 1 or id_ != id_.strip()
            for ids in (dataset.passage_ids, dataset.query_ids)
            for id_ in ids
        ),
    }
    return {**figures, "warnings": list(_warnings(figures))}


def _of_passages(dataset: Dataset) -> dict[str, Any]:
    words, texts, without_title = array("l"), SeenTexts(), 0
    for passage in dataset.passages():
        words.append(len(passage.text.split()))
        texts.add(passage.text or passage.title)
        without_title += not passage.title
    return {
        "words_per_passage": _spread(words),
        "long_passages_share": sum(count > LONG_PASSAGE for count in words) / len(words),
        "passages_without_title": without_title,
        "passages_without_text": sum(not count for count in words),
        "duplicate_passages": texts.repeated,
    }


def _of_queries(dataset: Dataset) -> dict[str, Any]:
    words, texts, text_of = array("l"), SeenTexts(), {}
    for query in dataset.queries():
        words.append(len(query.text.split()))
        text_of[query.id] = texts.add(query.text)
    judged = {split: dataset.split(split) for split in dataset.splits}
    trained_on = {text_of[query] for query in judged.get("train", ())}
    return {
        "unjudged_queries": len(text_of) - len(set().union(*judged.values())),
        "words_per_query": _spread(words),
        "duplicate_queries": texts.repeated,
        "shared_with_train": {
            split: sum(text_of[query] in trained_on for query in queries)
            for split, queries in judged.items()
            if split != "train"
        },
    }


def _of_splits(dataset: Dataset) -> dict[str, Any]:
    splits: dict[str, dict[str, float]] = {}
    relevant: dict[str, set[str]] = {}
    for name in dataset.splits:
        qrels = dataset.split(name)
        judgements = sum(map(len, qrels.values()))
        relevant[name] = {passage for judged in qrels.values() for passage, grade in judged.items() if grade > 0}
        splits[name] = {
            "queries": len(qrels),
            "judgements": judgements,
            "judgements_per_query": judgements / len(qrels),
            "queries_without_relevant": sum(max(judged.values()) <= 0 for judged in qrels.values()),
            "relevant_passages": len(relevant[name]),
        }
    test, train = relevant.get("test"), relevant.get("train")
    share = len(test & train) / len(test) if test and train else None
    return {"splits": splits, "test_passages_in_train_share": share}


def _spread(counts: array[int]) -> dict[str, int]:
    # Of whole words there is no fraction: each figure is one of the counts.
    median, p95 = np.percentile(np.asarray(counts), (50, 95), method="inverted_cdf")
    return {"median": int(median), "p95": int(p95), "max": max(counts)}


def _warnings(figures: Mapping[str, Any]) -> Iterator[str]:
    yield from _of_missing_splits(figures["splits"])
    for name, split in figures["splits"].items():
        if hopeless := split["queries_without_relevant"]:
            yield (
                f"Queries of {name} have no relevant passage ({_of(hopeless, split['queries'])}) and score 0 whatever"
                " the system: delete their judgements, or judge more passages."
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
    if 0 < (count := figures["passages_without_title"]) < figures["passages"]:
        yield (
            f"Some passages have no title ({_of(count, figures['passages'])}): give all of them one, or compare systems"
            " without titles."
        )
    if figures["long_passages_share"] >= MUCH:
        yield (
            f"Of the passages, {figures['long_passages_share']:.0%} have more than {LONG_PASSAGE} words, and encoders"
            " cut off what is beyond their maximum length: raise it, or split the passages."
        )
    if count := figures["ids_with_whitespace"]:
        yield f"Ids contain white space ({count:,}) and cannot be written to a TREC run: rename them."


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


def format_inspection(figures: Mapping[str, Any]) -> str:
    """The figures of :func:`inspect_dataset` as readable lines, without a line break at the end."""
    lines = [
        f"{figures['name']}  ({figures['hash'][:12]})",
        "",
        f"  passages  {figures['passages']:>11,}   {_words(figures['words_per_passage'])}",
        f"  queries   {figures['queries']:>11,}   {_words(figures['words_per_query'])},"
        f" {figures['unjudged_queries']:,} not judged",
        "",
        f"  {'split':<12}{'queries':>10}{'judgements':>12}{'per query':>11}{'relevant passages':>19}",
    ]
    lines += [
        f"  {name:<12}{split['queries']:>10,}{split['judgements']:>12,}{split['judgements_per_query']:>11.2f}"
        f"{split['relevant_passages']:>19,}"
        for name, split in figures["splits"].items()
    ]
    share = figures["test_passages_in_train_share"]
    shared = ", ".join(f"{count:,} of {name}" for name, count in figures["shared_with_train"].items())
    lines += [
        "",
        f"  passages without title   {figures['passages_without_title']:,}",
        f"  repeated passage texts   {figures['duplicate_passages']:,}",
        f"  repeated query texts     {figures['duplicate_queries']:,}",
        f"  query texts in train     {shared or 'no other split'}",
        f"  test passages in train   {'not known' if share is None else f'{share:.1%}'}",
        "",
        *(f"  ! {warning}" for warning in figures["warnings"]),
    ]
    return "\n".join(lines if figures["warnings"] else [*lines, "  No warnings."])


def _words(spread: Mapping[str, int]) -> str:
    return f"words: median {spread['median']:,}, p95 {spread['p95']:,}, max {spread['max']:,}"
