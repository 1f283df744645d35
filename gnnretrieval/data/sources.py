"""Sources of an import: files with their format and split."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gnnretrieval.data.formats import ir_datasets_id
from gnnretrieval.data.formats.recognise import (
    FORMATS,
    IR_DATASETS,
    IR_DATASETS_DOCUMENTS,
    OF_IDS,
    named,
    recognise,
    split_of,
)
from gnnretrieval.data.lines import excerpt
from gnnretrieval.errors import InputError
from gnnretrieval.progress import say
from gnnretrieval.storage.places import META
from gnnretrieval.storage.provenance import sha256_of_file, sha256_of_json


class Source(NamedTuple):
    """A file to import.

    Attributes:
        path: The file, or the id in ``ir_datasets``.
        format: Name in :data:`~gnnretrieval.data.formats.recognise.ALL_FORMATS`.
        split: Split of its judgements and negatives; empty where it has none.
    """

    path: Path
    format: str
    split: str

    @property
    def name(self) -> str:
        """Name among the inputs of a dataset."""
        path = self.path.as_posix() if self.format in OF_IDS else self.path.name
        return f"{self.format}@{self.split}={path}"

    @property
    def hash(self) -> str:
        """sha256 of the file; for an id of ``ir_datasets``, of the id and the package's version."""
        if self.format in OF_IDS:
            return sha256_of_json(dict(ir_datasets_id.identity(self.path)))
        return sha256_of_file(self.path)


def source_of(text: str | Path) -> list[Source]:
    """The source named by ``[FORMAT][@SPLIT]=PATH`` or a path; for a directory, all its recognised files.

    Format and split that are not given are recognised from the file's name and first lines.

    Raises:
        InputError: the file does not exist, its format or split is not recognised, or one is given for a directory.
    """
    label, sign, place = str(text).partition("=")
    if not sign or Path(text).exists():
        label, place = "", str(text)
    name, _, split = label.partition("@")
    path = Path(place)
    if name == IR_DATASETS:
        return _of_id(path, split)
    if path.is_dir():
        if label:
            raise InputError(f"{label!r} goes with one file, and this is a directory: name its files.", path)
        sources = [source for file in _files_in(path) for source in _recognised(file)]
        if not sources:
            raise InputError("no file in this directory has a known format.", path)
        return sources
    format_ = name or recognise(path)
    if named(format_, path).has_split and not split:
        split = _split_of(path, format_)
        if not split:
            raise InputError(
                f"the file name does not name a split (train, dev, test): write {format_}@SPLIT={path}.", path
            )
    return [Source(path, format_, _checked(split, path))]


def _checked(split: str, path: Path) -> str:
    if split and not all(part.isalnum() or part in "-_." for part in split):
        raise InputError(f"split {excerpt(split)}: write it in letters, digits, '-', '_' and '.'.", path)
    return split


def _of_id(path: Path, split: str) -> list[Source]:
    """Sources of an id of ``ir_datasets``: its documents, and its queries with judgements."""
    opened = ir_datasets_id.open_id(path)
    split = split or split_of(Path(path.as_posix().replace("/", "-"))) or ""
    if opened.has_qrels() and not split:
        raise InputError(f"the id does not name a split: write {IR_DATASETS}@SPLIT={path}.", path)
    documents = ir_datasets_id.documents_of(path)
    sources = [Source(documents, IR_DATASETS_DOCUMENTS, "")] if documents is not None else []
    return [*sources, Source(path, IR_DATASETS, _checked(split, path))] if opened.has_queries() else sources


def _split_of(path: Path, format_: str) -> str:
    """The split in a file's name; for a file of questions without judgements, otherwise the name itself."""
    return split_of(path) or (path.name.partition(".")[0] if format_ == "dpr-qa" else "")


def _files_in(directory: Path) -> list[Path]:
    files = [file for file in sorted(directory.iterdir()) if file.is_file() and not file.name.startswith(".")]
    return files + [file for file in sorted((directory / "qrels").glob("*.tsv*")) if file.is_file()]


def _recognised(path: Path) -> list[Source]:
    try:
        format_ = recognise(path)
    except InputError:
        return []
    split = path.name.partition(".")[0] if path.parent.name == "qrels" else _split_of(path, format_)
    if FORMATS[format_].has_split and not split:
        if path.name != META:  # of an artifact, which looks like SQuAD's JSON
            say(
                f"{path}: left out, because its name does not name a split (train, dev, test). If it is of "
                f"{format_}, write {format_}@SPLIT={path} too."
            )
        return []
    return [Source(path, format_, split)]
