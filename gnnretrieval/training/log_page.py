"""A training log as one page with plots that opens offline: plotly's script is in it, and nothing is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError

from gnnretrieval.data.lines import excerpt, read_lines
from gnnretrieval.errors import InputError
from gnnretrieval.page import Plot, escape, page_of, require_page_place, write_page

_POINTS = 4000  # of a curve, at most: more are not seen and make the page heavy
_MEMORY = 0.02  # of the records: what the smoothed loss averages over


class StepRecord(BaseModel):
    """A step of training, as a line of the log."""

    step: int
    epoch: float
    loss: float
    learning_rate: float
    gradient_norm: float


class DevRecord(BaseModel):
    """A measurement on dev, as a line of the log; the first measure is what is chosen by."""

    step: int
    epoch: float
    dev: dict[str, float]


class TrainingLog(NamedTuple):
    """A log's records, by step.

    Attributes:
        steps: One a step.
        measurements: One a measurement on dev.
    """

    steps: list[StepRecord]
    measurements: list[DevRecord]

    @property
    def best(self) -> DevRecord | None:
        """The first measurement with the highest first measure."""
        measured = [record for record in self.measurements if record.dev]
        return max(measured, key=lambda record: next(iter(record.dev.values())), default=None)


def read_log(path: Path) -> TrainingLog:
    """Read a training log in JSON lines.

    A step that was done again after an interruption counts as it was done last, and a last line without an end, which
    is being written, is left out.

    Raises:
        InputError: no such file, nothing in it, or a line that is no record of a step or a measurement.
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
                f"{excerpt(line)} is no record of a training log: wanted step, epoch, loss, learning_rate and "
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
    """Write the :mod:`~gnnretrieval.page` of a training log: loss, learning rate, gradient norm, measures on dev.

    Args:
        log: JSON lines: ``{"step", "epoch", "loss", "learning_rate", "gradient_norm"}`` for a step and ``{"step",
            "epoch", "dev": {"RR@10": …}}`` for a measurement.
        out: The file to write.
        title: What was trained.

    Raises:
        InputError: as :func:`read_log`.
        GnnRetrievalError: no file can be written at ``out``.
    """
    require_page_place(out)
    write_page(_page_of(read_log(log), title), out)


def smoothed(values: Sequence[float]) -> list[float]:
    """Exponential average over 2 % of ``values``, without the bias of its start; what is not finite is passed over."""
    keep = 1 - 1 / max(1.0, _MEMORY * len(values))
    total = weight = 0.0
    line = []
    for value in values:
        if isfinite(value):
            total, weight = keep * total + value, keep * weight + 1
        line.append(total / weight if weight else value)
    return line


def _page_of(log: TrainingLog, title: str) -> str:
    plots = [*([_loss(log), _learning_rate(log), _gradient_norm(log)] if log.steps else []), *_dev(log)]
    return page_of(f"{title}: training", title, _summary(log), plots, below=_table(log))


def _summary(log: TrainingLog) -> str:
    records: list[StepRecord | DevRecord] = [*log.steps, *log.measurements]
    last = max(records, key=lambda record: record.step)
    parts = [f"{last.step:,} steps, {last.epoch:g} epochs"]
    if log.steps:
        parts.append(f"loss {smoothed([record.loss for record in log.steps])[-1]:.4f}, smoothed")
    if log.best:
        name, value = next(iter(log.best.dev.items()))
        parts.append(f"best {name} on dev {value:.4f} at step {log.best.step:,}")
    return "; ".join(parts) + "."


def _loss(log: TrainingLog) -> Plot:
    values = [record.loss for record in log.steps]
    traces = [
        _line(log.steps, values, "each step", line={"width": 1}, opacity=0.35),
        _line(log.steps, smoothed(values), "smoothed", line={"width": 2.5}),
    ]
    return Plot(
        "loss",
        "Loss",
        "Of a batch, thin, and its exponential average over 2 % of the records, thick.",
        _figure(traces, "loss", legend=True),
    )


def _learning_rate(log: TrainingLog) -> Plot:
    trace = _line(log.steps, [record.learning_rate for record in log.steps], "learning rate")
    return Plot("learning-rate", "Learning rate", "Of the update.", _figure([trace], "learning rate", tickformat="~g"))


def _gradient_norm(log: TrainingLog) -> Plot:
    trace = _line(log.steps, [record.gradient_norm for record in log.steps], "gradient norm", line={"width": 1})
    return Plot(
        "gradient-norm",
        "Gradient norm",
        "Before clipping. Where it keeps growing, the learning rate is too high.",
        _figure([trace], "norm", rangemode="tozero"),
    )


def _dev(log: TrainingLog) -> list[Plot]:
    """The plot of the measurements, if there are any."""
    if log.best is None:
        return []
    names = list(dict.fromkeys(name for record in log.measurements for name in record.dev))
    traces = []
    for series, name in enumerate(names):
        records = [record for record in log.measurements if name in record.dev]
        values = [record.dev[name] for record in records]
        traces.append(_line(records, values, name, series=series, mode="lines+markers"))
        if name in log.best.dev:
            traces.append(
                _line(
                    [log.best],
                    [log.best.dev[name]],
                    f"{name} at the best step",
                    series=series,
                    mode="markers",
                    marker={"symbol": "star", "size": 15},
                    showlegend=False,
                )
            )
    meaning = f"The star is the best step by {next(iter(log.best.dev))}: step {log.best.step:,}."
    return [Plot("dev", "Measures on dev", meaning, _figure(traces, "measure", legend=True))]


def _line(
    records: Sequence[StepRecord | DevRecord], values: Sequence[float], name: str, series: int = 0, **look: Any
) -> dict[str, Any]:
    """A trace over steps of at most :data:`_POINTS`; ``series`` is its colour, which the page gives it."""
    every = -(-len(records) // _POINTS)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "meta": {"series": series},
        "x": [record.step for record in records[::every]],
        "y": [value if isfinite(value) else None for value in values[::every]],
        "customdata": [record.epoch for record in records[::every]],
        "hovertemplate": "%{y:.4~g} at step %{x:,}, epoch %{customdata:.2~f}<extra>" + escape(name) + "</extra>",
        **look,
    }


def _figure(traces: list[dict[str, Any]], measured: str, legend: bool = False, **axis: Any) -> dict[str, Any]:
    layout = {
        "xaxis": {"title": {"text": "step"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": measured}, **axis},
        "showlegend": legend,
        "legend": {"orientation": "h", "y": 1.14, "x": 0},
    }
    return {"data": traces, "layout": layout}


def _table(log: TrainingLog) -> str:
    """The measurements, the best step marked; a line instead where there is none."""
    names = list(dict.fromkeys(name for record in log.measurements for name in record.dev))
    if not names:
        return "<section><h2>Measurements on dev</h2><p>None yet.</p></section>"
    head = "".join(f"<th>{escape(name)}</th>" for name in ("step", "epoch", *names))
    rows = "".join(
        f"<tr{' class=best' if record is log.best else ''}><td>{record.step:,}</td><td>{record.epoch:g}</td>"
        + "".join(f"<td>{record.dev[name]:.4f}</td>" if name in record.dev else "<td></td>" for name in names)
        + f"<td>{'best' if record is log.best else ''}</td></tr>"
        for record in log.measurements
    )
    return (
        '<section><h2>Measurements on dev</h2><div class="wide"><table class="log"><thead><tr>'
        f"{head}<th></th></tr></thead><tbody>{rows}</tbody></table></div></section>"
    )
