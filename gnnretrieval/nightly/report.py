"""The report of a nightly update."""

from __future__ import annotations

from typing import Literal

from gnnretrieval.errors import counted
from gnnretrieval.feedback.store import StoredFigures
from gnnretrieval.nightly.gate import GateFigures
from gnnretrieval.pages.html import page, section, table, tiles, warnings
from gnnretrieval.pages.reports import Figures, Report
from gnnretrieval.pages.text_table import in_columns

Outcome = Literal["new model", "passages only", "first version", "without forgotten events", "nothing", "dry run"]
Training = Literal["from scratch", "warm start", "none"]

_OUTCOMES: dict[str, str] = {
    "new model": "Version {version} is promoted: a new model.",
    "passages only": "Version {version} is promoted: tonight's passages by the old model. The others rank as before.",
    "first version": "Version {version} is promoted: the first one.",
    "without forgotten events": "Version {version} is promoted: made from scratch, without the forgotten events.",
    "nothing": "Nothing is promoted.",
    "dry run": "A dry run: nothing was written.",
}


class PassageFigures(Figures):
    """How tonight's passages differ from those of the promoted version."""

    passages: int
    new: int
    changed: int
    """Passages with another text."""
    removed: int
    in_other_order: bool = False
    """The same passages, with other rows."""

    @property
    def differ(self) -> bool:
        """Whether any is new, changed, gone or in another row."""
        return bool(self.new or self.changed or self.removed or self.in_other_order)


class UpdateReport(Report):
    """What :func:`gnnretrieval.nightly.update_search` did, and why."""

    outcome: Outcome
    version: int | None
    """The promoted version, or None."""
    before: int | None
    """The version that was promoted before."""
    events: StoredFigures
    passages: PassageFigures
    training: Training
    questions: int
    """Training questions with a label."""
    labels: int
    encoded: int
    """Texts that were encoded. The vectors of the others were known."""
    gate: GateFigures | None
    """What the gate measured, or None if nothing was compared."""
    reasons: list[str]
    """Sentences that say why."""
    deleted: list[int]
    """Versions that were deleted."""
    seconds: dict[str, float]
    """By step."""

    def decision(self) -> str:
        """The outcome as a sentence."""
        said = _OUTCOMES[self.outcome].format(version=self.version)
        return f"{said} Version {self.version} stays." if self.outcome == "nothing" and self.version else said

    def to_text(self) -> str:
        """The figures as aligned lines."""
        lines = [self.decision(), *(f"  {reason}" for reason in self.reasons), ""]
        lines += [f"{name}: {value}" for name, value in self._facts().items()]
        if self.gate is not None:
            head, rows = self._slices()
            lines += ["", "The gate: RR@10 × 100 of the newest questions, by their clicks, among shown passages"]
            lines += [f"  {line}" for line in in_columns([head, *rows])]
        return "\n".join(lines)

    def to_html(self) -> str:
        """The figures as a page that opens offline."""
        gate = self.gate
        shown = []
        if gate is not None:
            head, rows = self._slices()
            shown = [
                tiles(
                    [
                        (f"{100 * gate.gain:+.1f}", "RR@10 × 100, the gain"),
                        (f"{gate.doubt:.2g}", "doubt that it is better"),
                        (f"{gate.questions:,}", "held-out questions"),
                    ]
                ),
                section("The gate", table(head, rows, range(1, len(head)), "The gate")),
            ]
        facts = [[name, value] for name, value in self._facts().items()]
        return page(
            "Nightly update",
            self.decision(),
            warnings(self.reasons),
            *shown,
            section("What was done", table(["what", "figure"], facts, name="What was done")),
        )

    def _facts(self) -> dict[str, str]:
        events, passages = self.events, self.passages
        facts = {
            "events": f"{events.added:,} new, {events.known:,} known, {events.too_old + events.deleted:,} too old, "
            f"{events.forgotten:,} forgotten; {events.stored:,} in the store",
            "passages": f"{passages.passages:,}; {passages.new:,} new, {passages.changed:,} changed, "
            f"{passages.removed:,} removed",
        }
        if self.training != "none":
            facts["training"] = f"{self.training}, {counted(self.labels, 'label')} of {self.questions:,} questions"
            facts["encoded"] = counted(self.encoded, "text")
        if self.deleted:
            facts["deleted versions"] = ", ".join(map(str, self.deleted))
        if self.seconds:
            facts["seconds"] = ", ".join(f"{name} {value:.1f}" for name, value in self.seconds.items())
        return facts

    def _slices(self) -> tuple[list[str], list[list[str]]]:
        assert self.gate is not None
        gate = self.gate
        head = ["questions", "number", "served", "new", "gain", "90 % interval", "p"]
        whole = ["all", f"{gate.questions:,}", f"{100 * gate.served:.1f}", f"{100 * gate.candidate:.1f}"]
        rows = [[*whole, f"{100 * gate.gain:+.1f}", f"from {100 * gate.low:+.1f}", f"{gate.p:.2g} of a gain"]]
        for part in [*gate.slices, *([] if gate.whole is None else [gate.whole])]:
            interval = f"{100 * part.low:+.1f} to {100 * part.high:+.1f}"
            gain = f"{100 * part.gain:+.1f}"
            rows.append([part.name, f"{part.questions:,}", "", "", gain, interval, f"{part.p_worse:.2g} of a loss"])
        return head, rows
