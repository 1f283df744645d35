"""Every query's values: as a table, and as the file that ``trec_eval -q`` prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gnnretrieval.evaluation.measures import mean
from gnnretrieval.storage.artifacts import whole_file

Values = Mapping[str, Mapping[str, float]]


def format_values(values: Values) -> str:
    """Values × 100 of what :func:`gnnretrieval.evaluation.measures.per_query` gives: queries by measures."""
    queries = list(next(iter(values.values())))
    width = max(map(len, ["query", *queries]))
    widths = [max(len(name), 5) for name in values]
    lines = ["  ".join(["query".ljust(width), *(name.rjust(wide) for name, wide in zip(values, widths, strict=True))])]
    for query in queries:
        cells = (f"{100 * of[query]:{wide}.1f}" for of, wide in zip(values.values(), widths, strict=True))
        lines.append("  ".join([query.ljust(width), *cells]))
    return "\n".join(lines)


def write_values(path: str | Path, values: Values) -> None:
    """Write measure, query and value, a line each, separated by tabs, and each mean as the query ``all``.

    The file appears in one step. Values are between 0 and 1 and have every digit.
    """
    means = mean(values)
    with whole_file(Path(path)) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        for query in next(iter(values.values())):
            file.writelines(f"{name}\t{query}\t{of[query]!r}\n" for name, of in values.items())
        file.writelines(f"{name}\tall\t{value!r}\n" for name, value in means.items())
