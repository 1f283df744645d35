"""The page of a set of benchmarks/gnn_encoder.py, and the plots of its sweeps."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from svg_plot import line_plot

PLAN = tomllib.loads((Path(__file__).resolve().parent / "gnn_encoder.toml").read_text(encoding="utf-8"))
DUAL, GNN = "dual-encoder", "gnn-encoder"


def sweep_plot(setting: str, rows: Sequence[dict[str, Any]], result: dict[str, Any]) -> str:
    """SVG of a sweep: RR@10 of each value, and of the dual-encoder."""
    base = 100 * next(s for s in result["baselines"]["systems"] if s["name"] == DUAL)["measures"]["RR@10"]
    return line_plot(
        PLAN["sweeps"][setting]["title"],
        [row["value"] for row in rows],
        [100 * row["mean"] for row in rows],
        [100 * row["deviation"] for row in rows],
        "RR@10",
        {DUAL: base},
    )


def markdown(name: str, result: dict[str, Any]) -> str:
    """A set's page."""
    dataset, graph, splits = result["dataset"], result["graph"], result["dataset"]["splits"]
    of_all = result["against_all_labels"]
    beside = "then RR@10 against the dual-encoder that had all labels, tested alike; " if of_all else ""
    lines = [
        f"# GNN-encoder on {result['title']}",
        "",
        f"Regenerate: `.venv/bin/python benchmarks/gnn_encoder.py --data DIRECTORY --work WORK --only {name}"
        f" --seeds {result['seeds']}{''.join(f' --variant {one}' for one in result['asked'])}`",
        "",
        f"{dataset['passages']:,} passages; {splits['train']:,} training, {splits['dev']:,} dev and {splits['test']:,} "
        f"test questions. The dual-encoder is all-MiniLM-L6-v2 fine-tuned on {result['query_share']:.0%} of the "
        f"training questions{', the other one on all of them' if of_all else ''}; the graph is of all; "
        f"{result['seeds']} seeds of the GNN's training, {result['ablation_seeds']} of a variant's. Settings: "
        "[gnn_encoder.toml](../gnn_encoder.toml).",
        "",
        result["baseline_table"].strip(),
        "",
        "## GNN-encoder, and what each part is worth",
        "",
        "Mean ± deviation over seeds on test; Δ is RR@10 against the dual-encoder (its worst seed in brackets), with a "
        f"paired t-test over questions; {beside}then RR@10 among alike passages (below); the last column is against "
        "the GNN-encoder by the seeds that both have, Holm-corrected.",
        "",
        f"| variant | RR@10 | nDCG@10 | R@20 | Δ (worst) | p |{' against all labels (p) |' if of_all else ''} "
        "alike (p) | against gnn-encoder (p) |",
        f"| --- | ---: | ---: | ---: | ---: | ---: |{' ---: |' if of_all else ''} ---: | ---: |",
    ]
    for variant, row in result["variants"].items():
        what = PLAN["variants"].get(variant, {}).get("what")
        measures = row["measures"]
        cells = [
            f"{100 * measures[m]['mean']:.1f} ± {100 * measures[m]['deviation']:.1f}"
            for m in ("RR@10", "nDCG@10", "R@20")
        ]
        among = result["alike"]["variants"][variant]
        first, against = measures["RR@10"], result["against_gnn_encoder"].get(variant)
        versus = "" if against is None else f"{100 * against['difference']:+.1f} ({against['p_holm']:.2g})"
        beside = ""
        if of_all:
            beside = f" {100 * of_all[variant]['difference']:+.1f} ({of_all[variant]['p']:.2g}) |"
        lines.append(
            f"| {variant if what is None else what} | {' | '.join(cells)} | {100 * first['difference']:+.1f} "
            f"({100 * first['worst_difference']:+.1f}) | {first['p']:.2g} |{beside} "
            f"{100 * among['mean']:.1f}, {100 * among['difference']:+.1f} ({among['p']:.2g}) | {versus} |"
        )
    alike = result["alike"]
    lines += [
        "",
        f"Among alike passages: {alike['passages_without_questions']:,} of {dataset['passages']:,} passages have no "
        f"training question, and {alike['asked_for_without_questions']:.0%} of those that test asks for. A "
        "ranking that does no more than tell the two apart gains on such a set. Here each question ranks only passages "
        f"that are as its own in this: there the dual-encoder has {100 * alike[DUAL]:.1f} RR@10.",
    ]
    rest = result["unrepeated"]
    if repeated := rest["of"] - rest["questions"]:
        lines += [
            "",
            f"{repeated:,} of the {rest['of']:,} test questions are in the graph word for word. "
            f"Without them the GNN-encoder gains {100 * rest['difference']:+.1f} (p = {rest['p']:.2g}).",
        ]
    if result["domains"]:
        lines += [
            "",
            "## Each domain apart",
            "",
            "| domain | questions | over | dual-encoder | gnn-encoder | Δ (worst) | p |",
            "| --- | ---: | --- | ---: | ---: | ---: | ---: |",
        ]
        for row in result["domains"]:
            lines.append(
                f"| {row['domain']} | {row['questions']:,} | {row['over']} | {100 * row['before']:.1f} | "
                f"{100 * row['mean']:.1f} ± {100 * row['deviation']:.1f} | {100 * row['difference']:+.1f} "
                f"({100 * row['worst_difference']:+.1f}) | {row['p']:.2g} |"
            )
    for setting, rows in result["sweeps"].items():
        lines += [
            "",
            f"## {PLAN['sweeps'][setting]['title']}",
            "",
            f"![{setting}](gnn_encoder-{name}-{setting}.svg)",
            "",
        ]
        lines += [f"| {setting} | RR@10 | Δ |", "| ---: | ---: | ---: |"]
        lines += [
            f"| {row['value']} | {100 * row['mean']:.1f} ± {100 * row['deviation']:.1f} | "
            f"{100 * row['difference']:+.1f} |"
            for row in rows
        ]
    chosen = result["variants"][GNN]["chosen"]
    lines += [
        "",
        "Chosen on dev, seed by seed: "
        + "; ".join(f"epoch {one['epoch']}, λ {one['context_scale']:g}" for one in chosen)
        + f". The graph: k = {graph['k']}, see `graph` in the JSON file for all of its figures.",
    ]
    return "\n".join(lines) + "\n"
