"""Which questions an encoder learned from: a file beside its weights, which its features carry along.

What an encoder learned from it ranks better than what it will be asked: whatever is trained or chosen over it wants to
know which questions those are.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

LEARNED_FROM = "learned-from.txt"


def write_learned_from(directory: Path, queries: Iterable[str]) -> None:
    """Write query ids into ``directory``, one a line."""
    (directory / LEARNED_FROM).write_text("".join(f"{id_}\n" for id_ in sorted(set(queries))), encoding="utf-8")


def read_learned_from(directory: str | Path) -> frozenset[str]:
    """The query ids in ``directory``; none where it does not say."""
    file = Path(directory) / LEARNED_FROM
    return frozenset(file.read_text(encoding="utf-8").splitlines()) if file.is_file() else frozenset()
