"""The page of benchmarks/scale_out.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from result_files import revisions_in_words
from scale_out_training import ENDS, TITLES

SHARDS = 11
WORKERS = (1, 2, 3, 7)
STAGES = ("encoding", "top-k")
TARGETS = ("worker", "node", "driver")


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    lines = [
        "# Stages in shards",
        "",
        "`python benchmarks/scale_out.py --work DIRECTORY` makes this page. The hosts are two network namespaces of",
        "one machine, each with a Ray node of one processor. The texts are",
        f"{results['passages']:,} passages of the docstring corpus and their questions, in {SHARDS} shards a side.",
        "",
        *_of_bytes(results["bytes"]),
        *_of_kills(results["bytes"]),
        *_of_storage(results["storage"]),
        *_of_speed(results["speed"]),
        "",
        *_of_training(results["training"]),
        *_of_merging(results["merging"]),
    ]
    if results["speed"] is None:
        lines += ["The ratio of two workers of one thread to one was not measured: it wants a quiet machine.", ""]
    lines += ["NCCL and `--device cuda` were not run.", "", _revisions(results), ""]
    return "\n".join(lines)


def _revisions(results: Mapping[str, Any]) -> str:
    """The revisions of the parts."""
    parts = {
        "bytes and kills": [row for stage in results["bytes"].values() for row in (stage, *stage["kills"])],
        "without shared files": [row for stage in results["storage"].values() for row in (stage, *stage["kills"])],
        "training": [results["training"]],
        "merging": [results["merging"]],
        "speed": [results["speed"]] if results["speed"] else [],
    }
    named = {part: revisions_in_words(row["revision"] for row in rows) for part, rows in parts.items() if rows}
    return f"Revisions: {', '.join(f'{part} {revisions}' for part, revisions in named.items())}."


def _of_bytes(stages: Mapping[str, Any]) -> list[str]:
    """Whether the bytes are equal, by stage, workers and engine."""
    lines = [
        "## The same bytes",
        "",
        "The sha256 of every file of the artifact, against one process without shards.",
        "",
        "| stage | " + " | ".join(stages[STAGES[0]]["equal"]) + " |",
        "|---|" + "---|" * (len(WORKERS) + 1),
    ]
    for stage, figures in stages.items():
        cells = ["equal" if equal else "**differ**" for equal in figures["equal"].values()]
        lines.append(f"| {stage} | " + " | ".join(cells) + " |")
    return lines


def _of_kills(stages: Mapping[str, Any]) -> list[str]:
    """What was killed, and what was done again."""
    lines = [
        "",
        "## SIGKILL while a stage runs, over two hosts",
        "",
        f"A kill comes after a random number of shards, 0 to {SHARDS - 2}, and up to 0.3 s more. `at a shard` counts",
        "the kills when a worker was at one; the others came between two shards. A killed driver's command is run",
        "again. `done again` counts shards that were whole when the kill came; besides them, a killed worker loses the",
        "shard that it was at.",
        "",
        "| stage | killed | trials | at a shard | bytes equal | whole shards | done again |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for stage, figures in stages.items():
        for target in TARGETS:
            rows = [row for row in figures["kills"] if row["target"] == target]
            sums = [sum(row[name] for row in rows) for name in ("hit", "equal", "whole", "again")]
            lines.append(f"| {stage} | {target} | {len(rows)} | " + " | ".join(map(str, sums)) + " |")
    return lines


def _of_storage(stages: Mapping[str, Any]) -> list[str]:
    """The result over hosts that share no files."""
    lines = [
        "",
        "## Hosts that share no files",
        "",
        "Shards and inputs are in an S3 bucket (`--storage s3://…`; the server is moto). The second host has its own,",
        "empty file system in place of the directory with the data. `inputs copied` counts those from the bucket in",
        "its cache, of this stage and the one before.",
        "",
        "| stage | bytes equal | inputs copied | kills of each kind | bytes equal after them |",
        "|---|---|---:|---:|---:|",
    ]
    for stage, figures in stages.items():
        kills = figures["kills"]
        same = "equal" if figures["equal"] else "**differ**"
        of_kills = f"{len(kills) // len(TARGETS)} | {sum(row['equal'] for row in kills)} of {len(kills)}"
        lines.append(f"| {stage} | {same} | {figures['copies']} | {of_kills} |")
    return lines


def _of_speed(speed: Mapping[str, Any] | None) -> list[str]:
    """Two workers against one, if that was measured."""
    if speed is None:
        return []
    lines = [
        "",
        "## Two workers of one thread against one",
        "",
        "Rows a second after each worker's first shard, the best of the repeats, which take turns. The last column has",
        "the ratio of each repeat.",
        "",
        "| stage | one worker | two workers | ratio | by repeat |",
        "|---|---:|---:|---:|---|",
    ]
    for stage in STAGES:
        one, two = speed[stage]["1"], speed[stage]["2"]
        repeats = ", ".join(f"{after / before:.2f}" for before, after in zip(one, two, strict=True))
        best = f"{max(one):,.1f} | {max(two):,.1f} | {max(two) / max(one):.2f}"
        lines.append(f"| {stage} | {best} | {repeats} |")
    return lines


def _of_training(results: Mapping[str, Any]) -> list[str]:
    """Differences between trainings on one host and on two, and after kills."""
    lines = [
        "## Training by torchrun over two hosts",
        "",
        "One process on each host, gloo, float32. Differences are the largest of any step's loss (relative) and of any",
        "weight, against one process with the same command.",
        "",
        "| training | steps | loss | weights |",
        "|---|---:|---:|---:|",
    ]
    for kind, title in TITLES.items():
        differences = results[kind]["against one process"]
        loss, weights = f"{differences['loss']:.0e}", f"{differences['weights']:.0e}"
        lines.append(f"| {title} | {differences['steps']} | {loss} | {weights} |")
    lines += [
        "",
        "SIGKILL of a rank after a random number of epochs. Without restarts the other rank ends with a sentence, and",
        "the same command goes on. With `--max-restarts 3` torchrun starts both again. `equal` counts the runs whose",
        "losses and weights are those of the unbroken run over two hosts, without any difference.",
        "",
        "| training | killed | restarts | trials | longest until all had ended | with the sentence | equal |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for kind, title in TITLES.items():
        for host, restarts in ENDS:
            rows = [row for row in results[kind]["kills"] if (row["rank"], row["restarts"]) == (host, restarts)]
            if not rows:
                continue
            longest = max(row["seconds"] for row in rows)
            equal = sum(row["resumed"]["loss"] == row["resumed"]["weights"] == 0 for row in rows)
            by = "by torchrun" if restarts else "by the user"
            until = "–" if restarts else f"{longest:.0f} s"
            sentence = "–" if restarts else f"{sum(row['sentence'] for row in rows)}"
            lines.append(f"| {title} | rank {host} | {by} | {len(rows)} | {until} | {sentence} | {equal} |")
    return [*lines, ""]


def _of_merging(merging: Mapping[str, Any]) -> list[str]:
    """Seconds and memory of merging."""
    return [
        "## Merging",
        "",
        f"{merging['passages']:,} synthetic vectors of {merging['dimension']} dimensions from {merging['shards']} "
        "shards are",
        f"joined in {merging['vectors_s']:.0f} s, and the {merging['k']} best passages of {merging['queries']:,} "
        "questions are",
        f"merged in {merging['searches_s']:.1f} s. Peak memory: {merging['peak_mib']:,.0f} MiB.",
        "",
    ]
