"""The figures of a dataset as an offline page with plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gnnretrieval.data.inspection.problems import Problem
from gnnretrieval.data.inspection.quantiles import Bin, Distribution
from gnnretrieval.data.inspection.report import DatasetReport, FilesReport
from gnnretrieval.data.inspection.scan import FileFigures
from gnnretrieval.data.inspection.text import cut_in_words, near_copies_in_words, near_copy_rows, shown_grades
from gnnretrieval.data.inspection.text_figures import NamedText
from gnnretrieval.pages.html import Card, Figure, Html, figures, page, paragraph, section, short, table, tiles, warnings
from gnnretrieval.pages.plots import bar_plot


def page_of_files(found: FilesReport) -> str:
    """The page of the problems of files that cannot be opened."""
    said = "This dataset cannot be opened until its errors are corrected."
    return page(_title(found), said, _problems(found.problems))


def page_of(found: DatasetReport) -> str:
    """The page of the figures of a dataset."""
    return page(
        _title(found),
        f"{found.passages:,} passages, {found.queries:,} queries, splits: {', '.join(found.splits)}. "
        f"Hash {found.hash[:12]}.",
        warnings(found.warnings),
        tiles(_tiles(found)),
        figures(_plots(found)),
        *_tables(found),
        _problems(found.problems),
        _files(found.files),
    )


def _title(found: DatasetReport | FilesReport) -> str:
    return f"{found.name}: the dataset"


def _tiles(found: DatasetReport) -> Iterator[tuple[str, str]]:
    yield f"{found.words_per_passage.median:,}", "words per passage (median)"
    yield f"{found.words_per_query.median:,}", "words per query (median)"
    if found.tokens:
        for name, counted in (("passages", found.tokens.passages), ("queries", found.tokens.queries)):
            limit = "" if counted.limit is None else f" at {counted.limit:,} tokens"
            yield f"{counted.share_cut:.1%}", f"of {name} are truncated{limit}"
    asked = found.queries_per_passage
    yield f"{asked.mean:.2f}", f"questions per passage; at most {asked.max:,}"
    yield f"{asked.share_without:.1%}", "of passages relevant to no question"
    near = found.near_duplicates
    yield f"{found.duplicate_passages:,}", "passages repeat an earlier text"
    yield f"{near.passages.near:,}", "passages with a near-duplicate"
    yield f"{found.duplicate_queries:,}", "queries repeat an earlier text"
    yield f"{near.queries.near:,}", "queries with a near-duplicate"
    if found.test_passages_in_train_share is not None:
        yield f"{found.test_passages_in_train_share:.1%}", "of the relevant passages of test are relevant in train"


def _plots(found: DatasetReport) -> Iterator[Figure]:
    for what, words in (("passage", found.words_per_passage), ("query", found.words_per_query)):
        said = f"Median {words.median:,}, 95 % have at most {words.p95:,}."
        yield _histogram(f"Words per {what}", words, "words", said)
    if found.tokens:
        for what, its in (("passage", found.tokens.passages), ("query", found.tokens.queries)):
            said = f"As {found.tokens.encoder} reads them: {cut_in_words(its)}."
            yield _histogram(f"Tokens per {what}", its, "tokens", said, its.limit)
    asked = found.queries_per_passage
    yield _bars(
        "Questions per passage",
        asked.histogram,
        ("questions", "passages"),
        "Number of questions of all splits that a passage is relevant to, on a logarithmic scale:"
        f" {asked.share_without:.1%} of the passages are relevant to none.",
    )
    for name, split in found.splits.items():
        histogram = split.judgements_a_query.histogram
        yield _bars(f"Judgements per query, {name}", histogram, ("judgements", "queries"), "On a logarithmic scale.")


def _histogram(title: str, its: Distribution, unit: str, meaning: str, limit: int | None = None) -> Figure:
    """One bar per bin; bins with texts beyond the limit have another colour."""
    bins = its.histogram
    beyond = [int(limit is not None and bin_.last > limit) for bin_ in bins]
    if any(beyond):
        meaning += f" Bars in the second colour are beyond the limit of {limit:,}."
    counts = [bin_.count for bin_ in bins]
    return Figure(title, meaning, bar_plot(title, [*map(_range, bins)], counts, unit, "texts", series=beyond))


def _bars(title: str, bins: Sequence[Bin], units: tuple[str, str], meaning: str) -> Figure:
    counts = [bin_.count for bin_ in bins]
    return Figure(title, meaning, bar_plot(title, [*map(_range, bins)], counts, *units, log=True))


def _range(bin_: Bin) -> str:
    return f"{bin_.first:,}" if bin_.first == bin_.last else f"{bin_.first:,}-{bin_.last:,}"


def _tables(found: DatasetReport) -> Iterator[Card]:
    rows: list[Sequence[str]] = [
        (
            name,
            f"{split.queries:,}",
            f"{split.judgements:,}",
            f"{split.judgements_per_query:.2f}",
            f"{split.queries_without_relevant:,}",
            f"{split.relevant_passages:,}",
            shown_grades(split.grades),
        )
        for name, split in found.splits.items()
    ]
    head = ("split", "queries", "judgements", "per query", "without relevant", "relevant passages", "grades")
    yield section("Splits", table(head, rows, numbers=range(1, 6)))
    leaks = [
        (
            f"{pair.split} of {pair.of}",
            f"{pair.queries:,}",
            f"{pair.same_id:,}",
            f"{pair.same_text:,}",
            f"{pair.near:,}",
            f"{pair.relevant_passages:,}",
            f"{pair.share:.1%}",
        )
        for pair in found.leakage
    ]
    head = ("split", "queries", "same id", "same text", "near-duplicate", "relevant passages", "shared")
    yield section("Leakage: what a split shares with an earlier one", table(head, leaks, numbers=range(1, 7)))
    examples = [
        (f"{pair.split} of {pair.of}", f"{example.similarity:.2f}", *map(_side, example.pair))
        for pair in found.leakage
        for example in pair.examples
    ]
    if examples:
        named = ("split", "similarity", "question", "question of the earlier split")
        yield section("Equal and near-duplicate questions of two splits", table(named, examples, numbers=[1]))
    if found.near_copies:
        columns, copies = near_copy_rows(found.near_copies)
        said = paragraph("Words: Jaccard similarity of the words of both questions, without order.")
        title = f"Near copies: {near_copies_in_words(found.near_copies)}"
        yield section(title, said, table(columns, copies, numbers=range(2, len(columns))))
    near = found.near_duplicates
    for name, its in (("passages", near.passages), ("queries", near.queries)):
        pairs = [(*map(_side, example.pair), f"{example.similarity:.2f}") for example in its.examples]
        sample = f" in a sample of {its.of:,}" if its.compared < its.of else ""
        least = "" if its.is_whole else "at least "
        title = f"Near-duplicate {name}: {least}{its.near:,} of {its.compared:,}{sample}"
        meaning = f"Both texts share at least {near.threshold:.0%} of their words and pairs of words."
        yield section(title, paragraph(meaning), table(("one", "other", "similarity"), pairs, numbers=[2]))
    most = [(passage.id, f"{passage.queries:,}") for passage in found.queries_per_passage.most_asked]
    yield section("Passages with the most questions", table(("passage", "questions"), most, numbers=[1]))


def _side(side: NamedText) -> str:
    return f"{side.id}: {short(side.text)}"


def _problems(problems: Sequence[Problem]) -> Html:
    rows = [
        (
            problem.file if line.line is None else f"{problem.file}:{line.line}",
            line.says,
            problem.kind if not number else "",
            problem.severity if not number else "",
            f"{problem.count:,}" if not number else "",
        )
        for problem in problems
        for number, line in enumerate(problem.lines)
    ]
    meaning = "The first lines of each kind and file. A dataset with an error cannot be opened."
    head = ("place", "what is wrong", "kind", "severity", "lines")
    return section("Problems", paragraph(meaning), table(head, rows, numbers=[4]))


def _files(files: Mapping[str, FileFigures]) -> Html:
    rows: list[Sequence[str]] = [
        (
            name,
            f"{its.bytes:,}",
            f"{its.lines:,}",
            f"{its.not_ascii:,}",
            f"{its.windows_line_ends:,}",
            ", ".join(
                word for word, is_so in (("gzipped", its.gzipped), ("byte order mark", its.byte_order_mark)) if is_so
            ),
        )
        for name, its in files.items()
    ]
    head = ("file", "bytes", "lines", "not ASCII", "CR LF", "")
    return section("Files", table(head, rows, numbers=range(1, 5)))
