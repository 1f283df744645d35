"""The page of GNN-encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from papers_rows import (
    EQUAL,
    HOLDS,
    NONE,
    REVERSED,
    SIGNIFICANT,
    Claim,
    Table,
    beside,
    counted,
    difference,
    grid,
    other_trainings,
    p_value,
    page_link,
    paper_table,
    percent,
    percents,
    result,
    several_vectors,
    sizes,
    spread,
)
from papers_same_labels import BM25, DUAL, GNN, attention_alone, over_same_labels, same_labels

RANKS = ("R@5", "R@20", "R@100")
# Sets by what the page calls them; what the results call docstrings has its passages' summaries cut out.
SETS = {
    "docstrings-cut": "gnn_encoder-docstrings",
    "squad-wiki": "gnn_encoder-squad-wiki",
    "squad-open": "gnn_encoder-squad-open",
    "squad-wiki by passage": "gnn_encoder-squad-wiki-by-passage",
    "squad-open by passage": "gnn_encoder-squad-open-by-passage",
    "fairytaleqa": "gnn_encoder-fairytaleqa",
}
SHOWN = ("squad-wiki", "docstrings-cut")  # with every measure of the paper
HELD_OUT, MORE = "gnn_encoder-docstrings-held-out", "gnn_encoder-docstrings-more"
ABLATIONS = {
    "w/o MGT": "without-masking",
    "w/o filter gate": "constant-gate",
    "w/o edge features": "without-edge-features",
    "w/ one layer": "one-layer",
}
STEPS = {
    "any passage as a negative (eq. 12)": "all-negatives",
    "no edges from labels (section 3.2)": "without-label-edges",
    "the cross-encoder's vectors on edges (section 3.2)": "cls-edges",
    "denoised positives and negatives (section 3.4)": "denoised",
    "dual-encoder and GNN trained together (Algorithm 1)": "joint",
}
Figures = Mapping[str, Any]


def _baseline(name: str, system: str = DUAL) -> Figures:
    """Measures of a system without a graph."""
    of_system = next(row for row in result(name)["baselines"]["systems"] if row["name"] == system)
    measures: Figures = of_system["measures"]
    return measures


def _variant(name: str, variant: str = GNN) -> Figures:
    """Measures of a variant, each with its mean, deviation and difference from the dual-encoder."""
    measures: Figures = result(name)["variants"][variant]["measures"]
    return measures


def _means(measures: Figures, names: Sequence[str]) -> str:
    return percents({name: measures[name]["mean"] for name in names}, names)


def _kept_dual_encoder(name: str, variant: str) -> bool:
    """Whether every seed kept the dual-encoder, because no gain on dev was significant."""
    return all(seed["context_scale"] == 0 for seed in result(name)["variants"][variant]["chosen"])


def findings(name: str) -> list[Claim]:
    """The rows of table 3 as measured on a set: the GNN-encoder against each."""
    table = paper_table("gnn-encoder", "Table 3")
    gain = _variant(name)["RR@10"]
    measured = {"w/o GNN": (gain["difference"], gain["p"])}
    for row, variant in ABLATIONS.items():
        against = result(name)["against_gnn_encoder"][variant]
        measured[row] = (-against["difference"], against["p_holm"])
    whole = table.value("GNN-encoder", "NQ", "R@5")
    return [
        Claim(row, (whole, table.value(row, "NQ", "R@5")), "R@5", *gain_and_p) for row, gain_and_p in measured.items()
    ]


def holds() -> str:
    """Whether the paper's claims hold here; first over baselines that saw the same labels."""
    gains = sorted((_variant(name)["RR@10"] for name in SETS.values()), key=lambda gain: float(gain["difference"]))
    least, most = (difference(gain["difference"]) for gain in (gains[0], gains[-1]))
    significant = sum(gain["p"] < SIGNIFICANT and gain["difference"] > 0 for gain in gains)
    whole = result(SETS["docstrings-cut"])["against_all_labels"]["trained-over-all-labels"]
    return (
        f"{over_same_labels()} The paper's own graph attention gains {least} to {most} over a dual-encoder of fewer "
        f"labels ({significant} of {len(gains)} sets significant) and {difference(whole['difference'], whole['p'])} "
        f"over one of all labels (docstrings-cut alone), but over the same frozen MiniLM {attention_alone()}."
    )


def set_up() -> str:
    """What our figures are measured on."""
    seeds, few = (result(SETS["squad-wiki"])[key] for key in ("seeds", "ablation_seeds"))
    more = result(SETS["docstrings-cut"])["ablation_seeds"]
    return (
        f"Ours are RR@10 × 100 on test where nothing else is said; {seeds} seeds of the GNN-encoder, {few} or {more} "
        "of a variant. squad-wiki is Wikipedia passages with their questions, squad-open has reviews and forum posts "
        "too; by passage, no test question's passage has a training question. docstrings-cut has passages without "
        "their summary line, which is their training question. From table 1 on, attention is over MiniLM fine-tuned on "
        "a part of the labels. Recall counts the labelled passage. What the tables say together: "
        "[graph attention](../graph_attention.md)."
    )


def retrieved(table: Table) -> list[str]:
    """Table 1."""
    encoders = result("encoders-squad-wiki")["comparison"]
    of_encoders = {system["name"]: system["measures"] for system in encoders["systems"]}
    results, name = result(SETS["squad-wiki"]), SETS["squad-wiki"]
    few = f"{encoders['provenance']['dataset']['splits']['train']:,}"
    learned = f"{round(results['query_share'] * results['dataset']['splits']['train']):,}"
    rows = {"DPR (single)": "dpr", "ANCE (single)": "ance", "RocketQA": "rocketqa-4", "PAIR": "pair"}
    cells = {row: [*_shown(of_encoders[system]), few] for row, system in rows.items()}
    cells["BM25 (anserini)"] = [*_shown(_baseline(name, BM25)), "0"]
    gnn = _variant(name)
    cells["GNN-encoder"] = [
        _means(gnn, RANKS),
        _means(gnn, ("RR@10",)),
        f"{learned}, and {results['dataset']['splits']['train']:,} in the graph",
    ]
    more = ["its dual-encoder", *_shown(_baseline(name)), learned]
    lines = beside(table, cells, (" / ".join(RANKS), "RR@10", "labels"), [more])
    return [*lines, "", f"{_over_bm25(table, name)} {several_vectors()} {other_trainings()}"]


def _over_bm25(table: Table, name: str) -> str:
    """The GNN-encoder against BM25, which the paper's is far above."""
    bm25, gnn = _baseline(name, BM25)["RR@10"], _variant(name)["RR@10"]["mean"]
    paper = " : ".join(f"{table.value(row, 'NQ', 'R@20')}" for row in ("GNN-encoder", "BM25 (anserini)"))
    order = "**reversed**, not tested" if bm25 > gnn else "not tested"
    return f"GNN-encoder : BM25, RR@10 {percent(gnn)} : {percent(bm25)}, in the paper {paper} NQ R@20 ({order})."


def _shown(measures: Figures) -> list[str]:
    return [percents(measures, RANKS), percent(measures["RR@10"])]


def ablation(table: Table) -> list[str]:
    """Table 3: by the paper's measures on two sets, then every part on every set."""
    cells = {}
    for row in table.rows:
        variant = {"GNN-encoder": GNN, **ABLATIONS}.get(row)
        cells[row] = [
            _means(_variant(SETS[name], variant), RANKS) if variant else percents(_baseline(SETS[name]), RANKS)
            for name in SHOWN
        ]
    columns = [f"{name}: {' / '.join(RANKS)}" for name in SHOWN]
    count = f"On squad-wiki, {counted(findings(SETS['squad-wiki']))}."
    return [*beside(table, cells, columns), "", *_gains(), "", *_parts(), "", count]


def _gains() -> list[str]:
    """The GNN-encoder over its dual-encoder, set by set."""
    rows = []
    for name, file in SETS.items():
        measures, alike = _variant(file), result(file)["alike"]["variants"][GNN]
        gains = [
            difference(test["difference"], test["p"])
            for test in (measures["RR@10"], measures["R@5"], measures["R@20"], alike)
        ]
        rows.append([page_link(file, name), percent(_baseline(file)["RR@10"]), spread(measures["RR@10"]), *gains])
    head = ["over w/o GNN", DUAL, "GNN-encoder", "RR@10", "R@5", "R@20", "RR@10 among one kind"]
    return [
        *grid(head, rows),
        "",
        "p uncorrected. Among one kind, a question ranks only passages with training questions if its own has some, "
        "else only passages without. So telling the two kinds apart gains nothing there; it is a part of all other "
        f"figures by passage and on fairytaleqa. {_kinds()} {_over_all_labels()}",
    ]


def _kinds() -> str:
    alike = [result(file)["alike"]["variants"][GNN] for file in SETS.values()]
    better, worse = (sum(row["p"] < SIGNIFICANT and sign * row["difference"] > 0 for row in alike) for sign in (1, -1))
    return f"Among one kind, {better} of {len(alike)} sets gain significantly and {worse} lose significantly."


def _over_all_labels() -> str:
    """The nearest to the paper's ablation: both sides had all labels. And what a linear head makes of them."""
    name, variant = SETS["docstrings-cut"], "trained-over-all-labels"
    before, after = _baseline(name, "dual-encoder, all labels")["RR@10"], spread(_variant(name, variant)["RR@10"])
    test = result(name)["against_all_labels"][variant]
    reached = f"{result('trained_encoder')['sets']['docstrings-cut']['rows']['DPR, linear-head']['mean']:.1f}"
    return (
        f"Over a dual-encoder of all labels, as in the paper, on docstrings-cut: {percent(before)}, with the GNN "
        f"{after}, {difference(test['difference'], test['p'])}; a linear head over other DPRs of the same labels has "
        f"{page_link('trained_encoder', reached)} (not tested against each other)."
    )


def _parts() -> list[str]:
    """What the loss of each part costs on every set, and on how many of them that agrees with the paper."""
    by_set = {name: {claim.what: claim for claim in findings(file)} for name, file in SETS.items()}
    rows = []
    for row, variant in ABLATIONS.items():
        of_row = {name: claims[row] for name, claims in by_set.items()}
        cells = [
            difference(-claim.gain, claim.p) + ("†" if _kept_dual_encoder(SETS[name], variant) else "")
            for name, claim in of_row.items()
        ]
        first, second = next(iter(of_row.values())).paper
        rows.append([row, f"{second - first:+.1f}", *cells, _agreement(of_row)])
    return [
        *grid(["without the part", "paper, R@5", *(f"ours, {name}" for name in SETS), "holds here"], rows),
        "",
        "RR@10 against the whole GNN-encoder by the seeds that both have (p Holm-corrected on each set). † no gain on "
        "dev was significant, so the dual-encoder was kept.",
    ]


def _agreement(of_sets: Mapping[str, Claim]) -> str:
    names = {
        verdict: [name for name, claim in of_sets.items() if claim.verdict == verdict]
        for verdict in (HOLDS, EQUAL, REVERSED)
    }
    text = f"{len(names[HOLDS])} of {len(of_sets)} sets"
    return text + (f"; **reversed** on {', '.join(names[REVERSED])}" if names[REVERSED] else "")


def steps(_: Table) -> list[str]:
    """The paper's steps that our settings change."""
    rows = []
    for step, variant in STEPS.items():
        cells = []
        for file in SETS.values():
            source = next((name for name in (file, MORE) if variant in result(name)["variants"]), None)
            if source is None or (source == MORE and file != SETS["docstrings-cut"]):
                cells.append(NONE)
                continue
            against = result(source)["against_gnn_encoder"][variant]
            cells.append(
                difference(against["difference"], against["p_holm"])
                + ("†" if _kept_dual_encoder(source, variant) else "")
            )
        rows.append([step, *cells])
    return grid(["as in the paper", *(f"ours, {name}" for name in SETS)], rows)


def edges(_: Table) -> list[str]:
    """Figure 3."""
    sets = result("gat_settings")["sets"]
    rows: dict[str, list[str]] = {}
    for figures in sets.values():
        for k, row in figures["tables"]["edges per question"].items():
            test = row["against"]
            against = "the default" if test is None else difference(test["difference"], test["p"])
            rows.setdefault(k, [k]).extend([spread({"mean": row["test"], "deviation": row["deviation"]}), against])
    head = [column for name in sets for column in (f"ours, {name}", "against 5")]
    seeds = max(figures["seeds"] for figures in sets.values())
    tests = [row["against"] for figures in sets.values() for row in figures["tables"]["edges per question"].values()]
    found = f"Best here: k = {_best([*rows.values()])}."
    if not any(test and test["p"] < SIGNIFICANT for test in tests):
        found = "No number of edges is significantly different from 5 here."
    text = f"{found} {seeds} seeds, over a frozen MiniLM ({page_link('gat_settings', 'page')})."
    return [*grid(["k", *head], rows.values()), "", text]


def attention(_: Table) -> list[str]:
    """Figure 2, over many passages."""
    rows = []
    for name, figures in result("attention_scores")["sets"].items():
        for training, ratio in figures["ratio"].items():
            means = figures["means"][training]
            shown = [f"{means[kind]:.3f}" for kind in ("labelled", "other", "own")]
            rows.append([name, training, *shown, f"{ratio:.2f}", f"{means['first']:.0%}"])
    ratios = "; ".join(
        f"{name}: {figures['ratio']['without']:.2f} without masking and {figures['ratio']['with masking']:.2f} with it "
        f"({p_value(figures['p'])})"
        for name, figures in result("attention_scores")["sets"].items()
    )
    head = ["set", "training", "labelled", "other", "the passage itself", "labelled by other", "labelled first"]
    lead = f"A labelled question's attention by another one's ({page_link('attention_scores', 'page')})"
    return [*grid(head, rows), "", f"{lead}: {ratios}."]


def masked(_: Table) -> list[str]:
    """Figure 4."""
    test = {row["value"]: spread(row) for row in _sweep(SETS["docstrings-cut"], "mask_ratio")}
    rows = []
    for row in _sweep(HELD_OUT, "mask_ratio"):
        against = row["against_gnn_encoder"]
        compared = difference(against["difference"], against["p_holm"]) if against else "the default"
        rows.append([str(row["value"]), spread(row), compared, test.get(row["value"], NONE)])
    seeds = [result(file).get("sweep_seeds", 1) for file in (HELD_OUT, SETS["docstrings-cut"])]
    head = [f"ours, {page_link(HELD_OUT, 'held out')}, seeds: {seeds[0]}", "against 0.2"]
    ratio = "gnn_encoder-docstrings-mask-ratio"
    whole = _variant(ratio)["RR@10"], _variant(SETS["docstrings-cut"])["RR@10"]
    highest = _best(rows) == rows[-1][0]
    best = "**This is reversed**: the highest ratio is best" if highest else f"The best ratio is {_best(rows)}"
    return [
        *grid(["β", *head, f"ours, docstrings-cut on test, seeds: {seeds[1]}"], rows),
        "",
        f"{best}. On test with five seeds, β = 0.9 has {page_link(ratio, spread(whole[0]))}, 0.2 {spread(whole[1])}.",
    ]


def _sweep(file: str, setting: str) -> list[Figures]:
    rows: list[Figures] = result(file)["sweeps"][setting]
    return rows


def _best(rows: Sequence[Sequence[str]]) -> str:
    """The setting with the best mean."""
    return max(rows, key=lambda row: float(row[1].split()[0]))[0]


def cost(table: Table) -> list[str]:
    """Table 4."""
    sets, late = result("efficiency")["sets"], result("late_interaction")["sets"]["squad-open"]["rows"]["systems"]
    figures, several = sets["docstrings-cut"], sets["squad-open"]["milliseconds_a_query"]
    passage, question = figures["milliseconds_a_document"], figures["milliseconds_a_query"]
    both = passage[DUAL] + passage["graph"]
    cells = {
        "DPR": [f"{passage[DUAL]:.2f} ms", f"{question[DUAL]['median']:.2f} ms", f"{late[DUAL]['ms']:.0f} ms"],
        "ColBERT": [NONE, NONE, f"{late['late interaction']['ms']:.0f} ms"],
        "GNN-encoder": [f"{both:.2f} ms", f"{question[GNN]['median']:.2f} ms", f"{late[GNN]['ms']:.0f} ms"],
    }
    columns = [
        f"{page_link('efficiency', 'docstrings-cut')}: document encoding",
        "docstrings-cut: retrieval",
        f"{page_link('late_interaction', 'squad-open')}: retrieval",
    ]
    once = passage["queries"] * figures["graph_queries"] / figures["passages"]
    return [
        *beside(table, cells, columns),
        "",
        f"Here the GNN-encoder takes {question[GNN]['median'] / question[DUAL]['median']:.3f} of the dual-encoder's "
        f"time for a question (paper: {_ratio(table, 'retrieval'):.3f}) and {both / passage[DUAL]:.3f} for a document "
        f"(paper: {_ratio(table, 'document'):.3f}). Encoding the graph's questions once is another {once:.2f} ms a "
        "document. On squad-open training keeps several vectors a passage, and a question takes "
        f"{several[GNN]['median'] / several[DUAL]['median']:.3f} of the dual-encoder's time.",
    ]


def _ratio(table: Table, column: str) -> float:
    """The paper's milliseconds of the GNN-encoder for one of DPR."""
    at = next(number for number, title in enumerate(table.columns) if title.startswith(column))
    gnn, dpr = (float(table.rows[row][at].removesuffix(" ms")) for row in ("GNN-encoder", "DPR"))
    return gnn / dpr


def size_rows(table: Table) -> list[str]:
    """Table 6."""
    sets = {name: result(file)["dataset"] for name, file in SETS.items()}
    return beside(
        table, more=[[name, *sizes(dataset["splits"], dataset["passages"])] for name, dataset in sets.items()]
    )


SECTIONS = {
    "Same labels": same_labels,
    "Table 1": retrieved,
    "Table 3": ablation,
    "Section 3": steps,
    "Figure 2": attention,
    "Figure 3": edges,
    "Figure 4": masked,
    "Table 4": cost,
    "Table 6": size_rows,
}
