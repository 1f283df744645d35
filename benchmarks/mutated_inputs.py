"""10,000 mutated files a reader: each is read correctly, or refused in a sentence with file and line.

    .venv/bin/python benchmarks/mutated_inputs.py

A file of each format is made from a seed, with text full of quotes, tabs, line breaks, NUL, right-to-left and emoji,
then mutated: cut off, shuffled, given wrong types, a wrong encoding, a repeated id or random bytes. It is imported, and
the result is compared with that of a second, independent reader of the same bytes (tests/data/formats/reference.py). If
a mutation determines that its file must be refused or accepted, and on which line, that is checked too. Writes
results/mutated_inputs.json and results/mutated_inputs.md; the exit code is 1 if anything failed.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # mutations and second readers come from the tests

from gnnretrieval.progress import progress, show_progress
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json
from tests.data.formats.judging import FINE, judged
from tests.data.formats.mutations import READERS, case

RESULTS = Path(__file__).resolve().parent / "results"
FILES = 10_000
KEPT = 20  # failures of a reader that are written out


def measure(reader: str, files: int, place: Path) -> dict[str, Any]:
    """Outcomes of the mutated files of a reader."""
    counts: Counter[str] = Counter()
    operations: dict[str, Counter[str]] = {}
    failures: list[dict[str, Any]] = []
    longest = 0.0
    with progress(reader, files, "files") as meter:
        for seed in range(files):
            directory = place / "case"
            directory.mkdir()
            mutated = case(reader, Random(f"{reader} {seed}"))
            begun = time.monotonic()
            outcome = judged(mutated, directory)
            longest = max(longest, time.monotonic() - begun)
            shutil.rmtree(directory)
            what = outcome if outcome in FINE else outcome.partition(":")[0]
            counts[what] += 1
            operations.setdefault(mutated.operation, Counter())[what] += 1
            if outcome not in FINE and len(failures) < KEPT:
                told = outcome.replace(str(directory), "")
                failures.append({"seed": seed, "operation": mutated.operation, "outcome": told})
            meter.advance()
    return {
        "files": files,
        "accepted": counts[FINE[0]],
        "refused": counts[FINE[1]],
        "failed": files - counts[FINE[0]] - counts[FINE[1]],
        "longest_seconds": longest,
        "operations": {name: dict(of) for name, of in sorted(operations.items())},
        "failures": failures,
    }


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    readers, files = results["readers"], results["files"]
    names = {name: f"`{name.removesuffix('-parquet')}`{', Parquet' if 'parquet' in name else ''}" for name in readers}
    names["trec-run"] = "TREC runs (`evaluate`, `compare`)"
    rows = [
        f"| {names[name]} | {row['accepted']:,} | {row['refused']:,} | {row['failed']:,} | "
        f"{row['longest_seconds']:.1f} s |"
        for name, row in readers.items()
    ]
    total = [sum(row[key] for row in readers.values()) for key in ("accepted", "refused", "failed")]
    return "\n".join(
        [
            "# Mutated inputs",
            "",
            "Regenerate: `.venv/bin/python benchmarks/mutated_inputs.py"
            f"{f' --files {files}' if files != FILES else ''}`",
            "",
            f"{files:,} mutated files a reader ({len(readers)} readers), each imported with the files it needs beside "
            "it. Accepted: every passage, query, judgement, negative and piece of metadata is what a second reading of "
            "the same bytes finds. Refused: that reading refuses it too, and the message is one line with file and "
            "line (in SQuAD's JSON the place, in Parquet the row where one is at fault), and nothing is left behind. "
            "Failed: a traceback, a hang, another content, a refusal of what can be read, a message without a place.",
            "",
            "| reader | accepted | refused | failed | longest |",
            "| --- | ---: | ---: | ---: | ---: |",
            *rows,
            f"| all | {total[0]:,} | {total[1]:,} | {total[2]:,} | |",
            "",
        ]
    )


@click.command()
@click.option("--files", type=click.IntRange(1), default=FILES, show_default=True, help="Mutated files a reader.")
@click.option("--work", type=click.Path(path_type=Path, exists=True), help="Where they are written, and not kept.")
def main(files: int, work: Path | None) -> None:
    """Mutate, import, compare, and write the result files."""
    with tempfile.TemporaryDirectory(dir=work) as place:
        readers = {reader: measure(reader, files, Path(place)) for reader in READERS}
    results = {"files": files, "readers": readers, "versions": library_versions(), "git_revision": git_revision()}
    write_json(RESULTS / "mutated_inputs.json", results)
    page = markdown(results)
    (RESULTS / "mutated_inputs.md").write_text(page, encoding="utf-8")
    click.echo(page)
    sys.exit(any(row["failed"] for row in readers.values()))


if __name__ == "__main__":
    show_progress()
    main()
