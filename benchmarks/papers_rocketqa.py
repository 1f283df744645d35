"""The page of RocketQA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from papers_encoders import (
    BM25,
    DPR,
    RETRIEVERS,
    Comparison,
    by_rr,
    claims_of,
    on_docstrings,
    over_others,
    provenance,
    retrievers,
    size_rows,
    systems,
)
from papers_rows import (
    Claim,
    Table,
    beside,
    claims,
    counted,
    difference,
    grid,
    other_trainings,
    page_link,
    paper_table,
    percent,
    result,
    several_vectors,
)
from small_encoders_page import NAMES

NO_NEGATIVES = "cross-batch negatives (step 1)"  # what the paper's step 3 is compared with; ours is of one process
STEPS = {
    "in-batch negatives": "rocketqa-1",
    "hard negatives without denoising": "rocketqa-3-undenoised",
    "hard negatives with denoising (step 3)": "rocketqa-3",
    "data augmentation (step 4)": "rocketqa-4",
}
_, UNDENOISED, DENOISED, AUGMENTED = STEPS
STRATEGIES = [
    Comparison(what, rows, "MS MARCO", "MRR@10", both)
    for what, rows, both in (
        ("denoised hard negatives : none", (DENOISED, NO_NEGATIVES), ("rocketqa-3", "rocketqa-1")),
        ("denoised : undenoised", (DENOISED, UNDENOISED), ("rocketqa-3", "rocketqa-3-undenoised")),
        ("undenoised hard negatives : none", (UNDENOISED, NO_NEGATIVES), ("rocketqa-3-undenoised", "rocketqa-1")),
        ("with pseudo-labels : without", (AUGMENTED, DENOISED), ("rocketqa-4", "rocketqa-3")),
    )
]
OTHERS = [
    Comparison("RocketQA : BM25", ("RocketQA", "BM25 (anserini)"), "NQ", "R@20", ("rocketqa-4", BM25)),
    Comparison("RocketQA : DPR", ("RocketQA", "DPR (single)"), "NQ", "R@20", ("rocketqa-4", DPR)),
]


def findings() -> list[Claim]:
    """All findings of the paper."""
    over = over_others(OTHERS, paper_table("rocketqa", "Table 2"))
    return [*claims_of(STRATEGIES, paper_table("rocketqa", "Table 3")), *over]


def holds() -> str:
    """Whether the paper's claims hold here."""
    first, last, bm25 = (systems()[name]["RR@10"] for name in ("rocketqa-1", "rocketqa-4", BM25))
    read = {(test["system"], test["baseline"]): test["EM"] for test in result("reader")["small"]["tests"]}
    retriever = read["step-4", "start"]
    return (
        f"Here {counted(findings())}. RR@10 is {percent(first)} after step 1, {percent(last)} after step 4, and "
        f"{percent(bm25)} by BM25. On a small sample, our reader gains "
        f"{difference(retriever['difference'], retriever['p'])} exact match by RocketQA's retriever over untuned "
        "MiniLM. The evidence is small sets; one seed for the strategies."
    )


def retrieved(table: Table) -> list[str]:
    """Table 2."""
    lines = retrievers(table, RETRIEVERS | {"DPR (single)": DPR}, over_others(OTHERS, table))
    return [*lines, "", f"{several_vectors()} {other_trainings()}"]


def strategies(table: Table) -> list[str]:
    """Table 3: RR@10 by step, and the tests."""
    values = {name: measures["RR@10"] for name, measures in systems().items()}
    values["rocketqa-3-undenoised"] = by_rr("rocketqa-3", "rocketqa-3-undenoised")["means"][1]
    cells = {row: [percent(values[name])] for row, name in STEPS.items()}
    elsewhere = on_docstrings(STRATEGIES, table, ["rocketqa-4"])
    return [*beside(table, cells, ("RR@10",)), "", *claims(claims_of(STRATEGIES, table)), "", elsewhere]


def strategies_by_recall(table: Table) -> list[str]:
    """Table 7: R@5 by step, of the systems whose every measure is in the result file."""
    cells = {row: [percent(systems()[name]["R@5"])] for row, name in STEPS.items() if name in systems()}
    return beside(table, cells, ("R@5",))


def denoised(_: Table) -> list[str]:
    """Figure 5: what the cross-encoder says of the candidates."""
    mined = provenance()["mined"]["denoised"]
    scored = mined["probabilities"]["count"]
    doubtful = mined["candidates"]["dropped"]["between the thresholds"]
    relevant = mined["candidates"]["positives"].get("cross-encoder", 0)
    return [
        f"Ours: of {scored:,} candidates that the cross-encoder scored, it finds {relevant:,} relevant and "
        f"{doubtful:,} ({doubtful / scored:.1%}) doubtful; denoising drops these."
    ]


def answers(table: Table) -> list[str]:
    """Table 5: one reader by retriever."""
    results = result("reader")
    whole, small = results["whole"], results["small"]
    return [
        *beside(table),
        "",
        f"Ours, {page_link('reader', 'answers end to end')}: one reader, {whole['questions']['test']} test questions "
        f"over {whole['passages']:,} passages, one seed. `relevant passage` is the reader's own limit.",
        "",
        *_read(whole, {}),
        "",
        f"The papers' encoders, trained briefly on a sample of {small['passages']:,} passages, with "
        f"{small['questions']['test']} test questions; means over {len(small['systems']['start']['weights'])} seeds:",
        "",
        *_read(small, NAMES),
    ]


def _read(figures: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    columns = ("RR@10", "Answer@3", "EM", "F1")
    rows = [
        [names.get(name, name), *(percent(measures[column]) for column in columns)]
        for name, measures in figures["systems"].items()
    ]
    compared = [
        [
            " : ".join(names.get(test[key], test[key]) for key in ("system", "baseline")),
            difference(test["EM"]["difference"], test["EM"]["p"]),
        ]
        for test in figures["tests"]
    ]
    return [
        *grid(["passages by", *columns], rows),
        "",
        *grid(["first : second", "EM, difference (p uncorrected)"], compared),
    ]


SECTIONS = {
    "Table 1": size_rows,
    "Table 2": retrieved,
    "Table 3": strategies,
    "Figure 5": denoised,
    "Table 5": answers,
    "Table 7": strategies_by_recall,
}
