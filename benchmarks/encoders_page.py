"""The pages of benchmarks/encoders.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LARGE_TOKENS = 320  # of a passage, on the large set


def markdown(name: str, result: dict[str, Any], sampled: str, stages: Sequence[str] = ()) -> str:
    """A set's page."""
    dev = result["comparison"]["provenance"]["dataset"]
    lines = [
        f"# The papers' encoders on {name}",
        "",
        "Regenerate: `.venv/bin/python benchmarks/encoders.py --data DIRECTORY --work WORK "
        f"--only {name}{sampled}{''.join(f' --stage {stage}' for stage in stages)}`",
        "",
        f"{dev['passages']:,} passages; {dev['splits']['train']:,} training questions with labels and as many without; "
        "all from all-MiniLM-L6-v2 (start), one seed; settings in [encoders.toml](../encoders.toml)"
        + (f", passages of up to {LARGE_TOKENS} tokens." if name.endswith("large") else "."),
        "",
        result["table"].strip(),
        "",
        "RR@10 against BM25: "
        + "; ".join(
            f"{test['system']} {100 * test['difference']:+.1f} (p = {test['p_holm']:.2g})"
            for test in result["against_bm25"]
        )
        + ".",
    ]
    lines += _alike(result["comparison"])
    if result["findings"]:
        lines += _of_findings(result["findings"])
    if len(result["similarities"]) > 1:
        lines += _of_similarities(result["similarities"])
    if sizes := result.get("corpus_sizes"):
        lines += _of_sizes(sizes)
    for title, tables in (("Each domain apart", "domains"), ("Domains not trained on (DCSR table 6)", "elsewhere")):
        for domain, table in result.get(tables, {}).items():
            lines += ["", f"## {title}: {domain}", "", table["table"].strip()]
    return "\n".join(lines) + "\n"


def _alike(comparison: Mapping[str, Any]) -> list[str]:
    """A line for each encoder that ranks as another one of the table, and why."""
    mined = comparison["provenance"]["mined"].get("pseudo-labels")
    lines, first = list[str](), dict[str, str]()
    for system in comparison["systems"]:
        name, other = system["name"], first.setdefault(str(system["measures"]), system["name"])
        if other == name:
            continue
        why = "no epoch of its training was better on dev"
        if name == "rocketqa-4" and mined is not None and not mined["queries"]["kept"]:
            why = "no pair was sure enough for a pseudo-label, so it learned from the same examples"
        lines += ["", f"Rankings by {name} are those of {other}: {why}."]
    return lines


def _of_findings(findings: Iterable[Mapping[str, Any]]) -> list[str]:
    """The table of the papers' comparisons."""
    lines = [
        "",
        "## What the papers found",
        "",
        "| finding | measure | first | second | difference | p (Holm) | in the paper |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in findings:
        first, second = (100 * value for value in row["means"])
        lines.append(
            f"| {row['what']} | {row['measure']} | {first:.1f} | {second:.1f} | {100 * row['difference']:+.1f} | "
            f"{row['p_holm']:.2g} | {row['paper']} |"
        )
    return lines


def _of_similarities(similarities: Mapping[str, Mapping[str, float]]) -> list[str]:
    """PAIR's figure 4."""
    lines = [
        "",
        "PAIR figure 4, over test questions and their top 100 passages, mean ± deviation:",
        "",
        "| encoder | s(p⁺,q) | s(p⁺,p⁻) |",
        "| --- | ---: | ---: |",
    ]
    for system, values in similarities.items():
        lines.append(
            f"| {system} | {values['s(p+,q)']:.3f} ± {values['deviation of s(p+,q)']:.3f} | "
            f"{values['s(p+,p-)']:.3f} ± {values['deviation of s(p+,p-)']:.3f} |"
        )
    return lines


def _of_sizes(sizes: Iterable[Mapping[str, Any]]) -> list[str]:
    """DCSR's table 7."""
    lines = [
        "",
        "DCSR table 7, parts of the corpus (RR@10, R@20):",
        "",
        "| passages | questions | dpr | dcsr | difference | p |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in sizes:
        dcsr, dpr = row["dcsr"], row["dpr"]
        lines.append(
            f"| {row['passages']:,} | {row['questions']:,} | "
            f"{100 * dpr['RR@10']:.1f}, {100 * dpr['R@20']:.1f} | "
            f"{100 * dcsr['RR@10']:.1f}, {100 * dcsr['R@20']:.1f} | {100 * (dcsr['RR@10'] - dpr['RR@10']):+.1f}, "
            f"{100 * (dcsr['R@20'] - dpr['R@20']):+.1f} | {row['p']['RR@10']:.2g}, {row['p']['R@20']:.2g} |"
        )
    return lines
