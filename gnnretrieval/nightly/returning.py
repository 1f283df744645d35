"""Returning to an earlier version, and forgetting events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.nightly.making import Version
from gnnretrieval.nightly.versions import END_OF_ROLLBACK, ROLLBACK, Versions


def roll_back(path: str | Path, version: int | None = None) -> int:
    """Promote an earlier version in one step, and sign the ledger; returns its number.

    Updates go on, and promote no new model until :func:`end_rollback`. The gate missed what was wrong with the version
    that is given up, and would miss it again the next night. To name the promoted version keeps it so.

    Args:
        path: Directory of the search.
        version: Its number; None: the newest before the promoted version, without those that were given up.

    Raises:
        ArtifactError: there is no such version, it has events that were to be forgotten, or it is damaged.
    """
    run = _opened(path)
    with run.held():
        promoted = run.promoted
        if version is None:
            given_up = run.given_up
            earlier = [number for number in run.numbers() if promoted is None or number < promoted]
            left = [number for number in earlier if number not in given_up]
            if not left:
                but = f" that was not given up; there are: {', '.join(map(str, earlier))}" if earlier else ""
                raise ArtifactError(f"{run.path}: there is no version before {promoted}{but}.")
            version = left[-1]
        if run.is_forgotten(version):
            raise ArtifactError(
                f"{run.path}: version {version} was made from events that were to be forgotten. Choose a later one."
            )
        if version != promoted:
            Version.open(run.place(version))
        if version != promoted or not run.is_rolled_back:
            # Signed first: after a kill in between, no update promotes the model that is given up again.
            run.sign(ROLLBACK, to=version, promoted=promoted)
        if version != promoted:
            run.promote(version)
        return version


def end_rollback(path: str | Path) -> None:
    """Let updates promote new models again, and sign the ledger. The promoted version stays until then.

    Args:
        path: Directory of the search.

    Raises:
        ArtifactError: there is no search, or it was not rolled back.
    """
    run = _opened(path)
    with run.held():
        if not run.is_rolled_back:
            raise ArtifactError(f"{run.path}: there is no rollback to end: updates promote what the gate lets by.")
        run.sign(END_OF_ROLLBACK, promoted=run.promoted)


def forget_events(path: str | Path, sessions: Sequence[str] = (), questions: Sequence[str] = ()) -> int:
    """Take events out of the store of a search; returns how many.

    The next update is made from scratch without them, is promoted in any case, and deletes the versions that had them.

    Args:
        path: Directory of the search.
        sessions: Sessions, as the logs name them.
        questions: Texts of questions, in any spelling.

    Raises:
        InputError: the store has no event of these sessions or questions, or none are given.
        ArtifactError: there is no search.
    """
    if not sessions and not questions:
        raise InputError("there is nothing to forget: give a session or a question.")
    run = Versions(path)
    if not run.store.logs():  # a store may have events of nights that gave no version
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
