"""The figures of a dataset as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gnnretrieval.data.inspection.near_copies import NearCopies
from gnnretrieval.data.inspection.problems import Problem
from gnnretrieval.data.inspection.quantiles import Spread
from gnnretrieval.data.inspection.report import DatasetReport, FilesReport
from gnnretrieval.data.inspection.text_figures import NearTextPair, TokenLengths, Tokens
from gnnretrieval.errors import counted

_LABEL = 25
_SHOWN = 84  # characters of an example's text


def format_problems(figures: FilesReport) -> str:
    """The problems of files that cannot be opened, without a line break at the end."""
    return "\n".join([figures.name, *_problems(figures.problems)])


def format_inspection(figures: DatasetReport) -> str:
    """The figures of a dataset as aligned lines, without a line break at the end."""
    return "\n".join(
        [
            f"{figures.name}  ({figures.hash[:12]})",
            "",
            f"  passages  {figures.passages:>11,}   {_words(figures.words_per_passage)}",
            f"  queries   {figures.queries:>11,}   {_words(figures.words_per_query)},"
            f" {figures.unjudged_queries:,} not judged",
            *_tokens(figures.tokens),
            *_judgements(figures),
            *_duplicates(figures),
            *_leakage(figures),
            *_near_copies(figures.near_copies),
            *_problems(figures.problems),
            *_warnings(figures.warnings),
        ]
    )


def shown_grades(grades: Mapping[str, int]) -> str:
    """Judgements by relevance as text: ``0: 12, 1: 3,400``."""
    return ", ".join(f"{grade}: {count:,}" for grade, count in grades.items())


def cut_in_words(lengths: TokenLengths) -> str:
    """How much an encoder truncates, as text."""
    if lengths.limit is None:
        return "none is truncated: the encoder has no limit"
    if not lengths.cut:
        return f"none is truncated at {lengths.limit:,}"
    lost = f"{lengths.share_lost:.1%} of all tokens are lost"
    return f"{lengths.share_cut:.1%} are truncated at {lengths.limit:,}, {lost}"


def near_copy_rows(copies: Sequence[NearCopies]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table of near copies, for at least one split; all columns but the first two are numbers."""
    head = ["split", "of", "queries", "passage shared", *_shares(copies[0])]
    rows = [
        [copy.split, copy.of, f"{copy.queries:,}", f"{copy.with_shared_passage:.1%}", *_shares(copy).values()]
        for copy in copies
    ]
    return head, rows


def _shares(copy: NearCopies) -> dict[str, str]:
    """Shares by their threshold, in words."""
    by_cosine = {} if copy.by_vectors is None else copy.by_vectors.at_least
    return {
        **{f"words ≥ {threshold}": f"{share:.1%}" for threshold, share in copy.by_words.at_least.items()},
        **{f"words < {threshold}": f"{share:.1%}" for threshold, share in copy.by_words.below.items()},
        **{f"cosine ≥ {threshold}": f"{share:.1%}" for threshold, share in by_cosine.items()},
    }


def near_copies_in_words(copies: Sequence[NearCopies]) -> str:
    """The title of the table of near copies."""
    by = copies[0].by_vectors
    return "questions by their similarity with a training question of the same passage" + (
        f" (cosine: by {by.encoder})" if by else ""
    )


def _line(label: str, value: str) -> str:
    return f"  {label:<{_LABEL}}{value}"


def _spread(spread: Spread) -> str:
    return f"median {spread.median:,}, p95 {spread.p95:,}, max {spread.max:,}"


def _words(spread: Spread) -> str:
    return f"words: {_spread(spread)}"


def _short(text: str) -> str:
    flat = "".join(sign if sign.isprintable() else " " for sign in " ".join(text.split()))
    return flat if len(flat) <= _SHOWN else flat[: _SHOWN - 1] + "…"


def _tokens(tokens: Tokens | None) -> Iterator[str]:
    if tokens is None:
        return
    yield f"\nTokens, as {tokens.encoder} reads them"
    for name, lengths in (("passages", tokens.passages), ("queries", tokens.queries)):
        sample = f" (a sample of {lengths.texts:,})" if lengths.texts < lengths.of else ""
        yield _line(name, f"{_spread(lengths)}; {cut_in_words(lengths)}{sample}")


def _judgements(figures: DatasetReport) -> Iterator[str]:
    yield ""
    yield f"  {'split':<12}{'queries':>10}{'judgements':>12}{'per query':>11}{'relevant passages':>19}   grades"
    for name, split in figures.splits.items():
        yield (
            f"  {name:<12}{split.queries:>10,}{split.judgements:>12,}{split.judgements_per_query:>11.2f}"
            f"{split.relevant_passages:>19,}   {shown_grades(split.grades)}"
        )
    yield ""
    for name, split in figures.splits.items():
        without = f"; {split.queries_without_relevant:,} have no relevant passage"
        spread = f"{name}: {_spread(split.judgements_a_query)}"
        label = "judgements per query" if name == next(iter(figures.splits)) else ""
        yield _line(label, spread + (without if split.queries_without_relevant else ""))
    per_passage = figures.queries_per_passage
    yield _line(
        "questions per passage", f"{_spread(per_passage)}; {per_passage.share_without:.1%} are relevant to none"
    )
    most = ", ".join(f"{_short(passage.id)} ({passage.queries:,})" for passage in per_passage.most_asked)
    yield _line("most questions", most or "none")
    yield _line("passages without title", f"{figures.passages_without_title:,}")
    yield _line("passages without text", f"{figures.passages_without_text:,}")


def _duplicates(figures: DatasetReport) -> Iterator[str]:
    near = figures.near_duplicates
    yield f"\nDuplicates (near: {near.threshold:.0%} of their words and pairs of words are shared)"
    for side, count, repeated in (
        ("passage", figures.duplicate_passages, figures.duplicates.passages),
        ("query", figures.duplicate_queries, figures.duplicates.queries),
    ):
        pairs = ", ".join(" = ".join(map(_short, pair)) for pair in repeated)
        yield _line(f"repeated {side} texts", f"{count:,}" + (f"   {pairs}" if pairs else ""))
    for name, texts in (("passages", near.passages), ("queries", near.queries)):
        sample = f", a sample of {texts.of:,}" if texts.compared < texts.of else ""
        least = "" if texts.is_whole else "at least "
        yield _line(
            f"near-duplicate {name}",
            f"{least}{texts.near:,} of {texts.compared:,}{sample} ({texts.share:.1%})"
            + (f", in {counted(texts.pairs, 'pair')}" if texts.pairs else ""),
        )
        yield from _examples(texts.examples)


def _examples(examples: Sequence[NearTextPair]) -> Iterator[str]:
    for example in examples:
        for number, side in enumerate(example.pair):
            alike = "" if number else f"{example.similarity:.2f}"
            yield f"    {alike:<6}{_short(side.id)}  {_short(side.text)}"


def _leakage(figures: DatasetReport) -> Iterator[str]:
    yield "\nLeakage: what a split shares with an earlier one"
    if not figures.leakage:
        yield _line("", "there is one split")
    else:
        yield (
            f"  {'split':<12}{'of':<12}{'queries':>10}{'same id':>9}{'same text':>11}{'near':>8}"
            f"{'relevant passages':>19}{'shared':>9}"
        )
    for pair in figures.leakage:
        yield (
            f"  {pair.split:<12}{pair.of:<12}{pair.queries:>10,}{pair.same_id:>9,}{pair.same_text:>11,}"
            f"{pair.near:>8,}{pair.relevant_passages:>19,}{pair.share:>9.1%}"
        )
        yield from _examples(pair.examples)
    share = figures.test_passages_in_train_share
    shared = ", ".join(f"{count:,} of {name}" for name, count in figures.shared_with_train.items())
    yield _line("query texts in train", shared or "no other split")
    yield _line("test passages in train", "not known" if share is None else f"{share:.1%}")


def _near_copies(copies: Sequence[NearCopies]) -> Iterator[str]:
    if not copies:
        return
    yield f"\nNear copies: {near_copies_in_words(copies)}"
    head, rows = near_copy_rows(copies)
    for row in (head, *rows):
        numbers = (f"{value:>{len(name) + 3}}" for name, value in zip(head[2:], row[2:], strict=True))
        yield f"  {row[0]:<12}{row[1]:<12}{''.join(numbers)}"


def _problems(problems: Sequence[Problem]) -> Iterator[str]:
    yield "\nProblems"
    if not problems:
        yield _line("", "none")
    for problem in problems:
        severity = "error: " if problem.is_error else ""
        of_file = problem.lines[0].line is None
        lines = "" if of_file else f", {counted(problem.count, 'line')}"
        yield f"  {severity}{problem.kind} in {problem.file}{lines}"
        for line in problem.lines:
            place = problem.file if line.line is None else f"{problem.file}:{line.line}"
            yield f"    {place}: {line.says}"
        if more := problem.count - len(problem.lines):
            yield f"    … and {more:,} more"


def _warnings(warnings: Sequence[str]) -> Iterator[str]:
    yield ""
    if not warnings:
        yield "  No warnings."
    yield from (f"  ! {warning}" for warning in warnings)
