"""The figures of a dataset as an offline page with plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gnnretrieval.data.inspection.text import cut_in_words, near_copies_in_words, near_copy_rows, shown_grades
from gnnretrieval.pages.html import Card, Figure, Html, figures, page, paragraph, section, short, table, tiles, warnings
from gnnretrieval.pages.plots import bar_plot


def page_of(found: Mapping[str, Any]) -> str:
    """The page of the figures of :func:`~gnnretrieval.data.inspection.inspect.inspect_dataset`, or of
    :func:`~gnnretrieval.data.inspection.inspect.inspect_files`.
    """
    title = f"{found['name']}: the dataset"
    if "hash" not in found:
        said = "This dataset cannot be opened until its errors are corrected."
        return page(title, said, _problems(found["problems"]))
    return page(
        title,
        f"{found['passages']:,} passages, {found['queries']:,} queries, splits: {', '.join(found['splits'])}. "
        f"Hash {found['hash'][:12]}.",
        warnings(found["warnings"]),
        tiles(_tiles(found)),
        figures(_plots(found)),
        *_tables(found),
        _problems(found["problems"]),
        _files(found["files"]),
    )


def _tiles(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield f"{found['words_per_passage']['median']:,}", "words per passage (median)"
    yield f"{found['words_per_query']['median']:,}", "words per query (median)"
    if found["tokens"]:
        for name in ("passages", "queries"):
            counted = found["tokens"][name]
            limit = "" if counted["limit"] is None else f" at {counted['limit']:,} tokens"
            yield f"{counted['share_cut']:.1%}", f"of {name} are truncated{limit}"
    asked = found["queries_per_passage"]
    yield f"{asked['mean']:.2f}", f"questions per passage; at most {asked['max']:,}"
    yield f"{asked['share_without']:.1%}", "of passages relevant to no question"
    near = found["near_duplicates"]
    for name in ("passages", "queries"):
        yield f"{found[f'duplicate_{name}']:,}", f"{name} repeat an earlier text"
        yield f"{near[name]['near']:,}", f"{name} with a near-duplicate"
    if found["test_passages_in_train_share"] is not None:
        yield f"{found['test_passages_in_train_share']:.1%}", "of the relevant passages of test are relevant in train"


def _plots(found: Mapping[str, Any]) -> Iterator[Figure]:
    for name, what in (("words_per_passage", "passage"), ("words_per_query", "query")):
        its = found[name]
        said = f"Median {its['median']:,}, 95 % have at most {its['p95']:,}."
        yield _histogram(f"Words per {what}", its, "words", said)
    if found["tokens"]:
        for name, what in (("passages", "passage"), ("queries", "query")):
            its = found["tokens"][name]
            said = f"As {found['tokens']['encoder']} reads them: {cut_in_words(its)}."
            yield _histogram(f"Tokens per {what}", its, "tokens", said, its["limit"])
    asked = found["queries_per_passage"]
    yield _bars(
        "Questions per passage",
        asked["histogram"],
        ("questions", "passages"),
        "Number of questions of all splits that a passage is relevant to, on a logarithmic scale:"
        f" {asked['share_without']:.1%} of the passages are relevant to none.",
    )
    for name, split in found["splits"].items():
        histogram = split["judgements_a_query"]["histogram"]
        yield _bars(f"Judgements per query, {name}", histogram, ("judgements", "queries"), "On a logarithmic scale.")


def _histogram(title: str, its: Mapping[str, Any], unit: str, meaning: str, limit: int | None = None) -> Figure:
    """One bar per bin; bins with texts beyond the limit have another colour."""
    bins = its["histogram"]
    beyond = [int(limit is not None and bin_["to"] > limit) for bin_ in bins]
    if any(beyond):
        meaning += f" Bars in the second colour are beyond the limit of {limit:,}."
    counts = [bin_["count"] for bin_ in bins]
    return Figure(title, meaning, bar_plot(title, [*map(_range, bins)], counts, unit, "texts", series=beyond))


def _bars(title: str, bins: Sequence[Mapping[str, int]], units: tuple[str, str], meaning: str) -> Figure:
    counts = [bin_["count"] for bin_ in bins]
    return Figure(title, meaning, bar_plot(title, [*map(_range, bins)], counts, *units, log=True))


def _range(bin_: Mapping[str, int]) -> str:
    return f"{bin_['from']:,}" if bin_["from"] == bin_["to"] else f"{bin_['from']:,}-{bin_['to']:,}"


def _tables(found: Mapping[str, Any]) -> Iterator[Card]:
    rows: list[Sequence[str]] = [
        (
            name,
            f"{split['queries']:,}",
            f"{split['judgements']:,}",
            f"{split['judgements_per_query']:.2f}",
            f"{split['queries_without_relevant']:,}",
            f"{split['relevant_passages']:,}",
            shown_grades(split["grades"]),
        )
        for name, split in found["splits"].items()
    ]
    head = ("split", "queries", "judgements", "per query", "without relevant", "relevant passages", "grades")
    yield section("Splits", table(head, rows, numbers=range(1, 6)))
    leaks = [
        (
            f"{pair['split']} of {pair['of']}",
            f"{pair['queries']:,}",
            f"{pair['same_id']:,}",
            f"{pair['same_text']:,}",
            f"{pair['near']:,}",
            f"{pair['relevant_passages']:,}",
            f"{pair['share']:.1%}",
        )
        for pair in found["leakage"]
    ]
    head = ("split", "queries", "same id", "same text", "near-duplicate", "relevant passages", "shared")
    yield section("Leakage: what a split shares with an earlier one", table(head, leaks, numbers=range(1, 7)))
    examples = [
        (f"{pair['split']} of {pair['of']}", f"{example['similarity']:.2f}", *map(_side, example["pair"]))
        for pair in found["leakage"]
        for example in pair["examples"]
    ]
    if examples:
        named = ("split", "similarity", "question", "question of the earlier split")
        yield section("Equal and near-duplicate questions of two splits", table(named, examples, numbers=[1]))
    if found["near_copies"]:
        columns, copies = near_copy_rows(found["near_copies"])
        said = paragraph("Words: Jaccard similarity of the words of both questions, without order.")
        title = f"Near copies: {near_copies_in_words(found['near_copies'])}"
        yield section(title, said, table(columns, copies, numbers=range(2, len(columns))))
    near = found["near_duplicates"]
    for name in ("passages", "queries"):
        its = near[name]
        pairs = [(*map(_side, example["pair"]), f"{example['similarity']:.2f}") for example in its["examples"]]
        sample = f" in a sample of {its['of']:,}" if its["compared"] < its["of"] else ""
        least = "" if its["is_whole"] else "at least "
        title = f"Near-duplicate {name}: {least}{its['near']:,} of {its['compared']:,}{sample}"
        meaning = f"Both texts share at least {near['threshold']:.0%} of their words and pairs of words."
        yield section(title, paragraph(meaning), table(("one", "other", "similarity"), pairs, numbers=[2]))
    most = [(passage["id"], f"{passage['queries']:,}") for passage in found["queries_per_passage"]["most_asked"]]
    yield section("Passages with the most questions", table(("passage", "questions"), most, numbers=[1]))


def _side(side: Mapping[str, str]) -> str:
    return f"{side['id']}: {short(side['text'])}"


def _problems(problems: Sequence[Mapping[str, Any]]) -> Html:
    rows = [
        (
            problem["file"] if line["line"] is None else f"{problem['file']}:{line['line']}",
            line["says"],
            problem["kind"] if not number else "",
            problem["severity"] if not number else "",
            f"{problem['count']:,}" if not number else "",
        )
        for problem in problems
        for number, line in enumerate(problem["lines"])
    ]
    meaning = "The first lines of each kind and file. A dataset with an error cannot be opened."
    head = ("place", "what is wrong", "kind", "severity", "lines")
    return section("Problems", paragraph(meaning), table(head, rows, numbers=[4]))


def _files(files: Mapping[str, Mapping[str, Any]]) -> Html:
    rows: list[Sequence[str]] = [
        (
            name,
            f"{its['bytes']:,}",
            f"{its['lines']:,}",
            f"{its['not_ascii']:,}",
            f"{its['windows_line_ends']:,}",
            ", ".join(
                word
                for word, is_so in (("gzipped", its["gzipped"]), ("byte order mark", its["byte_order_mark"]))
                if is_so
            ),
        )
        for name, its in files.items()
    ]
    head = ("file", "bytes", "lines", "not ASCII", "CR LF", "")
    return section("Files", table(head, rows, numbers=range(1, 5)))
