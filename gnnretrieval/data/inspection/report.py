"""The report of ``data inspect``."""

from __future__ import annotations

from gnnretrieval.data.inspection.leakage import Leakage, QueriesOfPassages, SplitFigures
from gnnretrieval.data.inspection.near_copies import NearCopies
from gnnretrieval.data.inspection.problems import Problem
from gnnretrieval.data.inspection.quantiles import Distribution
from gnnretrieval.data.inspection.scan import FileFigures
from gnnretrieval.data.inspection.text_figures import NearDuplicateTexts, Tokens
from gnnretrieval.pages.reports import Figures, Report


class Repeated(Figures):
    """Pairs of ids of equal texts, the earlier first."""

    passages: list[list[str]]
    queries: list[list[str]]


class NearDuplicatesOfBoth(Figures):
    """Near-duplicates among the passages and among the queries."""

    threshold: float
    """Least share of words and pairs of words that both texts have."""
    passages: NearDuplicateTexts
    queries: NearDuplicateTexts


class FilesReport(Report):
    """The files of a dataset directory that cannot be opened."""

    name: str
    files: dict[str, FileFigures]
    """By path in the directory."""
    problems: list[Problem]

    def to_text(self) -> str:
        """The problems as text."""
        from gnnretrieval.data.inspection.text import format_problems

        return format_problems(self)

    def to_html(self) -> str:
        """The problems as an HTML page that opens offline."""
        from gnnretrieval.data.inspection.page import page_of_files

        return page_of_files(self)


class DatasetReport(Report):
    """Figures, problems and warnings of a dataset (:meth:`gnnretrieval.data.dataset.Dataset.inspect`)."""

    name: str
    hash: str
    """SHA-256 of the contents."""
    passages: int
    queries: int
    files: dict[str, FileFigures]
    """By path in the directory."""
    words_per_passage: Distribution
    """Without the title."""
    long_passages_share: float
    """Share of passages of more than 200 words."""
    passages_without_title: int
    passages_without_text: int
    words_per_query: Distribution
    tokens: Tokens | None
    """None without a tokenizer."""
    duplicate_passages: int
    """Passages with the normalised text of an earlier one."""
    duplicate_queries: int
    """Queries with the normalised text of an earlier one."""
    duplicates: Repeated
    """Examples of these."""
    near_duplicates: NearDuplicatesOfBoth
    unjudged_queries: int
    queries_per_passage: QueriesOfPassages
    splits: dict[str, SplitFigures]
    """By name of the split."""
    leakage: list[Leakage]
    """Of each split and each earlier one."""
    near_copies: list[NearCopies]
    """Of each split but train."""
    shared_with_train: dict[str, int]
    """By split: queries with the normalised text of a train query."""
    test_passages_in_train_share: float | None
    """Share of the relevant passages of test that are relevant to a train query; None where either has none."""
    ids_with_whitespace: int
    problems: list[Problem]
    """Errors first, then in order of appearance."""
    warnings: list[str]
    """Sentences that say what to do."""

    def to_text(self) -> str:
        """The figures as text."""
        from gnnretrieval.data.inspection.text import format_inspection

        return format_inspection(self)

    def to_html(self) -> str:
        """The figures as an HTML page with tables and plots that opens offline, to write to a file."""
        from gnnretrieval.data.inspection.page import page_of

        return page_of(self)
