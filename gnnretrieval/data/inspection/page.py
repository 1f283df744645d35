"""The figures of a dataset as an offline page with plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gnnretrieval.data.inspection.leakage import Leakage, SplitFigures
from gnnretrieval.data.inspection.problems import Problem
from gnnretrieval.data.inspection.quantiles import Bin, Distribution
from gnnretrieval.data.inspection.report import DatasetReport, FilesReport
from gnnretrieval.data.inspection.scan import FileFigures
from gnnretrieval.data.inspection.text import cut_in_words, near_copies_in_words, near_copy_rows, shown_grades
from gnnretrieval.data.inspection.text_figures import NamedText, NearDuplicateTexts
from gnnretrieval.errors import counted
from gnnretrieval.pages.html import Card, Figure, Html, figures, page, paragraph, section, short, table, tiles, warnings
from gnnretrieval.pages.plots import bar_plot


def page_of_files(report: FilesReport) -> str:
    """The page of the problems of files that cannot be opened."""
    lead = "This dataset cannot be opened until its errors are corrected."
    return page(_title(report), lead, _problems(report.problems))


def page_of(report: DatasetReport) -> str:
    """The page of the figures of a dataset."""
    return page(
        _title(report),
        f"{counted(report.passages, 'passage')}, {counted(report.queries, 'query')}, "
        f"splits: {', '.join(report.splits)}. Hash {report.hash[:12]}.",
        warnings(report.warnings),
        tiles(_tiles(report)),
        figures(_plots(report)),
        *_tables(report),
        _problems(report.problems),
        _files(report.files),
    )


def _title(report: DatasetReport | FilesReport) -> str:
    return f"{report.name}: the dataset"


def _tiles(report: DatasetReport) -> Iterator[tuple[str, str]]:
    yield f"{report.words_per_passage.median:,}", "words per passage (median)"
    yield f"{report.words_per_query.median:,}", "words per query (median)"
    if report.tokens:
        for name, lengths in (("passages", report.tokens.passages), ("queries", report.tokens.queries)):
            limit = "" if lengths.limit is None else f" at {lengths.limit:,} tokens"
            yield f"{lengths.share_cut:.1%}", f"of {name} are truncated{limit}"
    per_passage = report.queries_per_passage
    yield f"{per_passage.mean:.2f}", f"questions per passage; at most {per_passage.max:,}"
    yield f"{per_passage.share_without:.1%}", "of passages relevant to no question"
    near = report.near_duplicates
    yield f"{report.duplicate_passages:,}", "passages repeat an earlier text"
    yield f"{near.passages.near:,}", "passages with a near-duplicate"
    yield f"{report.duplicate_queries:,}", "queries repeat an earlier text"
    yield f"{near.queries.near:,}", "queries with a near-duplicate"
    if report.test_passages_in_train_share is not None:
        yield f"{report.test_passages_in_train_share:.1%}", "of the relevant passages of test are relevant in train"


def _plots(report: DatasetReport) -> Iterator[Figure]:
    for what, words in (("passage", report.words_per_passage), ("query", report.words_per_query)):
        meaning = f"Median {words.median:,}, 95 % have at most {words.p95:,}."
        yield _histogram(f"Words per {what}", words, "words", meaning)
    if report.tokens:
        for what, tokens in (("passage", report.tokens.passages), ("query", report.tokens.queries)):
            meaning = f"As {report.tokens.encoder} reads them: {cut_in_words(tokens)}."
            yield _histogram(f"Tokens per {what}", tokens, "tokens", meaning, tokens.limit)
    per_passage = report.queries_per_passage
    yield _bars(
        "Questions per passage",
        per_passage.histogram,
        ("questions", "passages"),
        "Number of questions of all splits that a passage is relevant to, on a logarithmic scale:"
        f" {per_passage.share_without:.1%} of the passages are relevant to none.",
    )
    for name, split in report.splits.items():
        histogram = split.judgements_a_query.histogram
        yield _bars(f"Judgements per query, {name}", histogram, ("judgements", "queries"), "On a logarithmic scale.")


def _histogram(title: str, lengths: Distribution, unit: str, meaning: str, limit: int | None = None) -> Figure:
    """One bar per bin; bins with texts beyond the limit have another colour."""
    bins = lengths.histogram
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


def _tables(report: DatasetReport) -> Iterator[Card]:
    yield _splits(report.splits)
    yield from _leakage(report.leakage)
    if report.near_copies:
        columns, copies = near_copy_rows(report.near_copies)
        meaning = paragraph("Words: Jaccard similarity of the words of both questions, without order.")
        title = f"Near copies: {near_copies_in_words(report.near_copies)}"
        yield section(title, meaning, table(columns, copies, numbers=range(2, len(columns))))
    near = report.near_duplicates
    yield _near_duplicates("passages", near.passages, near.threshold)
    yield _near_duplicates("queries", near.queries, near.threshold)
    most = [(passage.id, f"{passage.queries:,}") for passage in report.queries_per_passage.most_asked]
    yield section("Passages with the most questions", table(("passage", "questions"), most, numbers=[1]))


def _splits(splits: Mapping[str, SplitFigures]) -> Card:
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
        for name, split in splits.items()
    ]
    head = ("split", "queries", "judgements", "per query", "without relevant", "relevant passages", "grades")
    return section("Splits", table(head, rows, numbers=range(1, 6)))


def _leakage(leakage: Sequence[Leakage]) -> Iterator[Card]:
    rows = [
        (
            f"{pair.split} of {pair.of}",
            f"{pair.queries:,}",
            f"{pair.same_id:,}",
            f"{pair.same_text:,}",
            f"{pair.near:,}",
            f"{pair.relevant_passages:,}",
            f"{pair.share:.1%}",
        )
        for pair in leakage
    ]
    head = ("split", "queries", "same id", "same text", "near-duplicate", "relevant passages", "shared")
    yield section("Leakage: what a split shares with an earlier one", table(head, rows, numbers=range(1, 7)))
    examples = [
        (f"{pair.split} of {pair.of}", f"{example.similarity:.2f}", *map(_side, example.pair))
        for pair in leakage
        for example in pair.examples
    ]
    if examples:
        named = ("split", "similarity", "question", "question of the earlier split")
        yield section("Equal and near-duplicate questions of two splits", table(named, examples, numbers=[1]))


def _near_duplicates(name: str, near: NearDuplicateTexts, threshold: float) -> Card:
    pairs = [(*map(_side, example.pair), f"{example.similarity:.2f}") for example in near.examples]
    sample = f" in a sample of {near.of:,}" if near.compared < near.of else ""
    least = "" if near.is_whole else "at least "
    title = f"Near-duplicate {name}: {least}{near.near:,} of {near.compared:,}{sample}"
    meaning = f"Both texts share at least {threshold:.0%} of their words and pairs of words."
    return section(title, paragraph(meaning), table(("one", "other", "similarity"), pairs, numbers=[2]))


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
            f"{file.bytes:,}",
            f"{file.lines:,}",
            f"{file.not_ascii:,}",
            f"{file.windows_line_ends:,}",
            ", ".join(
                word for word, is_so in (("gzipped", file.gzipped), ("byte order mark", file.byte_order_mark)) if is_so
            ),
        )
        for name, file in files.items()
    ]
    head = ("file", "bytes", "lines", "not ASCII", "CR LF", "")
    return section("Files", table(head, rows, numbers=range(1, 5)))
