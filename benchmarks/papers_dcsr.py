"""The page of DCSR."""

from __future__ import annotations

from papers_encoders import (
    BM25,
    DOCSTRINGS,
    DPR,
    PAIR_OF_MEASURES,
    RANKS,
    SET,
    Comparison,
    by_rr,
    cells_of,
    claim,
    claims_of,
    compared,
    of_systems,
    on_docstrings,
    provenance,
    systems,
)
from papers_rows import (
    NONE,
    Claim,
    Table,
    beside,
    claims,
    counted,
    difference,
    grid,
    page_link,
    paper_table,
    percent,
    percents,
    result,
)

LARGE = "encoders-squad-wiki-large"
BOTH = {"DPR": DPR, "DCSR": "dcsr"}
DEEP = ("R@20", "R@100")
OVER_DPR = [Comparison("DCSR : DPR", ("DCSR, single", "DPR, single"), "Top-20", "SQuAD", ("dcsr", DPR))]
IN_PASSAGE_ROW, WITHOUT_ROW = "DCSR, 1 in-passage and 1 BM25 random", "DCSR, 1 BM25 random"
IN_PASSAGE = [
    Comparison(
        "with an in-passage negative : without",
        (IN_PASSAGE_ROW, WITHOUT_ROW),
        "Top-20",
        "SQuAD",
        ("dcsr", "dcsr-without-in-passage"),
    )
]


def with_own_negatives() -> list[Claim]:
    """DCSR with its own hard negatives against DCSR; the paper's two figures are in two tables."""
    paper = (
        paper_table("dcsr", "Table 3").value("DCSR + adv-train", "Top-20", "NQ"),
        paper_table("dcsr", "Table 2").value("DCSR, single", "Top-20", "NQ"),
    )
    tested = claim("with its own hard negatives : without", paper, "Top-20 NQ", ("dcsr-adversarial", "dcsr"))
    return [tested] if tested else []


def findings() -> list[Claim]:
    """All findings of the paper that are tested."""
    over = claims_of(OVER_DPR, paper_table("dcsr", "Table 2"))
    return [*over, *with_own_negatives(), *claims_of(IN_PASSAGE, paper_table("dcsr", "Table 4"))]


def holds() -> str:
    """Whether the paper's claims hold here."""
    over, token, docstrings = by_rr("dcsr", DPR), by_rr("dcsr", "dcsr-token"), by_rr("dcsr", DPR, DOCSTRINGS)
    bm25 = next(test for test in result(SET)["against_bm25"] if test["system"] == "dcsr")
    return (
        f"Here {counted(findings())}. DCSR's RR@10 is {difference(over['difference'], over['p_holm'])} against DPR's "
        f"and {difference(bm25['difference'], bm25['p_holm'])} against BM25's; with the paper's own sentence token it "
        f"is {percent(token['means'][1])}, and DPR's {percent(over['means'][1])} (not tested), so all other figures "
        "are with the mean of a sentence's tokens. As the corpus grows, the gain over DPR "
        f"{_trend()} (paper: it shrinks), and on docstrings, which have no answers, DCSR is "
        f"{difference(docstrings['difference'], docstrings['p_holm'])} against DPR. The evidence is one seed on each "
        "set."
    )


def questions_a_passage(table: Table) -> list[str]:
    """Table 1, by the training split that squad-wiki's questions are from."""
    whole = result("gnn_encoder-squad-wiki")
    questions = whole["dataset"]["splits"]["train"]
    passages = whole["dataset"]["passages"] - whole["alike"]["passages_without_questions"]
    return [
        *beside(table, more=[["squad-wiki", f"{questions / passages:.2f}"]]),
        "",
        f"Ours has {questions:,} training questions over {passages:,} passages. The encoders learn from a random "
        f"{provenance()['dataset']['splits']['train']:,} of them, so that two questions of one passage are rare.",
    ]


def over_dpr(table: Table) -> list[str]:
    """Table 2: DPR and DCSR, BM25 for scale, and DCSR with more labels."""
    cells = cells_of({"DPR, single": DPR, "DCSR, single": "dcsr"}, DEEP, ("RR@10",))
    labels, large = provenance(LARGE)["dataset"]["splits"]["train"], systems(LARGE)["dcsr"]
    link = page_link(LARGE, f"{labels:,} labels and 320 tokens")
    more = [
        ["BM25", *cells_of({"": BM25}, DEEP, ("RR@10",))[""]],
        [f"DCSR with {link}", percents(large, DEEP), percent(large["RR@10"])],
    ]
    return [
        *beside(table, cells, (" / ".join(DEEP), "RR@10"), more),
        "",
        *claims(claims_of(OVER_DPR, table)),
        "",
        _token(),
        "",
        f"{on_docstrings(OVER_DPR, table)} Its questions have no answers: a passage's sentence that shares most words "
        "with the question is the positive.",
    ]


def _token() -> str:
    test = by_rr("dcsr", "dcsr-token")
    return (
        f"Section 3.2: with the paper's `<sent>` token DCSR has RR@10 {percent(test['means'][1])}. The mean of the "
        f"sentence's tokens, which our other rows have, is {difference(test['difference'], test['p_holm'])} against "
        "it: a few steps do not teach MiniLM a new token."
    )


def adversarial(table: Table) -> list[str]:
    """Table 3."""
    cells = cells_of({"DPR + adv-train + ANCE": "ance", "DCSR + adv-train": "dcsr-adversarial"}, DEEP, ("RR@10",))
    return [*beside(table, cells, (" / ".join(DEEP), "RR@10")), "", *claims(with_own_negatives())]


def in_passage(table: Table) -> list[str]:
    """Table 4."""
    cells = cells_of({"DPR": DPR, IN_PASSAGE_ROW: "dcsr"}, PAIR_OF_MEASURES)
    tests = compared(*IN_PASSAGE[0].systems) or ()
    cells[WITHOUT_ROW] = [" / ".join(percent(test["means"][1]) for test in tests)]
    return [*beside(table, cells, (" / ".join(PAIR_OF_MEASURES),)), "", *claims(claims_of(IN_PASSAGE, table))]


def training_data(table: Table) -> list[str]:
    """Table 5."""
    cells = cells_of({"DPR, raw data": DPR, "DCSR, DCSR-hard": "dcsr-adversarial"}, DEEP)
    return beside(table, cells, (" / ".join(DEEP),))


def transfer(table: Table) -> list[str]:
    """Table 6: reviews and forum posts."""
    domains = {domain: of_systems(tables["comparison"]) for domain, tables in result(SET)["elsewhere"].items()}
    columns = [f"squad-wiki to {domain}: {' / '.join(DEEP)}" for domain in domains]
    cells = {row: [percents(measures[name], DEEP) for measures in domains.values()] for row, name in BOTH.items()}
    gains = (
        f"{domain} {percent(measures['dcsr']['RR@10'])} : {percent(measures[DPR]['RR@10'])}, "
        f"{difference(measures['dcsr']['RR@10'] - measures[DPR]['RR@10'])}"
        for domain, measures in domains.items()
    )
    return [
        *beside(table, cells, columns),
        "",
        f"RR@10, DCSR : DPR: {'; '.join(gains)} (not tested: the result file has tests against the start).",
    ]


def corpus_sizes(table: Table) -> list[str]:
    """Table 7."""
    rows = []
    for size in result(SET)["corpus_sizes"]:
        shown = [percents(size[name], PAIR_OF_MEASURES) for name in BOTH.values()]
        gains = [
            difference(size["dcsr"][measure] - size[DPR][measure], size["p"][measure]) for measure in PAIR_OF_MEASURES
        ]
        rows.append([f"{size['passages']:,}", f"{size['questions']:,}", *shown, *gains])
    both = [f"{name}: {' / '.join(PAIR_OF_MEASURES)}" for name in BOTH]
    head = ["ours, passages", "questions", *both, *(f"{measure}, difference" for measure in PAIR_OF_MEASURES)]
    trend = f"In the paper DCSR's gain shrinks as the corpus grows. Ours {_trend()}, from the smallest part to all."
    return [*beside(table), "", *grid(head, rows), "", trend]


def _trend() -> str:
    """What DCSR's gain over DPR does from the smallest part of the corpus to the whole."""
    sizes = result(SET)["corpus_sizes"]
    first, last = (
        [size["dcsr"][measure] - size[DPR][measure] for measure in PAIR_OF_MEASURES] for size in (sizes[0], sizes[-1])
    )
    shrinks = [before > after for before, after in zip(first, last, strict=True)]
    return "shrinks" if all(shrinks) else "shrinks by one measure" if any(shrinks) else "**grows**: reversed"


def dev_and_test(table: Table) -> list[str]:
    """Table 8."""
    rows = []
    for shown, name in BOTH.items():
        best = provenance()["dev"][name]["best"]["dev"]
        dev = [percent(best[f"Success@{depth}"]) for depth in (1, 5, 20)]
        rows.append([f"dev, {shown}", " / ".join([*dev, NONE])])
    rows += [[f"test, {shown}", percents(systems()[name], ("R@1", *RANKS))] for shown, name in BOTH.items()]
    return beside(table, more=rows)


SECTIONS = {
    "Table 1": questions_a_passage,
    "Table 2": over_dpr,
    "Table 3": adversarial,
    "Table 4": in_passage,
    "Table 5": training_data,
    "Table 6": transfer,
    "Table 7": corpus_sizes,
    "Table 8": dev_and_test,
}
