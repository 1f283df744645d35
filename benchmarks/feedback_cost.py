"""What a nightly update of 1 % new events costs, against building the search from nothing; for benchmarks/feedback.py.

Both are ``gnnretrieval update`` over a simulated log: the first night has 99 % of its events, the second one the rest.
CPU seconds of this process are compared, which other programs on the machine change little.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gnnretrieval.data import Dataset
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.feedback import SimulationSettings, simulate_log
from gnnretrieval.nightly import UpdateReport, update_search
from gnnretrieval.storage.provenance import git_revision

NEW = 0.01  # of the events
WANTED = 0.05  # of the time of building from nothing
CHECKPOINT = "sentence-transformers/all-MiniLM-L6-v2"
TOKENS = 16  # of a text; few, so that encoding, which an update saves, does not outweigh the rest
# The gate is lenient, so that the first night's model is promoted, and the second night goes on from it.
_RECIPE = """name = "cost"

[data]
source = "{data}"

[encoder]
checkpoint = "{checkpoint}"
max_tokens = {tokens}

[update]
evidence = 0.49
slice_evidence = 1e-9
"""


def measure_cost(work: Path, data: Path, impressions: int) -> dict[str, Any]:
    """CPU seconds of both nights, and the wall seconds of their steps.

    Args:
        work: Directory for the search, which must be new.
        data: Dataset.
        impressions: Lists of the log.
    """
    work.mkdir(parents=True)
    log, recipe = work / "log.jsonl", work / "cost.toml"
    simulate_log(Dataset.open(data), log, SimulationSettings(impressions=impressions))
    recipe.write_text(_RECIPE.format(data=data.resolve(), checkpoint=CHECKPOINT, tokens=TOKENS), encoding="utf-8")
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    results: dict[str, Any] = {"passages": len(Dataset.open(data).passage_ids), "events": len(lines), "tokens": TOKENS}
    for name, count in (("build", round((1 - NEW) * len(lines))), ("update", len(lines))):
        log.write_text("".join(lines[:count]), encoding="utf-8")
        cpu, wall = time.process_time(), time.perf_counter()
        report = update_search(recipe, [log])
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        results[name] = {"cpu": cpu, "wall": wall, **_figures(report)}
        if report.training == "none":  # a night without training would look cheap
            raise GnnRetrievalError(f"{data}: nothing was trained ({report.decision()}). Give another set.")
    results["revision"] = git_revision()
    results["ratio"] = results["update"]["cpu"] / results["build"]["cpu"]
    return results


def _figures(report: UpdateReport) -> dict[str, Any]:
    names = ("outcome", "training", "labels", "encoded", "seconds")
    return {name: getattr(report, name) for name in names} | {"new": report.events.added}


def markdown_of_cost(cost: dict[str, Any]) -> list[str]:
    """The section of the page."""
    build, update = cost["build"], cost["update"]
    lines = [
        "",
        "## A night against building from nothing",
        "",
        f"`gnnretrieval update` over {cost['passages']:,} passages and {build['new']:,} events from nothing",
        f"({build['training']}), and again with {update['new']:,} new events, {update['new'] / cost['events']:.1%}",
        f"({update['training']}). At most {cost['tokens']} tokens of a text are encoded. One thread; the",
        "steps are wall seconds on a busy machine. Measured at "
        + (f"revision {cost['revision'][:7]}." if cost.get("revision") else "an earlier revision than the months."),
        "",
        "| | from nothing | 1 % new events |",
        "|---|---:|---:|",
        f"| all, CPU s | {build['cpu']:.1f} | {update['cpu']:.1f} |",
        f"| encoded texts | {build['encoded']:,} | {update['encoded']:,} |",
    ]
    for name in build["seconds"] | update["seconds"]:
        cells = (f"{night['seconds'].get(name, 0):.1f}" for night in (build, update))
        lines.append(f"| {name}, s | {' | '.join(cells)} |")
    met = "met" if cost["ratio"] <= WANTED else "not met"
    lines += [
        "",
        f"The update takes **{cost['ratio']:.1%}** of the CPU time. Wanted: at most {WANTED:.0%}, which is {met}.",
        "Building from nothing encodes all texts and trains many heads to choose from. An update encodes new texts",
        "and trains one head further, longer if more labels have changed. It does some things every night, whatever",
        "is new: it reads and judges all events, opens the encoder, and writes the graph and the index.",
    ]
    return lines
