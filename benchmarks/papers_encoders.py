"""What the pages of RocketQA, PAIR and DCSR share: figures and tests from the results of benchmarks/encoders.py."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from papers_rows import (
    NONE,
    ROOT,
    UNTESTED,
    Claim,
    Table,
    beside,
    claims,
    difference,
    page_link,
    percent,
    percents,
    result,
    sizes,
)

SET, DOCSTRINGS = "encoders-squad-wiki", "encoders-docstrings"
START, BM25, DPR = "start", "bm25", "dpr"
RANKS = ("R@5", "R@20", "R@100")
PAIR_OF_MEASURES = ("RR@10", "R@20")  # of every test in the result files
RETRIEVERS = {"BM25 (anserini)": BM25, "ANCE (single)": "ance", "RocketQA": "rocketqa-4"}


class Comparison(NamedTuple):
    """A finding of a paper, and where its two sides are: in a table of the paper, and among our systems.

    Attributes:
        what: The two sides in words.
        rows: Both in the paper.
        column: The beginning of the paper's column.
        measure: One of the column's measures.
        systems: Both of ours.
    """

    what: str
    rows: tuple[str, str]
    column: str
    measure: str
    systems: tuple[str, str]

    @property
    def title(self) -> str:
        """What the paper's figures are."""
        return f"{self.column} {self.measure}"

    def paper(self, table: Table) -> tuple[float, float]:
        """The paper's figures of both sides."""
        first, second = (table.value(row, self.column, self.measure) for row in self.rows)
        return first, second


def provenance(name: str = SET) -> Any:
    """What a result was measured on."""
    return result(name)["comparison"]["provenance"]


def of_systems(comparison: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """Measures by system."""
    return {system["name"]: system["measures"] for system in comparison["systems"]}


def systems(name: str = SET) -> dict[str, Mapping[str, float]]:
    """Measures of a set's systems."""
    return of_systems(result(name)["comparison"])


def compared(first: str, second: str, name: str = SET) -> tuple[Any, Any] | None:
    """The tests of two systems by RR@10 and R@20, Holm-corrected, if the result has them."""
    rows = {row["measure"]: row for row in result(name)["findings"] if row["systems"] == [first, second]}
    return (rows["RR@10"], rows["R@20"]) if rows else None


def by_rr(first: str, second: str, name: str = SET) -> Any:
    """The test of two systems by RR@10, which the result must have."""
    tests = compared(first, second, name)
    assert tests is not None, (first, second, name)
    return tests[0]


def claim(what: str, paper: tuple[float, float], measure: str, both: tuple[str, str], name: str = SET) -> Claim | None:
    """A finding as measured on a set, if it was."""
    if (tests := compared(*both, name)) is None:
        return None
    first, recall = tests
    means = (first["means"][0], first["means"][1])
    beside_ = f"{' : '.join(map(percent, recall['means']))}, {difference(recall['difference'], recall['p_holm'])}"
    return Claim(what, paper, measure, first["difference"], first["p_holm"], means, beside_)


def claims_of(comparisons: Iterable[Comparison], table: Table, name: str = SET) -> list[Claim]:
    """The findings that a set has."""
    all_claims = (claim(each.what, each.paper(table), each.title, each.systems, name) for each in comparisons)
    return [measured for measured in all_claims if measured is not None]


def over_others(comparisons: Iterable[Comparison], table: Table) -> list[Claim]:
    """Methods that a paper ranks; only those against BM25 are tested in our result file."""
    against = {test["system"]: test["p_holm"] for test in result(SET)["against_bm25"]}
    others = []
    for each in comparisons:
        (rr, recall), (other_rr, other_recall) = (
            [systems()[system][measure] for measure in PAIR_OF_MEASURES] for system in each.systems
        )
        p = against[each.systems[0]] if each.systems[1] == BM25 else None
        in_recall = f"{percent(recall)} : {percent(other_recall)}, {difference(recall - other_recall)}"
        others.append(Claim(each.what, each.paper(table), each.title, rr - other_rr, p, (rr, other_rr), in_recall))
    return others


def set_up() -> str:
    """What our figures are measured on."""
    dataset = provenance()["dataset"]
    splits = dataset["splits"]
    return (
        f"Ours are {page_link(SET, 'squad-wiki')}, where nothing else is said: SQuAD and SQuADShifts questions over "
        f"{dataset['passages']:,} Wikipedia passages, {splits['test']:,} test questions, {splits['train']:,} training "
        "questions with labels and as many without. All encoders start from all-MiniLM-L6-v2; one seed. A finding "
        "holds if RR@10 has the paper's sign at p < 0.05, by a paired t-test over questions with Holm's correction. "
        "Measures are × 100; recall counts the labelled passage."
    )


def stale(name: str) -> list[str]:
    """Settings of a result that encoders.toml has changed since."""
    plan = tomllib.loads((ROOT / "encoders.toml").read_text(encoding="utf-8"))
    recipe = provenance(name)["recipe"]
    return [
        part
        for part in ("train", "cross_encoder", "negatives", "denoise", "pseudo_label")
        if recipe[part] != plan[part]
    ]


def on_docstrings(comparisons: Sequence[Comparison], table: Table, learns_pseudo_labels: Sequence[str] = ()) -> str:
    """The same findings on docstrings-cut, in a line.

    Args:
        comparisons: The findings.
        table: The paper's.
        learns_pseudo_labels: What needs pseudo-labels, and is left out if there were none.
    """
    labelled = provenance(DOCSTRINGS)["mined"]["pseudo-labels"]["queries"]["kept"]
    kept = [each for each in comparisons if labelled or each.systems[0] not in learns_pseudo_labels]
    sentences = [
        f"{measured.what}, {difference(measured.gain, measured.p)}, {measured.verdict}"
        for measured in claims_of(kept, table, DOCSTRINGS)
    ]
    link = page_link(DOCSTRINGS, "docstrings-cut")
    if not sentences:
        return f"On {link} this was not measured: it needs pseudo-labels, and no pair was sure enough."
    text = f"On {link}, RR@10 (holds here): {'; '.join(sentences)}."
    if len(kept) < len(comparisons):
        text += " Pseudo-labels were not measured there: no pair was sure enough."
    if parts := stale(DOCSTRINGS):
        text += f" That page is stale: encoders.toml has changed `{'`, `'.join(parts)}` since."
    return text


def size_rows(table: Table) -> list[str]:
    """Sizes of the paper's datasets, and of ours."""
    blank = [NONE] * (len(table.columns) - 4)
    more = []
    for name, shown in ((SET, "squad-wiki"), (DOCSTRINGS, "docstrings-cut")):
        dataset = provenance(name)["dataset"]
        more.append([shown, *sizes(dataset["splits"], dataset["passages"]), *blank])
    return beside(table, more=more)


def cells_of(rows: Mapping[str, str], names: Sequence[str], *more: Sequence[str]) -> dict[str, list[str]]:
    """Cells of our systems by the paper's rows: one of some measures, and one for each further list of measures."""
    return {row: [percents(systems()[name], measures) for measures in (names, *more)] for row, name in rows.items()}


def retrievers(table: Table, ours: Mapping[str, str], findings: Sequence[Claim]) -> list[str]:
    """A paper's main table: our systems by its measures, then its findings."""
    cells = cells_of(ours, RANKS, ("RR@10",))
    start = ["MiniLM off the shelf", *cells_of({"": START}, RANKS, ("RR@10",))[""]]
    return [*beside(table, cells, (" / ".join(RANKS), "RR@10"), [start]), "", *claims(findings), *_untested(findings)]


def _untested(findings: Sequence[Claim]) -> list[str]:
    if all(claim.verdict != UNTESTED for claim in findings):
        return []
    return ["", "Not tested: the result file has tests against BM25 and the start, and those of the ablations."]
