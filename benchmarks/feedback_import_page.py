"""The page of benchmarks/feedback_import.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from feedback_propensities import ESTIMATES

SEEDS = 5  # logs by which estimates of propensities are compared
RAW, PLAIN, IMPORTED, TRUE = "raw clicks", "import without propensities", "feedback import", "true labels"
WEIGHTED = "with weighted dev questions"
OTHER_LOG = "At 10 % and 40 % that column is from another log, of 30,000 lists: to be measured again."


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    lines = [
        "# Labels from clicks",
        "",
        f"{results['impressions']:,} simulated lists of ten passages over the docstring corpus, ranked by BM25 with",
        "noise. Position k is examined with probability 1/k. Real users differ, and examine lists in other ways.",
        "`.venv/bin/python benchmarks/feedback_import.py --work WORK` makes this page.",
        "",
        *_of_propensities(results["propensities"]),
        "",
        *_of_rates(results["rates"]),
        "",
        *_of_labels(results["labels"], results["chosen"]),
        "",
        *_of_training(results),
        "",
        f"Revision {results['git_revision']}.",
    ]
    return "\n".join(lines) + "\n"


def _of_propensities(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Errors of each estimate of the position bias."""
    lines = [
        "## Position bias",
        "",
        f"Mean absolute error of ln(propensity) against the planted ones, mean of {SEEDS} logs. `feedback import` uses",
        "the last column.",
        "",
    ]
    names = (*ESTIMATES, IMPORTED)
    lines += ["| impressions | wrong clicks | " + " | ".join(names) + " |", "|---:|---:|" + "---:|" * len(names)]
    for row in rows:
        best = min(row[name] for name in names)
        cells = [f"**{row[name]:.3f}**" if row[name] == best else f"{row[name]:.3f}" for name in names]
        lines.append(f"| {row['impressions']:,} | {row['wrong']:.0%} | {' | '.join(cells)} |")
    return lines


def _of_rates(rates: Mapping[str, Any]) -> list[str]:
    """Click rates of passages that are no answer: planted and estimated."""
    lines = [
        "## Click rate of passages that are no answer",
        "",
        "Planted, and as the background that `feedback import` estimates from clicks alone.",
        "",
        "| wrong clicks | planted rate | estimated rate | estimated share of background clicks |",
        "|---:|---:|---:|---:|",
    ]
    for wrong, rate in rates.items():
        planted, estimated = rate["planted"]["wrong_attraction"], rate["estimated"]
        share = estimated["share_background_clicks"]
        lines.append(f"| {float(wrong):.0%} | {planted:.3f} | {estimated['background']:.3f} | {share:.1%} |")
    return lines


def _of_labels(labels: Mapping[str, Any], thresholds: Mapping[str, float]) -> list[str]:
    """Precision and recall of the labels."""
    chosen = ", ".join(f"`{name}` {value:g}" for name, value in thresholds.items())
    lines = [
        "## Labels against the truth",
        "",
        f"Thresholds are chosen by the mean F1 of dev's labels ({chosen}). Recall is",
        "over the relevant passages that were shown. Raw clicks: whatever was clicked once.",
        "Without the correction of position bias, labels can be more precise here: the simulated search ranks relevant",
        "passages first, so position is evidence too. But far more of the hard negatives are relevant, since what",
        "nobody looked at counts as never clicked.",
        "",
        "| wrong clicks | labels by | train: labels | precision | recall | test: precision | recall | hard negatives |"
        " of them relevant |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for wrong, ways in labels.items():
        for name, by_split in ways.items():
            train, test = by_split["train"], by_split["test"]
            negatives = ("", "") if name == RAW else (f"{train['hard_negatives']:,}", f"{train['wrong_negatives']:,}")
            shares = (train["precision"], train["recall"], test["precision"], test["recall"])
            percent = [f"{100 * share:.1f}" for share in shares]
            cells = [f"{float(wrong):.0%}", name, f"{train['labels']:,}", *percent, *negatives]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def _of_training(results: Mapping[str, Any]) -> list[str]:
    """What a GNN-encoder learns from the labels."""
    lines = [
        "## Training on them",
        "",
        "RR@10 × 100 on the true labels of test by the default GNN-encoder over frozen MiniLM, trained and chosen on",
        f"such labels of train and dev; one seed. Dual-encoder: {100 * results['dual-encoder']:.1f}. With the true",
        f"labels of all questions: {100 * results['true']['RR@10']:.1f}.",
        "",
        f"*{WEIGHTED}* also chooses by clicks: a dev question ranks what it was shown, and counts by the inverse of",
        "its chance of a label. Δ is the difference to the column before, and p that of a paired t-test.",
        *([] if results.get("one_log_a_row") else [OTHER_LOG]),
        "",
        f"| wrong clicks | {RAW} | {IMPORTED} | Δ (p) | {WEIGHTED} | Δ (p) |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for wrong, trained in results["training"].items():
        cells = [f"{float(wrong):.0%}", f"{100 * trained[RAW]['RR@10']:.1f}"]
        for name in (IMPORTED, WEIGHTED):
            test = trained[name]["test"]
            cells += [f"{100 * trained[name]['RR@10']:.1f}", f"{100 * test['difference']:+.1f} ({test['p']:.2g})"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
