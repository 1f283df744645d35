"""Values by query, as a table, and as a file in the form of ``trec_eval -q``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gnnretrieval.evaluation.measures import mean
from gnnretrieval.storage.artifacts import whole_file

Values = Mapping[str, Mapping[str, float]]


def format_values(values: Values) -> str:
    """A table of queries by measures × 100, from :func:`gnnretrieval.evaluation.measures.per_query`."""
    queries = list(next(iter(values.values())))
    width = max(map(len, ["query", *queries]))
    widths = [max(len(name), 5) for name in values]
    lines = ["  ".join(["query".ljust(width), *(name.rjust(wide) for name, wide in zip(values, widths, strict=True))])]
    for query in queries:
        cells = (f"{100 * by_query[query]:{wide}.1f}" for by_query, wide in zip(values.values(), widths, strict=True))
        lines.append("  ".join([query.ljust(width), *cells]))
    return "\n".join(lines)


def write_values(path: str | Path, values: Values) -> None:
    """Write one line per measure and query, separated by tabs: measure, query id, value. The query ``all`` is the mean.

    The file appears in one step. Values are between 0 and 1, with all digits.
    """
    means = mean(values)
    with whole_file(Path(path)) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        for query in next(iter(values.values())):
            file.writelines(f"{name}\t{query}\t{by_query[query]!r}\n" for name, by_query in values.items())
        file.writelines(f"{name}\tall\t{value!r}\n" for name, value in means.items())
