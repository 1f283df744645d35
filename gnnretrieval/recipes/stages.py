"""The stages of a recipe: which one runs, how long it took, and the files of a comparison."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gnnretrieval.evaluation import Comparison, markdown_comparison
from gnnretrieval.platform.memory import give_back_freed_memory
from gnnretrieval.progress import indented, say
from gnnretrieval.storage.artifacts import whole_file
from gnnretrieval.storage.provenance import write_json


@contextmanager
def timed_stage(name: str) -> Iterator[None]:
    """Announce a stage, indent its messages, and say how long it took."""
    start = time.monotonic()
    say(f"[{name}]")
    with indented():
        try:
            yield
        finally:
            give_back_freed_memory()  # an encoder's training leaves gigabytes, and what comes next may need little
        say(f"{time.monotonic() - start:.1f} s")


def write_comparison(comparison: Comparison | None, path: Path) -> None:
    """Write a comparison as ``path.json``, and as a Markdown table in ``path.md``; None: delete an earlier run's."""
    values, table = path.with_suffix(".json"), path.with_suffix(".md")
    if comparison is None:
        values.unlink(missing_ok=True)
        table.unlink(missing_ok=True)
        return
    write_json(values, comparison.as_json())
    with whole_file(table) as partial:
        partial.write_text(markdown_comparison(comparison), encoding="utf-8")
