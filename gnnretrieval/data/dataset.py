"""The dataset directory: passages, queries and judgements in the BEIR layout, checked once and read as streams."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gnnretrieval.data.beir import Metadata, read_passages, read_qrels, read_queries
from gnnretrieval.data.lines import excerpt, read_lines
from gnnretrieval.data.records import Passage, Query
from gnnretrieval.errors import ArtifactError, InputError, nearest
from gnnretrieval.storage.artifacts import open_artifact
from gnnretrieval.storage.provenance import sha256_of_file, sha256_of_json

if TYPE_CHECKING:
    from gnnretrieval.data.inspection.report import DatasetReport

CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"
_USUAL_SPLITS = ("train", "dev", "validation", "test")
_SHOWN = 20  # names listed in an error


def read_split(path: str | Path, split: str, qrels: str = "qrels") -> dict[str, dict[str, int]]:
    """As :meth:`Dataset.split` of the directory at ``path``, without reading texts: millions take a minute.

    Raises:
        InputError: there is no folder ``qrels`` or no split ``split``, or a line of it is wrong.
        ArtifactError: as :meth:`Dataset.open`.
    """
    path = Path(path)
    _made_by_us(path)
    files = split_files(path, qrels)
    if split not in files:
        raise _no_split(path, split, qrels, sorted(files, key=_split_order))
    return read_qrels(files[split])


class _Reader(Protocol):
    def __call__(self, path: Path, unique: bool = True) -> Iterator[tuple[Passage | Query, Metadata]]: ...


class _Ids(NamedTuple):
    known: Collection[str]
    kept: dict[str, None]  # an ordered set


class Dataset:
    """A retrieval set on disk. Made by :meth:`open`; ids and judgements are in memory, texts are read on demand.

    Attributes:
        path: Its directory.
        name: The directory's name, for titles; it decides nothing.
        qrels: Name of the folder that the judgements are from.
        where: The metadata values that passages and queries were kept for; empty where all were.
        passage_ids: Ids of the passages, in file order.
        query_ids: Ids of the queries, judged or not, in file order.
        splits: Names of the splits that have judgements, ``train``, ``dev`` and ``test`` first.
    """

    def __init__(
        self,
        path: Path,
        qrels: str,
        where: Mapping[str, Any],
        passage_ids: list[str],
        query_ids: list[str],
        judgements: Mapping[str, dict[str, dict[str, int]]],
    ) -> None:
        self.path = path
        self.name = path.resolve().name
        self.qrels = qrels
        self.where = dict(where)
        self.passage_ids = passage_ids
        self.query_ids = query_ids
        self._judgements = dict(judgements)
        self.splits = sorted((name for name, judged in judgements.items() if judged), key=_split_order)

    @classmethod
    def open(cls, path: str | Path, qrels: str = "qrels", where: Mapping[str, Any] | None = None) -> Dataset:
        """Open the dataset directory at ``path`` and check every line of it.

        Args:
            path: A directory with ``corpus.jsonl``, ``queries.jsonl`` and a folder of judgements, by hand or by
                ``gnnretrieval data``.
            qrels: Name of the folder of judgements, one ``<split>.tsv`` a split.
            where: Keep the passages and queries whose metadata has these values (a value that is no string may be given
                as JSON text); judgements of the others are passed over.

        Raises:
            InputError: a file is missing or a line of it is wrong (see :mod:`gnnretrieval.data.beir`), there is no
                folder ``qrels``, or ``where`` leaves nothing.
            ArtifactError: the directory is another artifact, or a half-made dataset.
        """
        path, where = Path(path), dict(where or {})
        _made_by_us(path)
        for name in (CORPUS, QUERIES):
            if not (path / name).is_file():
                next(read_lines(path / name, "a dataset directory, with corpus.jsonl, queries.jsonl and qrels/"))
        files = split_files(path, qrels)
        passages = _keep(read_passages, path / CORPUS, "passage", where)
        queries = _keep(read_queries, path / QUERIES, "query", where)
        judgements = {
            name: _of_kept(read_qrels(file, queries.known, passages.known), queries.kept, passages.kept)
            for name, file in files.items()
        }
        return cls(path, qrels, where, list(passages.kept), list(queries.kept), judgements)

    @classmethod
    def from_records(
        cls,
        passages: Any,
        queries: Any,
        qrels: Any,
        out: str | Path,
        *,
        dev: Any = None,
        test: Any = None,
        overwrite: bool = False,
    ) -> Dataset:
        """Make the dataset directory ``out`` of Python objects: lists, mappings, data frames, Hugging Face datasets.

        Args:
            passages: As :func:`gnnretrieval.data.from_objects.passages_of`.
            queries: As :func:`gnnretrieval.data.from_objects.queries_of`, of every split.
            qrels: Judgements of the training queries, as :func:`gnnretrieval.data.from_objects.qrels_of`.
            out: Where it goes.
            dev: Judgements of the queries that settings are chosen by; None: some training queries are held out.
            test: Judgements of the queries that are reported on.
            overwrite: Replace a dataset made from other objects.

        Raises:
            InputError: as :func:`gnnretrieval.data.from_objects.make_dataset`.
        """
        from gnnretrieval.data.from_objects import make_dataset

        make_dataset(passages, queries, {"train": qrels, "dev": dev, "test": test}, out, overwrite=overwrite)
        return cls.open(out)

    def inspect(self, *, most: int = 3) -> DatasetReport:
        """As :func:`gnnretrieval.data.inspection.inspect.inspect_dataset`: printed, shown, or written as a page."""
        from gnnretrieval.data.inspection.inspect import inspect_dataset

        return inspect_dataset(self, most=most)

    def __repr__(self) -> str:
        splits = ", ".join(f"{len(self._judgements[name]):,} {name}" for name in self.splits)
        return (
            f"Dataset({str(self.path)!r}: {len(self.passage_ids):,} passages, {len(self.query_ids):,} queries"
            f"{f', judged: {splits}' if splits else ''})"
        )

    def passages(self) -> Iterator[Passage]:
        """The kept passages, in the order of :attr:`passage_ids`."""
        records = read_passages(self.path / CORPUS, unique=False)
        return (passage for passage, metadata in records if _matches(metadata, self.where))

    def queries(self) -> Iterator[Query]:
        """The kept queries, judged or not, in the order of :attr:`query_ids`."""
        records = read_queries(self.path / QUERIES, unique=False)
        return (query for query, metadata in records if _matches(metadata, self.where))

    def split(self, name: str) -> dict[str, dict[str, int]]:
        """Relevance by passage id by query id of the split ``name``, in order of first appearance.

        Raises:
            InputError: the split does not exist, or ``where`` leaves none of its judgements.
        """
        if name not in self.splits:
            if name in self._judgements:
                raise InputError(f"where {_in_words(self.where)} leaves no judgement of split {name!r}.", self.path)
            raise _no_split(self.path, name, self.qrels, self.splits)
        return {query: dict(judged) for query, judged in self._judgements[name].items()}

    def queries_of(self, split: str) -> list[Query]:
        """The queries of a split, in the order of :meth:`query_ids_of`, with their texts in memory.

        Raises:
            InputError: the split does not exist, or ``where`` leaves none of its judgements.
        """
        wanted = dict.fromkeys(self.query_ids_of(split))
        queries = {query.id: query for query in self.queries() if query.id in wanted}
        return [queries[id_] for id_ in wanted]

    def query_ids_of(self, split: str) -> list[str]:
        """Ids of a split's judged queries; of a split without judgements, the imported ids ``SPLIT-NUMBER``.

        Raises:
            InputError: the split does not exist, or ``where`` leaves none of its judgements.
        """
        numbered = re.compile(rf"{re.escape(split)}-[0-9]+")
        unjudged = [] if split in self._judgements else [id_ for id_ in self.query_ids if numbered.fullmatch(id_)]
        return unjudged or list(self.split(split))

    @cached_property
    def file_hashes(self) -> dict[str, str]:
        """sha256 of each file that this dataset is read from, by its path in the directory."""
        files = {CORPUS: self.path / CORPUS, QUERIES: self.path / QUERIES}
        files |= {f"{self.qrels}/{file.name}": file for file in split_files(self.path, self.qrels).values()}
        return {name: sha256_of_file(file) for name, file in files.items()}

    @property
    def hash(self) -> str:
        """sha256 over the files' sha256, the folder of judgements and ``where``; the directory's place is not in it."""
        return sha256_of_json({"files": self.file_hashes, "qrels": self.qrels, "where": self.where})

    @property
    def texts_hash(self) -> str:
        """As :attr:`hash`, of the texts alone: equal for two folders of judgements over the same texts."""
        texts = {name: self.file_hashes[name] for name in (CORPUS, QUERIES)}
        return sha256_of_json({"files": texts, "where": self.where})

    @property
    def place(self) -> DatasetPlace:
        """Where other processes find it."""
        return DatasetPlace(str(self.path.resolve()), self.qrels, json.dumps(self.where), self.hash)

    def provenance(self) -> dict[str, Any]:
        """Where a result's data comes from, as JSON values: name, hash, settings, counts, and what made the dataset."""
        made_by_us = _made_by_us(self.path)
        return {
            "name": self.name,
            "hash": self.hash,
            "qrels": self.qrels,
            "where": self.where,
            "passages": len(self.passage_ids),
            "queries": len(self.query_ids),
            "splits": {name: len(self._judgements[name]) for name in self.splits},
            "files": self.file_hashes,
            "made_from": {key: made_by_us[key] for key in ("inputs", "config")} if made_by_us else None,
        }


class DatasetPlace(NamedTuple):
    """Where a dataset is, for a process that may be on another machine.

    Attributes:
        path: Its directory.
        qrels: Name of its folder of judgements.
        where: The metadata values that records are kept for, as JSON.
        hash: :attr:`Dataset.hash`.
    """

    path: str
    qrels: str
    where: str
    hash: str

    def moved(self, input_at: Callable[[Path], Path]) -> DatasetPlace:
        """The place of a copy; ``input_at`` maps the directory to that of the copy."""
        return self._replace(path=str(input_at(Path(self.path))))

    def open(self) -> Dataset:
        """The dataset, opened once in a process.

        Raises:
            ArtifactError: Another dataset is there.
        """
        return _opened(self)


@lru_cache(maxsize=1)
def _opened(place: DatasetPlace) -> Dataset:
    dataset = Dataset.open(place.path, place.qrels, json.loads(place.where))
    if dataset.hash != place.hash:
        raise ArtifactError(
            f"{place.path}: this machine finds another dataset there. Use storage that all workers see."
        )
    return dataset


def _made_by_us(path: Path) -> dict[str, Any] | None:
    """The ``meta.json`` of a dataset that this package made, or None: a user's directory needs none."""
    if not path.exists():
        open_artifact(path, "dataset")  # says that there is none, or that it is half made
    if not path.is_dir():
        raise InputError(
            "this is a file; wanted a dataset directory with corpus.jsonl, queries.jsonl and qrels/.", path
        )
    try:
        meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
        ours = isinstance(meta, dict) and {"kind", "format_version"} <= meta.keys()
    except (OSError, ValueError):
        return None
    return open_artifact(path, "dataset").meta if ours else None


def split_files(path: Path, qrels: str) -> dict[str, Path]:
    """File by name of split, in the folder of judgements ``qrels``."""
    folder = path / qrels
    files = {file.stem: file for file in sorted(folder.glob("*.tsv"))} if qrels else {}
    if not files:
        others = sorted(other.name for other in path.iterdir() if other.is_dir() and any(other.glob("*.tsv")))
        present = f"{nearest(qrels, others)} Present: {', '.join(others)}." if others else ""
        missing = f"no file <split>.tsv in {qrels}/" if folder.is_dir() else f"no folder {qrels}/"
        raise InputError(f"{missing}; wanted judgements there, such as {qrels}/test.tsv.{present}", path)
    return files


def _no_split(path: Path, name: str, qrels: str, splits: list[str]) -> InputError:
    present = ", ".join(splits) or "none"
    return InputError(f"there is no split {name!r} in {qrels}/.{nearest(name, splits)} Present: {present}.", path)


def _split_order(name: str) -> tuple[int, str]:
    return (_USUAL_SPLITS.index(name) if name in _USUAL_SPLITS else len(_USUAL_SPLITS), name)


def _keep(read: _Reader, path: Path, what: str, where: Mapping[str, Any]) -> _Ids:
    """Ids of all records of a file, and of the records that ``where`` keeps."""
    kept: dict[str, None] = {}
    if not where:
        kept.update((record.id, None) for record, _ in read(path))
        return _Ids(kept, kept)
    known: set[str] = set()
    for record, metadata in read(path):
        known.add(record.id)
        if _matches(metadata, where):
            kept[record.id] = None
    if not kept:
        raise InputError(_why_nothing_is_left(read, path, what, where), path)
    return _Ids(known, kept)


def _matches(metadata: Metadata, where: Mapping[str, Any]) -> bool:
    return all(
        key in metadata and (metadata[key] == value or _as_text(metadata[key]) == value) for key, value in where.items()
    )


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _why_nothing_is_left(read: _Reader, path: Path, what: str, where: Mapping[str, Any]) -> str:
    values: dict[str, dict[str, None]] = {}
    for _, metadata in read(path, unique=False):
        for key, value in metadata.items():
            seen = values.setdefault(key, {})
            if len(seen) <= _SHOWN:  # one more than is listed, to know that there are more
                seen[_as_text(value)] = None
    for key, wanted in where.items():
        if key not in values:
            return f"no {what} has metadata {key!r}.{nearest(key, values)} Present: {_listed(values) or 'none'}."
        if _as_text(wanted) not in values[key] and len(values[key]) <= _SHOWN:
            near = nearest(_as_text(wanted), values[key])
            return f"no {what} has metadata {key!r} = {excerpt(wanted)}.{near} Present: {_listed(values[key])}."
    return f"no {what} has metadata {_in_words(where)}: change or leave out the filter."


def _listed(names: Collection[str]) -> str:
    return ", ".join([*map(excerpt, list(names)[:_SHOWN]), *(["…"] if len(names) > _SHOWN else [])])


def _in_words(where: Mapping[str, Any]) -> str:
    return " and ".join(f"{key} = {excerpt(value)}" for key, value in where.items())


def _of_kept(
    qrels: dict[str, dict[str, int]], queries: Collection[str], passages: Collection[str]
) -> dict[str, dict[str, int]]:
    kept = {
        query: {passage: relevance for passage, relevance in judged.items() if passage in passages}
        for query, judged in qrels.items()
        if query in queries
    }
    return {query: judged for query, judged in kept.items() if judged}
