"""Pages and plots of benchmarks/gnn_encoder.py; as a script, it writes all pages again from their JSON files."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from svg_plot import line_plot

PLAN = tomllib.loads((Path(__file__).resolve().parent / "gnn_encoder.toml").read_text(encoding="utf-8"))
DUAL, GNN, OVER_ALL = "dual-encoder", "gnn-encoder", "over-all-labels"


def sweep_plot(setting: str, rows: Sequence[dict[str, Any]], result: dict[str, Any]) -> str:
    """SVG of a sweep: RR@10 of each value, and of the dual-encoder."""
    base = 100 * next(s for s in result["baselines"]["systems"] if s["name"] == DUAL)["measures"]["RR@10"]
    return line_plot(
        PLAN["sweeps"][setting]["title"],
        [row["value"] for row in rows],
        [100 * row["mean"] for row in rows],
        [100 * row["deviation"] for row in rows],
        (PLAN["sweeps"][setting]["axis"], "RR@10"),
        {DUAL: base},
    )


def markdown(name: str, result: dict[str, Any]) -> str:
    """A set's page."""
    lines = [
        *_introduction(name, result),
        *_variants(result),
        *_alike(result),
        *_unrepeated(result),
        *_domains(result),
        *(
            line
            for setting, rows in result["sweeps"].items()
            for line in _sweep(name, setting, rows, result.get("sweep_seeds", 1))
        ),
        *_chosen(result),
    ]
    return "\n".join(lines) + "\n"


def _introduction(name: str, result: dict[str, Any]) -> list[str]:
    dataset, splits = result["dataset"], result["dataset"]["splits"]
    options = "".join(f" --variant {variant}" for variant in result["asked"])
    command = f"benchmarks/gnn_encoder.py --data DIRECTORY --work WORK --only {name} --seeds {result['seeds']}{options}"
    return [
        f"# GNN-encoder on {result['title']}",
        "",
        f"Regenerate: `.venv/bin/python {command}`",
        "",
        f"{dataset['passages']:,} passages; {splits['train']:,} training, {splits['dev']:,} dev and {splits['test']:,} "
        f"test questions. The dual-encoder is all-MiniLM-L6-v2 fine-tuned on {result['query_share']:.0%} of the "
        f"training questions{', the other one on all of them' if result['against_all_labels'] else ''}; the graph is "
        f"of all; {result['seeds']} seeds of the GNN's training, {result['ablation_seeds']} of a variant's where no "
        "other number is said. Settings: [gnn_encoder.toml](../gnn_encoder.toml)."
        + (f" {note}" if (note := PLAN["sets"][name].get("note")) else ""),
        "",
        result["baseline_table"].strip(),
    ]


def _variants(result: dict[str, Any]) -> list[str]:
    of_all = result["against_all_labels"]
    beside = "then RR@10 against the dual-encoder that had all labels, tested alike; " if of_all else ""
    lines = [
        "",
        "## GNN-encoder, and what each part is worth",
        "",
        "Mean ± deviation over seeds on test; Δ is RR@10 against the dual-encoder (its worst seed in brackets), with a "
        f"paired t-test over questions; {beside}then RR@10 among alike passages (below); then against the GNN-encoder "
        "by the seeds that both have, Holm-corrected. The last column is RR@10 on dev, mean over seeds, by which "
        "settings are chosen.",
        "",
        f"| variant | RR@10 | nDCG@10 | R@20 | Δ (worst) | p |{' against all labels (p) |' if of_all else ''} "
        "alike (p) | against gnn-encoder (p) | dev |",
        f"| --- | ---: | ---: | ---: | ---: | ---: |{' ---: |' if of_all else ''} ---: | ---: | ---: |",
    ]
    for variant, row in result["variants"].items():
        what = PLAN["variants"].get(variant, {}).get("what", variant)
        if variant not in (GNN, OVER_ALL) and (seeds := len(row["chosen"])) != result["ablation_seeds"]:
            what += f" ({_seeds(seeds)})"
        first, among = row["measures"]["RR@10"], result["alike"]["variants"][variant]
        against = result["against_gnn_encoder"].get(variant)
        cells = [what, *(_mean(row["measures"][measure]) for measure in ("RR@10", "nDCG@10", "R@20"))]
        cells += [_difference(first), f"{first['p']:.2g}"]
        if of_all:
            cells.append(f"{100 * of_all[variant]['difference']:+.1f} ({of_all[variant]['p']:.2g})")
        cells.append(f"{100 * among['mean']:.1f}, {100 * among['difference']:+.1f} ({among['p']:.2g})")
        cells += [_against(against), f"{100 * mean(one['RR@10'] for one in row['chosen']):.1f}"]
        lines.append(_row(cells))
    return lines


def _alike(result: dict[str, Any]) -> list[str]:
    alike = result["alike"]
    return [
        "",
        f"Among alike passages: {alike['passages_without_questions']:,} of {result['dataset']['passages']:,} passages "
        f"have no training question, and {alike['asked_for_without_questions']:.0%} of those that test asks for. A "
        "ranking that does no more than tell the two apart gains on such a set. Here each question ranks only passages "
        f"that are as its own in this: there the dual-encoder has {100 * alike[DUAL]:.1f} RR@10.",
    ]


def _unrepeated(result: dict[str, Any]) -> list[str]:
    rest = result["unrepeated"]
    repeated = rest["of"] - rest["questions"]
    if not repeated:
        return []
    return [
        "",
        f"{repeated:,} of the {rest['of']:,} test questions are in the graph word for word. "
        f"Without them the GNN-encoder gains {100 * rest['difference']:+.1f} (p = {rest['p']:.2g}).",
    ]


def _domains(result: dict[str, Any]) -> list[str]:
    if not result["domains"]:
        return []
    lines = [
        "",
        "## Each domain apart",
        "",
        "| domain | questions | over | dual-encoder | gnn-encoder | Δ (worst) | p |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in result["domains"]:
        cells = [row["domain"], f"{row['questions']:,}", row["over"], f"{100 * row['before']:.1f}"]
        lines.append(_row([*cells, _mean(row), _difference(row), f"{row['p']:.2g}"]))
    return lines


def _sweep(name: str, setting: str, rows: Sequence[dict[str, Any]], seeds: int) -> list[str]:
    tested = any(row.get("against_gnn_encoder") for row in rows)
    return [
        "",
        f"## {PLAN['sweeps'][setting]['title']}",
        "",
        f"![{setting}](gnn_encoder-{name}-{setting}.svg)",
        "",
        f"{_seeds(seeds)} a value.",
        "",
        f"| {setting} | RR@10 | Δ |{' against gnn-encoder (p) |' if tested else ''}",
        f"| ---: | ---: | ---: |{' ---: |' if tested else ''}",
        *(
            _row(
                [
                    str(row["value"]),
                    _mean(row),
                    f"{100 * row['difference']:+.1f}",
                    *([_against(row["against_gnn_encoder"])] if tested else []),
                ]
            )
            for row in rows
        ),
    ]


def _chosen(result: dict[str, Any]) -> list[str]:
    chosen = result["variants"][GNN]["chosen"]
    return [
        "",
        "Chosen on dev, seed by seed: "
        + "; ".join(f"epoch {row['epoch']}, λ {row['context_scale']:g}" for row in chosen)
        + f". The graph: k = {result['graph']['k']}, see `graph` in the JSON file for all of its figures.",
    ]


def _seeds(number: int) -> str:
    return f"{number} seed{'s' if number != 1 else ''}"


def _against(test: dict[str, float] | None) -> str:
    return "" if test is None else f"{100 * test['difference']:+.1f} ({test['p_holm']:.2g})"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _mean(figures: dict[str, float]) -> str:
    spread = f" ± {100 * figures['deviation']:.1f}" if figures["deviation"] else ""  # one seed has none
    return f"{100 * figures['mean']:.1f}{spread}"


def _difference(figures: dict[str, float]) -> str:
    return f"{100 * figures['difference']:+.1f} ({100 * figures['worst_difference']:+.1f})"


if __name__ == "__main__":
    for path in sorted((Path(__file__).resolve().parent / "results").glob("gnn_encoder-*.json")):
        page = markdown(path.stem.removeprefix("gnn_encoder-"), json.loads(path.read_text(encoding="utf-8")))
        path.with_suffix(".md").write_text(page, encoding="utf-8")
