"""The queries that an encoder learned from: a file beside its weights, copied to its features.

An encoder ranks better for queries that it learned from than for new ones. Training and choices over its features
depend on which queries these are.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gnnretrieval.encoders.settings import EncoderSettings

LEARNED_FROM = "learned-from.txt"


def write_learned_from(directory: Path, queries: Iterable[str]) -> None:
    """Write query ids into ``directory``, one per line, sorted."""
    (directory / LEARNED_FROM).write_text("".join(f"{id_}\n" for id_ in sorted(set(queries))), encoding="utf-8")


def read_learned_from(directory: str | Path) -> frozenset[str]:
    """The query ids in ``directory``; empty if there is no file of them."""
    file = Path(directory) / LEARNED_FROM
    # not splitlines: an id may hold another separator of lines, such as U+2028
    return frozenset(filter(None, file.read_text(encoding="utf-8").split("\n"))) if file.is_file() else frozenset()


def learned_from(encoder: EncoderSettings) -> frozenset[str]:
    """Ids of the queries that an encoder learned from, on either side, by the names of its checkpoints."""
    names = filter(None, (encoder.checkpoint, encoder.query_checkpoint))
    return frozenset().union(*map(read_learned_from, names))
