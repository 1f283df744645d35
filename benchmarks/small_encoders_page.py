"""The page of small_encoders.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from late_interaction import QUICK_TOKENS, RECALL, RR
from same_labels_page import difference

NAMES = {
    "bm25": "BM25",
    "start": "dual-encoder (untuned MiniLM)",
    "gnn-encoder": "GNN-encoder over it",
    "dpr": "DPR",
    "step-1": "RocketQA, step 1 (in-batch negatives)",
    "step-3": "RocketQA, step 3 (denoised hard negatives)",
    "step-4": "RocketQA, step 4 (pseudo-labels)",
    "rocketqav2": "RocketQAv2, from step 1",
    "pair": "PAIR",
    "dcsr": "DCSR",
    "dcsr-adversarial": "DCSR, adversarial",
    "retromae": "RetroMAE on the passages, then DPR",
    "condenser": "Condenser on the passages, then DPR",
    "cocondenser": "Condenser and coCondenser on the passages, then DPR",
    "gnn-encoder-over-dpr": "GNN-encoder over DPR",
    "gnn-encoder-over-step-4": "GNN-encoder over RocketQA, step 4",
    "gnn-encoder-over-rocketqav2": "GNN-encoder over RocketQAv2",
    "gnn-encoder-over-pair": "GNN-encoder over PAIR",
    "gnn-encoder-over-dcsr": "GNN-encoder over DCSR's sentences, their mean",
    "gnn-encoder-over-retromae": "GNN-encoder over RetroMAE, then DPR",
    "gnn-encoder-over-cocondenser": "GNN-encoder over Condenser and coCondenser, then DPR",
    "splade": "SPLADE",
    "splade-distilled": "SPLADE, then distilled from a cross-encoder",
    "term-weights": "term weights: SPLADE without expansion",
    "gnn-encoder + splade": "GNN-encoder and SPLADE",
    "gnn-encoder + splade-distilled": "GNN-encoder and distilled SPLADE",
    "gnn-encoder + term-weights": "GNN-encoder and term weights",
    "gnn-encoder + bm25": "GNN-encoder and BM25",
}


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    lines = [
        "# The encoder recipes on small samples",
        "",
        "Every recipe of `encoder train NAME --small` but late interaction's ([its page](late_interaction.md)). All",
        f"start from MiniLM, learn from the same labels, and read {QUICK_TOKENS} tokens of a passage. Cross-encoders",
        "are trained for one epoch with two negatives. RocketQA's step 4 and PAIR also see training questions without",
        "labels, as in their papers. Where DCSR reads no sentence with an answer, it learns from the one that shares",
        "most words with the question. An encoder that is no better on dev after training keeps the weights that it",
        "started from: RocketQAv2 is then its step 1, and distilled SPLADE is SPLADE. MiniLM has no head for masked",
        "language modelling. SPLADE's is trained on these passages alone, where published SPLADE models start from one",
        "that is trained on billions of words. Two rankings are joined by weights chosen on dev.",
        "",
        "A GNN-encoder over a trained encoder is `gnnretrieval train` by its defaults over a graph of that encoder's",
        "vectors. The encoder has learned from the graph's questions, so that only dev's choose. What is kept then is",
        "mostly the prior, which ranks passages with training questions lower: other systems could do the same.",
        "",
        "RR@10 and R@100 × 100 on test, means over seeds. Δ is the difference in RR@10 from the GNN-encoder, with a",
        "95 % bootstrap interval and the p of a paired t-test by question, not corrected for the number of rows. Bytes",
        "are those of a passage in the index. ms is the median time of a question, one at a time from its text to its",
        "ranking, on a machine that did other work too: read ratios.",
        "",
        "`.venv/bin/python benchmarks/small_encoders.py --data DIRECTORY --work WORK` makes this page.",
    ]
    for name, figures in results["sets"].items():
        lines += ["", *_section(name, figures)]
    return "\n".join(lines) + "\n"


def _section(name: str, figures: Mapping[str, Any]) -> list[str]:
    seeds = "one seed" if figures["seeds"] == 1 else f"{figures['seeds']} seeds"
    lines = [
        f"## {name}",
        "",
        f"A sample: {figures['passages']:,} passages, {figures['labels']:,} training and {figures['questions']:,} test "
        f"questions; {seeds}. {figures['unlabelled']:,} more training questions have no labels.",
        "",
        "| system | RR@10 | R@100 | bytes | ms | Δ |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for system, row in figures["systems"].items():
        deviation = "" if row["deviation"] is None else f" ± {row['deviation']:.1f}"
        cost = [f"{row[key]:{shown}}" if key in row else "–" for key, shown in (("bytes", ",.0f"), ("ms", ".1f"))]
        gain = difference(row["test"]) if "test" in row else "–"
        lines.append(
            f"| {NAMES[system]} | {row[RR]:.1f}{deviation} | {row[RECALL]:.1f} | {cost[0]} | {cost[1]} | {gain} |"
        )
    lines += ["", "| difference | RR@10 |", "|---|---:|"]
    lines += [f"| {NAMES[of]} − {NAMES[test['than']]} | {difference(test)} |" for of, test in figures["pairs"].items()]
    weights = [
        f"{NAMES[other]} {', '.join(f'{second:g}' for _, second in pairs)}"
        for other, pairs in figures["weights"].items()
    ]
    kept = [f"- {NAMES[name]}: {'; '.join(by_seed)}" for name, by_seed in figures["kept"].items()]
    return [
        *lines,
        "",
        "What training kept over each encoder on dev, by seed:",
        "",
        *kept,
        "",
        f"Weights beside the GNN-encoder, by seed: {'; '.join(weights)}.",
        "",
        f"Revision {figures['git_revision']}.",
    ]
