"""Verifying that artifacts hold the bytes that were written, by computing every recorded sha256 again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gnnretrieval.errors import ArtifactError, InputError, counted
from gnnretrieval.progress import Meter, progress
from gnnretrieval.storage.artifacts import kind_of
from gnnretrieval.storage.json_files import read_json
from gnnretrieval.storage.places import META, find
from gnnretrieval.storage.provenance import CHECKSUM, checksum_of, sha256_of_json

_BLOCK = 1 << 22  # bytes read at a time
_OF_ARTIFACTS = (".npy", ".faiss", ".safetensors", ".sqlite")  # files that commands read; other files are the user's


class Verified(NamedTuple):
    """Result of :func:`verify`.

    Attributes:
        artifacts: Number of artifacts.
        files: Number of files that they record.
        bytes: Total size of the recorded files that exist.
        damaged: One line for each fault: a file that is damaged, missing or not recorded.
    """

    artifacts: int
    files: int
    bytes: int
    damaged: list[str]


def verify(paths: Sequence[str | Path]) -> Verified:
    """Verify the sha256 of every file of the artifacts at ``paths``, or in run directories there.

    Raises:
        ArtifactError: One of the paths holds no artifact.
    """
    places = [place for path in paths for place in _artifacts_at(Path(path))]
    checks = [_Check(place) for place in places]
    total = sum(size for check in checks for size in check.present.values())
    with progress("verifying", total, "bytes") as meter:
        damaged = [line for check in checks for line in check.damage(meter)]
    return Verified(len(places), sum(len(check.files) for check in checks), total, damaged)


def require_as_made(*paths: str | Path) -> None:
    """Refuse artifacts that are not as they were made.

    Raises:
        ArtifactError: A file is damaged; the message gives the first fault and counts the others.
    """
    damaged = verify(paths).damaged
    if damaged:
        others = f" {counted(len(damaged) - 1, 'more file is', 'more files are')} damaged." if damaged[1:] else ""
        raise ArtifactError(f"{damaged[0]}{others} Delete the directory and make it again.")


def _artifacts_at(path: Path) -> Iterator[Path]:
    """The artifact at ``path``, or the artifacts in a run directory there, in order of name."""
    place, holds_any = find(path, "artifact"), False
    for folder, folders, _ in os.walk(place):
        if kind_of(folder) is not None or (Path(folder) == place and (place / META).is_file()):
            holds_any = True
            yield Path(folder)
            folders.clear()
        folders[:] = sorted(name for name in folders if not name.startswith("."))
    if not holds_any:
        what = "no such directory; it should hold an artifact"
        if place.exists():
            what = "it holds no artifact" if place.is_dir() else "this is a file, and an artifact is a directory"
        raise ArtifactError(f"{path}: {what}.")


class _Check:
    """The check of one artifact.

    Attributes:
        files: Recorded sha256 by name.
        present: Size by name of the recorded files that exist inside the artifact.
    """

    def __init__(self, place: Path) -> None:
        self.place, self.files, self.fault = place, dict[str, str](), ""
        self.meta: dict[str, Any] = {}
        try:
            self.meta = read_json(place / META, "meta.json of an artifact")
            self.files = {str(name): str(digest) for name, digest in self.meta["files"].items()}
            self.fault = _fault_of(self.meta)
        except (InputError, ValueError, KeyError, TypeError, AttributeError):
            self.fault = "this file is damaged"
        inside = place.resolve()
        self.present = {
            name: (place / name).stat().st_size
            for name in self.files
            if (place / name).is_file() and (place / name).resolve().is_relative_to(inside)
        }

    def damage(self, meter: Meter) -> Iterator[str]:
        """One line for each file that is not as it was made."""
        if self.fault:
            yield f"{self.place / META}: {self.fault}."
        sizes = self.meta.get("sizes", {}) if isinstance(self.meta, dict) else {}
        for name, digest in self.files.items():
            if name not in self.present:
                yield f"{self.place / name}: missing."
            elif self.present[name] != sizes.get(name, self.present[name]):
                yield f"{self.place / name}: {self.present[name]:,} bytes long, and {sizes[name]:,} were written."
                meter.advance(self.present[name])
            elif _sha256(self.place / name, meter) != digest:
                yield f"{self.place / name}: damaged: its bytes are not the ones that were written."
        for file in sorted(self.place.rglob("*")):
            name = file.relative_to(self.place).as_posix()
            if file.suffix in _OF_ARTIFACTS and name not in self.files and file.is_file():
                yield f"{file}: it is not one of the artifact's files."


def _fault_of(meta: dict[str, Any]) -> str:
    """What is wrong with a ``meta.json`` according to its own hashes; empty if they agree."""
    if meta["hash"] != sha256_of_json(meta["files"]):
        return "damaged: its hash is not that of its files"
    identity = {"kind": meta["kind"], "version": meta["format_version"], "inputs": meta["inputs"]}
    configs = [meta["config"], {"updates": meta.get("updates", [])}]
    if meta["fingerprint"] not in [sha256_of_json({**identity, "config": config}) for config in configs]:
        return "damaged: its fingerprint is not that of its inputs and settings"
    if CHECKSUM in meta and meta[CHECKSUM] != checksum_of(meta):  # absent before version 0.2
        return "damaged: its entries are not the ones that were written"
    return ""


def _sha256(path: Path, meter: Meter) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            meter.advance(len(block))
    return digest.hexdigest()
