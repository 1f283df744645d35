"""The kinds of rows on the pages of benchmarks/papers.py: a paper's figures beside ours, and if a finding holds."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent
PAPERS: dict[str, Any] = tomllib.loads((ROOT / "papers.toml").read_text(encoding="utf-8"))
NONE = "–"
SIGNIFICANT = 0.05
HOLDS, EQUAL, REVERSED, UNTESTED = "yes", "no difference", "**no: reversed**", "not tested"


class Table(NamedTuple):
    """A table, figure or section of a paper.

    Attributes:
        where: Its number.
        about: What it compares.
        columns: Titles of its columns; ``NQ: R@5 / R@20`` has two measures of one dataset.
        rows: Its cells by the name of the row, measures parted as in the title.
        says: What the paper says without figures in its text.
        differs: How our counterpart differs.
        not_measured: Why there is no counterpart.
    """

    where: str
    about: str
    columns: Sequence[str] = ()
    rows: Mapping[str, Sequence[str]] = {}
    says: str = ""
    differs: str = ""
    not_measured: str = ""

    def value(self, row: str, of: str, measure: str) -> float:
        """One figure: of a row, a dataset and a measure."""
        column = next(number for number, title in enumerate(self.columns) if title.startswith(of))
        measures = self.columns[column].split(": ")[-1].split(" / ")
        return float(self.rows[row][column].split(" / ")[measures.index(measure)])


class Claim(NamedTuple):
    """A finding of a paper, and what we measured: the first system against the second.

    Attributes:
        what: The two systems in words.
        paper: The paper's figures of both.
        measure: What the paper's figures are.
        gain: Our RR@10 of the first system less that of the second, from 0 to 1.
        p: Of a paired t-test by question; none where there was no test.
        ours: Our RR@10 of both.
        beside: The same by other measures, as text.
    """

    what: str
    paper: tuple[float, float]
    measure: str
    gain: float
    p: float | None
    ours: tuple[float, float] | None = None
    beside: str = ""

    @property
    def verdict(self) -> str:
        """Whether the finding holds: the same sign, and significant."""
        if self.p is None:
            return UNTESTED
        if self.p >= SIGNIFICANT:
            return EQUAL
        return HOLDS if (self.gain > 0) == (self.paper[0] > self.paper[1]) else REVERSED


Section = Callable[[Table], list[str]]  # lines of a section, from the paper's table


@cache
def result(name: str) -> Any:
    """A result file."""
    return json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))


def paper_table(paper: str, where: str) -> Table:
    """A table of papers.toml."""
    return Table(where, **PAPERS[paper]["tables"][where])


def page_link(name: str, text: str = "") -> str:
    """A link to a result's page."""
    return f"[{text or name}](../results/{name}.md)"


def percent(value: float) -> str:
    """A measure × 100."""
    return f"{100 * value:.1f}"


def percents(measures: Mapping[str, float], names: Iterable[str]) -> str:
    """Some measures × 100 in one cell."""
    return " / ".join(percent(measures[name]) for name in names)


def spread(figures: Mapping[str, float]) -> str:
    """A mean × 100 with its deviation over seeds; one seed has none."""
    return percent(figures["mean"]) + (f" ± {percent(figures['deviation'])}" if figures["deviation"] else "")


def p_value(p: float) -> str:
    """A p-value; 0 is below the least number that a float can hold."""
    return f"p = {p:.2g}" if p else "p < 1e-300"


def difference(gain: float, p: float | None = None) -> str:
    """A difference × 100, with its p-value in brackets."""
    return f"{100 * gain:+.1f}" + ("" if p is None else f" ({p_value(p)})")


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown; the first column is aligned left, the others right."""
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def beside(
    table: Table,
    ours: Mapping[str, Sequence[str]] | None = None,
    columns: Sequence[str] = (),
    more: Sequence[Sequence[str]] = (),
) -> list[str]:
    """The paper's rows with ours in the last columns; no lines if the paper has no figures in its text.

    Args:
        table: The paper's.
        ours: Our cells by the name of the paper's row.
        columns: Titles of our columns.
        more: Rows that only we have: a name, and cells of the last columns.
    """
    if not table.rows:
        return []
    width = 1 + len(table.columns) + len(columns)
    head = ["", *(f"paper, {title}" for title in table.columns), *(f"ours, {title}" for title in columns)]
    rows = [
        [name, *(NONE if set(cell) <= set("– /") else cell for cell in cells), *(ours or {}).get(name, ())]
        for name, cells in table.rows.items()
    ]
    filled = [[*row, *[NONE] * (width - len(row))] for row in rows]
    own = [[f"ours, {name}", *[NONE] * (width - 1 - len(cells)), *cells] for name, *cells in more]
    return grid(head, [*filled, *own])


def claims(findings: Sequence[Claim]) -> list[str]:
    """A table of a paper's findings, each with its verdict."""
    rows = []
    for claim in findings:
        first, second = claim.paper
        ours = " : ".join(map(percent, claim.ours)) if claim.ours else NONE
        cells = [claim.what, f"{first} : {second} {claim.measure}", ours, difference(claim.gain, claim.p)]
        rows.append([*cells, claim.beside or NONE, claim.verdict])
    head = ["first : second", "paper", "ours, RR@10", "ours, difference", "ours, R@20", "holds here"]
    return grid(head, rows)


def counted(findings: Sequence[Claim]) -> str:
    """How many findings hold, and which are reversed."""
    tested = [claim for claim in findings if claim.verdict != UNTESTED]
    number = {verdict: sum(claim.verdict == verdict for claim in tested) for verdict in (HOLDS, EQUAL, REVERSED)}
    named = "; ".join(claim.what for claim in tested if claim.verdict == REVERSED)
    return (
        f"of {len(tested)} tested findings {_verb(number[HOLDS], 'holds', 'hold')}, "
        f"{_verb(number[EQUAL], 'shows', 'show')} no significant difference, and "
        f"{_verb(number[REVERSED], 'is', 'are')} reversed{f' ({named})' if named else ''}"
    )


def _verb(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


def sizes(splits: Mapping[str, int], passages: int) -> list[str]:
    """Cells of a dataset's size: training, dev and test questions, and passages."""
    return [f"{number:,}" for number in (*(splits[split] for split in ("train", "dev", "test")), passages)]


def several_vectors() -> str:
    """The methods with several vectors a passage, beside the GNN-encoder on small samples."""
    sets = result("late_interaction")["sets"]
    return f"With several vectors a passage, by short trainings ({page_link('late_interaction', 'page')}), RR@10: " + (
        "; ".join(_late(name, sets[name]) for name in ("squad-open", "docstrings")) + "."
    )


def _late(name: str, figures: Mapping[str, Any]) -> str:
    systems, late, gnn = figures["rows"]["systems"], "late interaction", "gnn-encoder"
    names = {"ColBERT": late, "COIL": "COIL", "ME-BERT": "ME-BERT"}
    values = ", ".join(f"{name} {systems[system]['RR@10']:.1f}" for name, system in names.items())
    by_gnn = "test" in systems[gnn]  # then late interaction is the reference
    test = systems[gnn if by_gnn else late]["test"]
    gain = test["difference"] if by_gnn else -test["difference"]
    return (
        f"on {figures['passages']:,} passages of {name} with {figures['labels']:,} labels and {figures['questions']:,} "
        f"test questions (seeds: {systems[late]['seeds']}), {values}, and the GNN-encoder "
        f"{systems[gnn]['RR@10']:.1f}, {difference(gain, test['p'])} over ColBERT"
    )


def other_trainings() -> str:
    """The other encoders, beside the GNN-encoder on the same samples."""
    sets = result("small_encoders")["sets"]
    return f"Trained briefly on the same samples ({page_link('small_encoders', 'page')}): " + (
        "; ".join(_trained(name, figures) for name, figures in sets.items()) + "."
    )


def _trained(name: str, figures: Mapping[str, Any]) -> str:
    systems = figures["systems"]
    names = {"DPR": "dpr", "RocketQA, step 1": "step-1", "step 4": "step-4", "RocketQAv2": "rocketqav2"}
    names |= {"PAIR": "pair", "DCSR": "dcsr", "RetroMAE and DPR": "retromae"}
    names |= {"Condenser and DPR": "condenser", "coCondenser and DPR": "cocondenser"}
    names |= {"SPLADE": "splade", "term weights in place of DeepCT's": "term-weights"}
    values = ", ".join(f"{shown} {systems[of]['RR@10']:.1f}" for shown, of in names.items())
    over = {shown: f"gnn-encoder-over-{of}" for shown, of in names.items() if f"gnn-encoder-over-{of}" in systems}
    pairs = {shown: figures["pairs"][of] for shown, of in over.items()}
    gains = ", ".join(f"{shown} {difference(pair['difference'], pair['p'])}" for shown, pair in pairs.items())
    return (
        f"{name} (seeds: {figures['seeds']}), {values}, and the GNN-encoder {systems['gnn-encoder']['RR@10']:.1f}; a "
        f"GNN-encoder over one of these, mostly a prior, against it alone: {gains}"
    )


def section(table: Table, lines: Sequence[str]) -> str:
    """A section of a page: what the paper has, our lines, and what differs."""
    parts = [f"## {table.where}: {table.about}"]
    if table.says:
        parts.append(f"The paper: {table.says}")
    if lines:
        parts.append("\n".join(lines))
    if table.not_measured:
        parts.append(f"Not measured here: {table.not_measured}")
    if table.differs:
        parts.append(f"What differs: {table.differs}")
    return "\n\n".join(parts)
