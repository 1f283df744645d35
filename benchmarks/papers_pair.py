"""The page of PAIR."""

from __future__ import annotations

from papers_encoders import (
    BM25,
    DPR,
    PAIR_OF_MEASURES,
    RETRIEVERS,
    SET,
    START,
    Comparison,
    cells_of,
    claims_of,
    compared,
    on_docstrings,
    over_others,
    provenance,
    retrievers,
    size_rows,
    systems,
)
from papers_rows import Claim, Table, beside, claims, counted, grid, paper_table, percent, result, several_vectors

PARTS = [
    Comparison(f"{what} ({row})", ("PAIR", row), "NQ", "R@5", ("pair", other))
    for what, row, other in (
        ("with the passage loss : without", "w/o PSR", "pair-without-passage-loss"),
        ("with distillation : without", "w/o KD", "pair-without-distillation"),
        ("passage loss in pre-training alone : in both", "w/ PSR FT", "pair-passage-loss-in-fine-tuning"),
        ("shared weights : separate", "w/o SP", "pair-separate"),
        ("with pre-training : without", "w/o PT", "rocketqa-3"),
    )
]
THRESHOLDS = [Comparison("strict thresholds : loose", ("0.9, 0.1", "0.6, 0.4"), "NQ", "R@5", ("pair", "pair-loose"))]
OTHERS = [
    Comparison("PAIR : BM25", ("PAIR", "BM25 (anserini)"), "NQ", "R@20", ("pair", BM25)),
    Comparison("PAIR : RocketQA", ("PAIR", "RocketQA"), "NQ", "R@20", ("pair", "rocketqa-4")),
    Comparison("PAIR : DPR from the same start", ("PAIR", "DPR-E"), "NQ", "R@20", ("pair", DPR)),
]


def findings() -> list[Claim]:
    """All findings of the paper."""
    return [
        *claims_of(PARTS, paper_table("pair", "Table 3")),
        *claims_of(THRESHOLDS, paper_table("pair", "Table 5")),
        *over_others(OTHERS, paper_table("pair", "Table 2")),
    ]


def holds() -> str:
    """Whether the paper's claims hold here."""
    pair, dpr, bm25 = (percent(systems()[name]["RR@10"]) for name in ("pair", DPR, BM25))
    labelled = provenance()["mined"]["pseudo-labels"]["queries"]["kept"]
    return (
        f"Here {counted(findings())}. PAIR has RR@10 {pair}, DPR from the same start and labels {dpr} (not tested "
        f"against each other), and BM25 {bm25}. The evidence is one seed on one small set, with {labelled:,} "
        "pseudo-labelled questions; the paper has 1.8 million unlabelled ones, so this does not refute it."
    )


def retrieved(table: Table) -> list[str]:
    """Table 2."""
    lines = retrievers(table, RETRIEVERS | {"DPR-E": DPR, "PAIR": "pair"}, over_others(OTHERS, table))
    return [*lines, "", several_vectors()]


def parts(table: Table) -> list[str]:
    """Table 3: RR@10 and R@20 beside the paper's figures, and the tests."""
    cells = cells_of({"PAIR": "pair"}, PAIR_OF_MEASURES)
    for comparison in PARTS:
        cells[comparison.rows[1]] = [
            " / ".join(percent(test["means"][1]) for test in compared(*comparison.systems) or ())
        ]
    return [
        *beside(table, cells, (" / ".join(PAIR_OF_MEASURES),)),
        "",
        *claims(claims_of(PARTS, table)),
        "",
        on_docstrings(PARTS, table),
    ]


def similarities(_: Table) -> list[str]:
    """Figure 4."""
    by_encoder = result(SET)["similarities"]
    rows = [
        [name, *(f"{values[pair]:.3f} ± {values[f'deviation of {pair}']:.3f}" for pair in ("s(p+,q)", "s(p+,p-)"))]
        for name, values in by_encoder.items()
    ]
    start, trained = by_encoder[START], by_encoder["pair-pre-trained"]
    order = "higher" if start["s(p+,p-)"] > start["s(p+,q)"] else "lower"
    return [
        *grid(["ours", "s(p⁺, q)", "s(p⁺, p⁻)"], rows),
        "",
        f"In our start s(p⁺, p⁻) is already {order} than s(p⁺, q). Pre-training moves it by "
        f"{trained['s(p+,p-)'] - start['s(p+,p-)']:+.3f}. No test.",
    ]


def thresholds(table: Table) -> list[str]:
    """Table 5: two of its thresholds, and how many pseudo-labels they give."""
    rows = []
    for shown, name in (("strict: 0.7, 0.1", "pseudo-labels"), ("loose: 0.4, 0.3", "pseudo-labels-loose")):
        mined = provenance()["mined"][name]
        candidates = mined["candidates"]
        kept = [mined["queries"]["kept"], candidates["positives"]["cross-encoder"], candidates["negatives"]]
        rows.append([shown, *(f"{number:,}" for number in kept)])
    lines = grid(["ours, calibrated", "questions", "positives", "negatives"], rows)
    return [*beside(table), "", *lines, "", *claims(claims_of(THRESHOLDS, table))]


SECTIONS = {
    "Table 1": size_rows,
    "Table 2": retrieved,
    "Table 3": parts,
    "Figure 4": similarities,
    "Table 5": thresholds,
}
