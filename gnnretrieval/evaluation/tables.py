"""A comparison as a table in plain text, Markdown, LaTeX, CSV and HTML."""

from __future__ import annotations

import csv
import io
import math

from gnnretrieval.errors import counted
from gnnretrieval.evaluation.compare import Comparison, Difference
from gnnretrieval.pages.html import Html, element, join, paragraph, table
from gnnretrieval.pages.text_table import in_columns

MARKS = ((0.01, "‡"), (0.05, "†"))  # Holm-corrected p below the first, strictest first
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {sign: f"\\{sign}" for sign in "&%$#_{}"}


def format_comparison(comparison: Comparison) -> str:
    """The comparison as a plain-text table: systems by measures × 100, with a legend below."""
    cells = _cells(comparison, best="{}*", other="{} ")
    header, *rows = in_columns(cells)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    table = [header, "-" * (sum(widths) + 2 * (len(widths) - 1)), *rows]
    return "\n".join([_caption(comparison), "", *table, "", *_legend(comparison, "* highest of its column.")])


def markdown_comparison(comparison: Comparison) -> str:
    """The comparison as a Markdown table, with the same legend below."""
    escaped = [
        [cell.strip().replace("|", "\\|") for cell in row] for row in _cells(comparison, best="**{}**", other="{}")
    ]
    rules = ["---", *["---:"] * (len(escaped[0]) - 1)]
    table = ["| " + " | ".join(row) + " |" for row in (escaped[0], rules, *escaped[1:])]
    legend = " ".join(_legend(comparison, "Bold: highest of its column."))
    return "\n".join([_caption(comparison), "", *table, "", legend])


def _cells(comparison: Comparison, best: str, other: str) -> list[list[str]]:
    """Header and rows; header cells are padded like the others, so that right-aligned columns line up."""
    first = comparison.measure_names[0]
    rows = [["", *(other.format(name) + " " for name in comparison.measure_names)]]
    if comparison.tests:
        rows[0] += [f"Δ {first}", "W/T/L"]
    for system in comparison.systems:
        row = [system.name]
        for measure, value in system.measures.items():
            form = best if _is_highest(comparison, measure, value) else other
            row.append(form.format(f"{100 * value:.1f}") + _mark(comparison.test(system.name, measure)))
        if comparison.tests:
            test = comparison.test(system.name, first)
            row += [f"{100 * test.difference:+.1f}", f"{test.wins}/{test.ties}/{test.losses}"] if test else ["–", "–"]
        rows.append(row)
    return rows


def _is_highest(comparison: Comparison, measure: str, value: float) -> bool:
    values = [system.measures[measure] for system in comparison.systems]
    return len(values) > 1 and math.isclose(value, max(values), rel_tol=1e-12)


def _mark(test: Difference | None) -> str:
    return next((mark for level, mark in MARKS if test and test.p_holm < level), " ")


def _caption(comparison: Comparison) -> str:
    return f"{comparison.split}: {counted(comparison.queries, 'query')}, measures × 100"


def _legend(comparison: Comparison, best: str) -> list[str]:
    if not comparison.tests:
        return [best] if len(comparison.systems) > 1 else []
    levels = ", ".join(f"{mark} p < {level}" for level, mark in reversed(MARKS))
    family = f"over the {len(comparison.tests)} tests here" if len(comparison.tests) > 1 else "(a single test here)"
    return [
        best,
        f"{levels}: differs from {comparison.baseline}, two-sided paired t-test, Holm's correction {family}.",
        f"Δ and W/T/L (queries won, tied, lost): {comparison.measure_names[0]} against {comparison.baseline}.",
    ]


def detailed_comparison(comparison: Comparison) -> str:
    """Every test of the comparison on a separate line, with its interval and effect size."""
    rows = _tests(comparison)
    return "\n".join([f"{_tests_caption(comparison)}:", "", *in_columns(rows, left=len(rows[0]))])


def _tests_caption(comparison: Comparison) -> str:
    return f"Each test, against {comparison.baseline} (d: Cohen's, of the paired values)"


def _tests(comparison: Comparison) -> list[list[str]]:
    """Header, and one row per test."""
    header = ["system", "measure", "Δ", "95 % interval", "d", "p", "p (Holm)", "W/T/L"]
    randomised = any(test.p_randomisation is not None for test in comparison.tests)
    header += ["p (randomisation)", "its Holm"] if randomised else []
    rows = [header]
    for test in comparison.tests:
        low, high = test.interval or (math.nan, math.nan)
        row = [test.system, test.measure, f"{100 * test.difference:+.1f}", f"[{100 * low:+.1f}, {100 * high:+.1f}]"]
        row += ["–" if test.effect_size is None else f"{test.effect_size:+.2f}", f"{test.p:.2g}", f"{test.p_holm:.2g}"]
        row += [f"{test.wins}/{test.ties}/{test.losses}"]
        if randomised:
            row += [f"{p:.2g}" if p is not None else "–" for p in (test.p_randomisation, test.p_randomisation_holm)]
        rows.append(row)
    return rows


def latex_comparison(comparison: Comparison) -> str:
    """The table for a paper, with the rules of booktabs; the legend follows as comments."""
    header, *rows = _cells(comparison, best="**{}**", other="{}")
    columns = "l" + "r" * (len(header) - 1)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", " & ".join(map(_latex, header)) + r" \\", r"\midrule"]
    lines += [" & ".join(map(_latex, row)) + r" \\" for row in rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    note = [_caption(comparison) + ".", *_legend(comparison, "Bold: highest of its column.")]
    return "\n".join([*lines, *(f"% {line}" for line in note)])


def _latex(cell: str) -> str:
    text = cell.strip()
    marks = {"†": r"$^\dagger$", "‡": r"$^\ddagger$", "Δ": r"$\Delta$", "–": "--"}
    bold, _, rest = text.removeprefix("**").partition("**") if text.startswith("**") else ("", "", text)
    escaped = "".join(_LATEX.get(sign, marks.get(sign, sign)) for sign in rest)
    return rf"\textbf{{{bold}}}{escaped}" if bold else escaped


def csv_comparison(comparison: Comparison) -> str:
    """Every figure as CSV: one row per system and measure, values between 0 and 1."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    tested = ["difference", "low", "high", "effect_size", "p", "p_holm", "p_randomisation", "p_randomisation_holm"]
    writer.writerow(
        ["system", "measure", "mean", "mean_low", "mean_high", *tested, "wins", "ties", "losses", "queries", "baseline"]
    )
    for system in comparison.systems:
        for measure, value in system.measures.items():
            test = comparison.test(system.name, measure)
            writer.writerow(
                [
                    *(system.name, measure, value),
                    *comparison.intervals.get(system.name, {}).get(measure, ("", "")),
                    *(_tested(test) if test is not None else [""] * 11),
                    *(comparison.queries, comparison.baseline),
                ]
            )
    return file.getvalue()


def _tested(test: Difference) -> list[float | int | str]:
    values = [
        *(test.difference, *(test.interval or (None, None)), test.effect_size),
        *(test.p, test.p_holm, test.p_randomisation, test.p_randomisation_holm),
        *(test.wins, test.ties, test.losses),
    ]
    return ["" if value is None else value for value in values]


def html_comparison(comparison: Comparison) -> Html:
    """The table as HTML, with the 95 % interval below each mean, and the same legend."""
    header, *rows = _cells(comparison, best="**{}**", other="{}")
    cells = [[row[0], *(_html(cell) for cell in row[1:])] for row in ([cell.strip() for cell in row] for row in rows)]
    for system, row in zip(comparison.systems, cells, strict=True):
        for place, measure in enumerate(comparison.measure_names, 1):
            if interval := comparison.intervals.get(system.name, {}).get(measure):
                low, high = (f"{100 * end:.1f}" for end in interval)
                row[place] = join([row[place], element("div", f"{low} – {high}", class_="soft")])
    named = [name.strip() for name in header]
    legend = _legend(comparison, "Bold: highest of its column.")
    return join(
        [
            paragraph(_caption(comparison), ", 95 % bootstrap intervals below."),
            table(["system", *named[1:]], cells, numbers=range(1, len(named)), name="Systems and measures"),
            element("p", " ".join(legend), class_="source"),
        ]
    )


def _html(cell: str) -> Html:
    bold, _, rest = cell.removeprefix("**").partition("**") if cell.startswith("**") else ("", "", cell)
    return join([element("strong", bold), rest]) if bold else join([rest])


def html_tests(comparison: Comparison) -> Html:
    """The tests of :func:`detailed_comparison` as an HTML table."""
    header, *rows = _tests(comparison)
    caption = _tests_caption(comparison)
    return join([paragraph(f"{caption}."), table(header, rows, numbers=range(2, len(header)), name=caption)])
