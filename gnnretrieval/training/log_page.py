"""A training log as one HTML page with plots, which opens offline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError

from gnnretrieval.data.lines import excerpt, read_lines
from gnnretrieval.errors import InputError, counted
from gnnretrieval.pages.axes import Axis
from gnnretrieval.pages.html import Figure, Html, element, figures, page, require_page_place, section, table, write_page
from gnnretrieval.pages.plots import Line, line_plot

_POINTS = 1000  # maximum number of points of a curve: more are not visible and make the page heavy
_MEMORY = 0.02  # share of the records that the smoothed loss averages over


class StepRecord(BaseModel):
    """A step of training, as a line of the log."""

    step: int
    epoch: float
    loss: float
    learning_rate: float
    gradient_norm: float


class DevRecord(BaseModel):
    """A measurement on dev, as a line of the log; training chooses by the first measure."""

    step: int
    epoch: float
    dev: dict[str, float]


class TrainingLog(NamedTuple):
    """The records of a log, by step.

    Attributes:
        steps: Records of steps.
        measurements: Records of measurements on dev.
    """

    steps: list[StepRecord]
    measurements: list[DevRecord]

    @property
    def best(self) -> DevRecord | None:
        """The measurement with the highest first measure, the first of equal ones; None if there is none."""
        measured = [record for record in self.measurements if record.dev]
        return max(measured, key=lambda record: next(iter(record.dev.values())), default=None)


def read_log(path: Path) -> TrainingLog:
    """Read a training log in JSON lines.

    If a step was repeated after an interruption, its last record counts. An incomplete last line, which training is
    still writing, is left out.

    Raises:
        InputError: The file is missing or empty, or a line is not a record of a step or a measurement.
    """
    record_of: TypeAdapter[StepRecord | DevRecord] = TypeAdapter(StepRecord | DevRecord)
    lines = list(read_lines(path, "a training log"))
    if lines and not path.read_bytes().endswith(b"\n"):
        lines.pop()
    steps: dict[int, StepRecord] = {}
    measurements: dict[int, DevRecord] = {}
    for number, line in lines:
        try:
            record = record_of.validate_json(line)
        except ValidationError:
            raise InputError(
                f"{excerpt(line)} is not a record of a training log: wanted step, epoch, loss, learning_rate and "
                "gradient_norm, or step, epoch and dev.",
                path,
                number,
            ) from None
        if isinstance(record, StepRecord):
            steps[record.step] = record
        else:
            measurements[record.step] = record
    if not steps and not measurements:
        raise InputError("this training log is empty: there is nothing to plot yet.", path)
    return TrainingLog([steps[at] for at in sorted(steps)], [measurements[at] for at in sorted(measurements)])


def write_log_page(log: Path, out: Path, title: str) -> None:
    """Write the page of a training log: loss, learning rate, gradient norm, and measures on dev.

    Args:
        log: JSON lines: ``{"step", "epoch", "loss", "learning_rate", "gradient_norm"}`` for a step and ``{"step",
            "epoch", "dev": {"RR@10": …}}`` for a measurement.
        out: The file to write.
        title: Name of the model.

    Raises:
        InputError: As :func:`read_log`.
        GnnRetrievalError: The file ``out`` cannot be written.
    """
    require_page_place(out)
    records = read_log(log)
    curves = section("Curves", figures(plots_of(records)))
    measured = section("Measurements on dev", dev_table(records))
    write_page(page(f"{title}: training", summary_of(records), curves, measured), out)


def smoothed(values: Sequence[float]) -> list[float]:
    """Bias-corrected exponential average over 2 % of ``values``; values that are not finite are skipped."""
    keep = 1 - 1 / max(1.0, _MEMORY * len(values))
    total = weight = 0.0
    line = []
    for value in values:
        if isfinite(value):
            total, weight = keep * total + value, keep * weight + 1
        line.append(total / weight if weight else value)
    return line


def summary_of(log: TrainingLog) -> str:
    """Steps, last loss and best measurement, in a line."""
    records: list[StepRecord | DevRecord] = [*log.steps, *log.measurements]
    last = max(records, key=lambda record: record.step)
    parts = [f"{counted(last.step, 'step')}, {last.epoch:g} epochs"]
    if log.steps:
        parts.append(f"loss {smoothed([record.loss for record in log.steps])[-1]:.4f}, smoothed")
    if log.best:
        name, value = next(iter(log.best.dev.items()))
        parts.append(f"best {name} on dev {value:.4f} at step {log.best.step:,}")
    return "; ".join(parts) + "."


def plots_of(log: TrainingLog, named: Html | None = None) -> list[Figure]:
    """Plots of the measurements and of the steps, if there are any.

    Args:
        log: The log.
        named: Names the log's file under each plot; None: the page shows this log only.
    """
    plots = [] if log.best is None else [_dev(log, log.best)]
    return [plot._replace(source=named) for plot in (*plots, *(_of_steps(log.steps) if log.steps else []))]


def _of_steps(steps: Sequence[StepRecord]) -> list[Figure]:
    loss = [record.loss for record in steps]
    across = Axis("step", low=0)
    rates, norms = [record.learning_rate for record in steps], [record.gradient_norm for record in steps]
    return [
        Figure(
            "Loss",
            "Thin: the loss of each batch. Thick: its exponential average over 2 % of the records.",
            line_plot(
                f"Loss by step; the last {smoothed(loss)[-1]:.4g}, smoothed",
                [_line("each step", steps, loss, look="thin"), _line("smoothed", steps, smoothed(loss))],
                across,
                Axis("loss"),
            ),
        ),
        Figure(
            "Learning rate",
            "The learning rate of each update.",
            line_plot(
                f"Learning rate by step, {max(rates):.3g} at most",
                [_line("learning rate", steps, rates)],
                across,
                Axis("learning rate", "{:.3g}".format, low=0),
            ),
        ),
        Figure(
            "Gradient norm",
            "Before clipping. If it keeps growing, the learning rate is too high.",
            line_plot(
                f"Gradient norm by step; the last {norms[-1]:.3g}",
                [_line("gradient norm", steps, norms, look="thin")],
                across,
                Axis("norm", low=0),
            ),
        ),
    ]


def _dev(log: TrainingLog, best: DevRecord) -> Figure:
    """Plot of the measures: the first one thick, with a ring around its best value."""
    first, *others = dict.fromkeys(name for record in log.measurements for name in record.dev)
    epochs = [record.epoch for record in log.measurements]
    by = "epoch" if all(before < after for before, after in pairwise(epochs)) and epochs[-1] > 0 else "step"

    def line(name: str, series: int, look: str = "line") -> Line:
        records = [record for record in log.measurements if name in record.dev]
        at = [getattr(record, by) for record in records]
        return Line(name, at, [record.dev[name] for record in records], series, look)

    where = f"step {best.step:,}" + (f", epoch {best.epoch:g}" if by == "epoch" else "")
    return Figure(
        "Measures on dev",
        f"The ring is the best by {first}: {best.dev[first]:.4f} at {where}.",
        line_plot(
            f"Measures on dev by {by}; the best {first} is {best.dev[first]:.4f} at {where}",
            [*(line(name, series) for series, name in enumerate(others, 1)), line(first, 0, look="points")],
            Axis(by, low=0),
            Axis("measure", "{:.4g}".format),
            marked=[(getattr(best, by), best.dev[first], f"{first} {best.dev[first]:.4f} at {where}")],
        ),
    )


def _line(name: str, records: Sequence[StepRecord | DevRecord], values: Sequence[float], look: str = "line") -> Line:
    """A line over steps of at most :data:`_POINTS`."""
    every = -(-len(records) // _POINTS)
    return Line(name, [record.step for record in records[::every]], values[::every], look=look)


def dev_table(log: TrainingLog) -> Html:
    """Table of the measurements, with the best one marked."""
    names = list(dict.fromkeys(name for record in log.measurements for name in record.dev))
    rows = []
    for record in log.measurements:
        values = [f"{record.dev[name]:.4f}" if name in record.dev else "" for name in names]
        row = [f"{record.step:,}", f"{record.epoch:g}", *values]
        best = record is log.best
        rows.append([element("span", cell, class_="best") for cell in row] + ["best"] if best else [*row, ""])
    return table(("step", "epoch", *names, ""), rows, numbers=range(len(names) + 2))
