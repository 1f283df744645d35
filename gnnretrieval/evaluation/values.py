"""Values by query, as a table, and as a file in the form of ``trec_eval -q``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gnnretrieval.evaluation.measures import mean
from gnnretrieval.pages.text_table import in_columns
from gnnretrieval.storage.artifacts import whole_file

Values = Mapping[str, Mapping[str, float]]


def format_values(values: Values) -> str:
    """A table of queries by measures × 100, from :func:`gnnretrieval.evaluation.measures.per_query`."""
    queries = next(iter(values.values()))
    cells = [[query, *(f"{100 * by_query[query]:5.1f}" for by_query in values.values())] for query in queries]
    return "\n".join(in_columns([["query", *values], *cells]))


def write_values(path: str | Path, values: Values) -> None:
    """Write one line per measure and query, separated by tabs: measure, query id, value. The query ``all`` is the mean.

    The file appears in one step. Values are between 0 and 1, with all digits.
    """
    means = mean(values)
    with whole_file(Path(path)) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        for query in next(iter(values.values())):
            file.writelines(f"{name}\t{query}\t{by_query[query]!r}\n" for name, by_query in values.items())
        file.writelines(f"{name}\tall\t{value!r}\n" for name, value in means.items())
