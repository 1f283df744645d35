"""The plan of a recipe's run: what a dry run finds, and how it reads."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gnnretrieval.pages.reports import Figures, Report
from gnnretrieval.recipes.dry_run_sizes import Sizes
from gnnretrieval.recipes.recipe import Download


class PlannedDownload(Download):
    """A file that the user downloads.

    Attributes:
        there: Whether the file, or everything that it holds, is there.
    """

    there: bool


class PlannedSizes(Sizes):
    """Counts and widths, and where they come from."""

    source: Literal["dataset", "recipe"] = Field(alias="from")
    """``from`` in JSON."""


class PlannedStage(Figures):
    """A stage of a run."""

    name: str
    path: str
    made: bool
    bytes: int | None
    """On disk where it is made, otherwise an estimate; None where the width of the vectors is not known."""
    work: str
    """What there is to do, in words."""


class PlannedMemory(Figures):
    """Bytes of memory of the largest stages; None where the width of the vectors is not known."""

    training: int | None
    """At least for the graph."""
    index: int | None
    """Of an exact index."""


class RunPlan(Report):
    """What :func:`gnnretrieval.recipes.dry_run.dry_run` finds."""

    recipe: str
    directory: str
    downloads: list[PlannedDownload]
    sizes: PlannedSizes
    stages: list[PlannedStage]
    disk_bytes: int | None
    """Of the stages that are not made yet."""
    free_bytes: int
    memory_bytes: PlannedMemory
    joint: bool
    """Whether the dual-encoder is trained too."""

    def to_text(self) -> str:
        """The plan as text."""
        lines = []
        for file in self.downloads:
            sums = (f", {kind} {sum_}" for kind, sum_ in (("sha256", file.sha256), ("md5", file.md5)) if sum_)
            checked = next(sums, ", no published checksum")
            there = "there" if file.there else "to download"
            lines.append(f"{there}: {file.url} ({_in_words(file.bytes)}{checked})")
        counts = self.sizes
        lines += [
            f"{counts.passages:,} passages, {counts.queries:,} queries, {counts.graph_queries:,} of them in the "
            f"graph and {counts.reported_queries:,} reported on (from the {counts.source})",
            "",
        ]
        width = max(len(stage.name) for stage in self.stages)
        for stage in self.stages:
            size, what = _about(stage.bytes), stage.work
            if stage.made:
                size, what = _in_words(stage.bytes), f"made: {stage.path}"
            lines.append(f"{stage.name:<{width}}  {size:>14}  {what}")
        lines += ["", f"to be written: {_about(self.disk_bytes)}; free: {_in_words(self.free_bytes)}"]
        if self.disk_bytes is None:
            lines.append("unknown: the checkpoint is not on this disk, and its width is known once it is downloaded")
        memory = self.memory_bytes
        lines += [
            f"memory: training over this graph from {_in_words(memory.training)}"
            + (", without the dual-encoder's" if self.joint else "")
            + f"; an exact index {_in_words(memory.index)}",
            "time: `gnnretrieval train --dry-run` times training steps once the graph is made",
            "a dry run: nothing was made",
        ]
        return "\n".join(lines)


def _about(count: int | None) -> str:
    return "unknown" if count is None else f"about {_in_words(count)}"


def _in_words(count: int | None) -> str:
    if count is None:
        return "unknown"
    size, unit = next(((size, unit) for size, unit in ((1e9, "GB"), (1e6, "MB")) if count >= size), (1e3, "KB"))
    return f"{count / size:,.1f} {unit}"
