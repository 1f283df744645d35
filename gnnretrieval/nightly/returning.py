"""Back to an earlier version, and events that are forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.nightly.making import Version
from gnnretrieval.nightly.versions import Versions


def roll_back(path: str | Path, version: int | None = None) -> int:
    """Promote an earlier version in one step, and sign the ledger; returns its number.

    Args:
        path: Directory of the search.
        version: Its number; None: the newest one before the promoted.

    Raises:
        ArtifactError: there is no such version, it has events that were to be forgotten, or it is damaged.
    """
    run = _opened(path)
    with run.held():
        promoted = run.promoted
        if version is None:
            earlier = [number for number in run.numbers() if promoted is None or number < promoted]
            if not earlier:
                raise ArtifactError(f"{run.path}: there is no version before {promoted}.")
            version = earlier[-1]
        if run.is_forgotten(version):
            raise ArtifactError(
                f"{run.path}: version {version} was made from events that were to be forgotten. Choose a later one."
            )
        if version != promoted:
            Version.open(run.place(version))
            run.promote(version)
            run.sign("rollback", to=version, promoted=promoted)
        return version


def forget_events(path: str | Path, sessions: Sequence[str] = (), questions: Sequence[str] = ()) -> int:
    """Take events out of the store of a search; returns how many.

    The next update is made from scratch without them, is promoted in any case, and deletes the versions that had them.

    Args:
        path: Directory of the search.
        sessions: Sessions, as the logs name them.
        questions: Texts of questions, in any spelling.

    Raises:
        InputError: no event in the store is of these, or none are given.
        ArtifactError: there is no search.
    """
    if not sessions and not questions:
        raise InputError("there is nothing to forget: give a session or a question.")
    run = _opened(path)
    with run.held():
        count = run.store.forget(sessions, questions)
        if not count:
            raise InputError("no event in the store is of this session or question. Nothing was forgotten.", run.path)
        run.clear()
        run.sign("forget", events=count)
        return count


def _opened(path: str | Path) -> Versions:
    run = Versions(path)
    if not run.exists:
        raise ArtifactError(f"{run.path}: there is no version of a search here. gnnretrieval update makes one.")
    return run
