"""The page of benchmarks/feedback.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from feedback_cost import markdown_of_cost

WORSE = 0.003  # RR@10 that a promoted version may lose on the truth
WITHOUT = ("label mean", "linear head", "from scratch")


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    lines = [
        "# Nights of feedback",
        "",
        "A search that learns from its own clicks, simulated. Every night the clicks of all days so far are judged, a",
        "model is trained or goes on from the promoted one, and the gate compares both on the newest questions, by",
        "their clicks. The tables compare them on the truth: the relevant passages of test questions, which nobody",
        "asks. `.venv/bin/python benchmarks/feedback.py --help` says how the page is made again.",
        "",
    ]
    for name, figures in results["sets"].items():
        settings = figures["settings"]
        lines += [
            f"- {name}: {figures['passages']:,} passages, {figures['asked']:,} questions that are asked, "
            f"{figures['truth']:,} of",
            f"  the truth; {settings['impressions']:,} lists of {settings['shown']} a night; vectors:",
            f"  {settings['vectors']}; {settings['heads']} of 3 numbers of steps of a head are tried.",
        ]
    lines += [
        "",
        "So that months fit into minutes, vectors are narrow, training tries only short heads, and passages do not",
        "change. Users differ from this model of them. In sets called *joined*, users see what is served joined with",
        "BM25's ranking, in the others what is served alone.",
        "",
        *_promoted(results["gate"]),
        "The gate promotes if its doubt is 0.02 or less: the probability that the candidate is no better, if gains are",
        "seldom larger than 3 RR@10. By p ≤ 0.01 alone, one of 18 promotions on this truth lost 1.2, on 55 questions;",
        "therefore the rule was looked for. Its two numbers were chosen with the dev questions as the truth.",
        "",
        "Clicks are on what the served version showed. Training and the gate compare models among the shown passages,",
        "and a question counts by the inverse of its chance of a label, so that clicks on the served list alone can",
        "show that another order is better. The gate needs many questions for that. *Refused, though better* counts",
        "the nights whose candidate gains more than 0.3 on the truth.",
    ]
    lines += [*_of_gate(results["gate"]), *_of_nights(results["curves"]), *_of_times(results["times"])]
    lines += markdown_of_cost(results["cost"]) if results["cost"] else []
    lines += ["", f"Revision {results['git_revision']}."]
    return "\n".join(lines) + "\n"


def _of_gate(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The table of promotions."""
    lines = [
        "",
        "## What the gate lets by",
        "",
        f"RR@10 × 100. A promotion is *worse* if it loses more than {100 * WORSE:.1f} on the truth.",
        "",
        "| set | wrong clicks | months | nights | with a candidate | promoted | worse | largest loss of one "
        "| below the best before | refused, though better | refused, and worse | frozen encoder | last night |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        wrong = "random" if row["wrong"] == 1 else f"{row['wrong']:.0%}"
        promoted = f"{row['promoted']:,} ({row['promoted'] / row['nights']:.1%})"
        lines.append(
            f"| {row['set']} | {wrong} | {row['months']} | {row['nights']:,} | {row['tested']:,} | {promoted} | "
            f"{row['worse']} | {100 * max(row['largest_drop'], 0):.1f} | "
            f"{100 * max(row['largest_drop_from_best'], 0):.1f} | {row['refused_better']:,} | "
            f"{row['refused_worse']:,} | {100 * row['frozen']:.1f} | {100 * row['end']:.1f} |"
        )
    return lines


def _of_nights(curves: Iterable[Mapping[str, Any]]) -> list[str]:
    """Tables of RR@10 by night."""
    lines = ["", "## Night by night", "", "![RR@10 by night](feedback.svg)", ""]
    for curve in curves:
        lines += [
            f"{curve['set']}, {curve['wrong']:.0%} wrong clicks. The loop is the gated one; the others use the same",
            "clicks every night, without a gate.",
            "",
            "| night | frozen | loop | " + " | ".join(WITHOUT) + " |",
            "|---:|---:|---:|" + "---:|" * len(WITHOUT),
        ]
        for night, others in curve["without_gate"].items():
            loop = curve["loop"][int(night) - 1]
            cells = [f"{100 * others[use]:.1f}" if use in others else "" for use in WITHOUT]
            lines.append(f"| {night} | {100 * curve['frozen']:.1f} | {100 * loop:.1f} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def _of_times(times: Mapping[str, Any]) -> list[str]:
    """The table of seconds."""
    lines = ["## Time", "", "Seconds of judging, training and the gate a night, on a busy machine.", ""]
    lines += ["| set | mean night | with a warm start | from scratch |", "|---|---:|---:|---:|"]
    for name, seconds in times.items():
        cells = [
            "" if seconds[key] is None else f"{seconds[key]:.1f}"
            for key in ("seconds", "seconds_of_warm", "seconds_of_full")
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _promoted(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many months there were, and how many promotions, with a signal and without one."""
    signal, random = ([row for row in rows if (row["wrong"] < 1) == has] for has in (True, False))

    def total(part: Sequence[Mapping[str, Any]], key: str) -> int:
        return sum(row[key] for row in part)

    months, nights = total(signal, "months"), total(signal, "nights")
    promoted, worse = total(signal, "promoted"), total(signal, "worse")
    return [
        f"In {months} months with {nights:,} nights and 10 to 40 % wrong clicks, {promoted} new models were promoted;",
        f"**{worse} of them are worse**. In {total(random, 'months')} months of random clicks,",
        f"{total(random, 'promoted')} were promoted in {total(random, 'nights'):,} nights.",
    ]
