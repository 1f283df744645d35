"""The nightly update that made the served version: when, what the gate measured, and which questions moved."""

from __future__ import annotations

from pathlib import Path

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.nightly.moved import read_moved
from gnnretrieval.nightly.report import UpdateReport
from gnnretrieval.nightly.versions import RECORD, Versions
from gnnretrieval.serve.schemas import UpdateAnswer


def last_update_of(place: Path, version: str) -> UpdateAnswer | None:
    """What is known of the update that made an index; None where no update made it, or its report is not there (yet).

    Args:
        place: The directory that has the index.
        version: The version that the answer names.
    """
    if not (place / RECORD).is_file():
        return None
    run = Versions(place.parent.parent)
    try:
        number = int(place.name)
        signed = list(enumerate(run.ledger(), 1))
        line, entry = next((line, entry) for line, entry in reversed(signed) if entry.get("version") == number)
        report = UpdateReport.model_validate_json(run.report_place(line).read_bytes())
        moved = [question.as_json() for question in read_moved(place)]
    except (GnnRetrievalError, OSError, ValueError, LookupError, StopIteration):  # the panel is only for information
        return None
    told = {"version": version, "number": number, "when": entry["when"], "decision": report.decision(), "moved": moved}
    return UpdateAnswer.model_validate(report.as_json() | told)
