"""Where a result comes from: content hashes, library versions and the git revision; and JSON files written whole."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from gnnretrieval.storage.durable import sync_directory

CHECKSUM = "checksum"  # the entry of a ``meta.json`` that holds the sha256 of the others
RECORDED_PACKAGES = (
    "gnnretrieval",
    "torch",
    "transformers",
    "sentence-transformers",
    "torch-geometric",
    "faiss-cpu",
    "faiss-gpu-cu12",
    "bm25s",
    "ir-measures",
    "numpy",
    "scipy",
)


def sha256_of_file(path: Path) -> str:
    """Hexadecimal sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_json(value: Any) -> str:
    """Hexadecimal sha256 of ``value`` written as canonical JSON (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def checksum_of(meta: Mapping[str, Any]) -> str:
    """Hexadecimal sha256 of all entries of a ``meta.json`` except ``checksum``, as they are read back from JSON."""
    entries = json.loads(json.dumps({name: value for name, value in meta.items() if name != CHECKSUM}))
    return sha256_of_json(entries)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` to ``path`` in one step: a reader sees the old file or the new one, never a part of one."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    sync_directory(path.parent)


def library_versions() -> dict[str, str]:
    """Installed versions of the packages that can change a result."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    versions = {}
    for name in RECORDED_PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


@cache
def git_revision() -> str | None:
    """Commit of the checkout that this package runs from; None outside a checkout.

    ``+changes`` is appended if tracked files have changes. ``benchmarks/results`` does not count, because benchmarks
    write there as they run.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None

    def git(*args: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *args], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changes = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
        return git("rev-parse", "HEAD") + ("+changes" if changes else "")
    except (OSError, subprocess.CalledProcessError):
        return None
