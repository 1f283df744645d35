"""Passages, queries and judgements from Python objects: lists, mappings, data frames, Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gnnretrieval.data.beir import write_passages, write_qrels, write_queries
from gnnretrieval.data.dataset import CORPUS, QUERIES
from gnnretrieval.data.faults import UNJUDGEABLE
from gnnretrieval.data.formats.table import COLUMNS
from gnnretrieval.data.lines import require_characters
from gnnretrieval.data.records import Passage, Qrel, Query
from gnnretrieval.errors import InputError
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.provenance import sha256_of_json

KIND = "dataset"
Qrels = dict[str, dict[str, int]]
_MOST = 999_999_999  # relevance that a file of judgements can have
_RECORDS = (Passage, Query)


def passages_of(objects: Any) -> list[Passage]:
    """Passages from texts or records.

    Args:
        objects: One of these: a mapping or pandas series from id to text or record; a list of texts, with the ids 0, 1,
            …; a list of records; a pandas data frame or a Hugging Face dataset of records. A record is a
            :class:`Passage`, or a mapping with id, text and optionally title, under their usual names (``_id``,
            ``contents``, …).

    Raises:
        InputError: an object is none of these, has no text, repeats an id, or has one that no judgement can name.
    """
    passages: dict[str, Passage] = {}
    for number, (id_, record) in enumerate(_items(objects, "passages")):
        place = f"passage {number + 1}"
        text = _field(record, "passages", "text", place) if not isinstance(record, str) else record
        title = "" if isinstance(record, str) else _field(record, "passages", "title", place, "")
        id_ = _new_id(id_ if id_ is not None else _field(record, "passages", "id", place), passages, place)
        if not (title.strip() or text.strip()):
            raise InputError(f"{place} ({id_}) has neither title nor text.")
        require_characters([id_, title, text], where=place)
        passages[id_] = Passage(id_, title, text)
    if not passages:
        raise InputError("there are no passages.")
    return list(passages.values())


def queries_of(objects: Any) -> list[Query]:
    """Queries from texts or records, in the forms that :func:`passages_of` takes.

    Raises:
        InputError: see :func:`passages_of`.
    """
    queries: dict[str, Query] = {}
    for number, (id_, record) in enumerate(_items(objects, "queries")):
        place = f"query {number + 1}"
        text = record if isinstance(record, str) else _field(record, "queries", "text", place)
        id_ = _new_id(id_ if id_ is not None else _field(record, "queries", "id", place), queries, place)
        if not text.strip():
            raise InputError(f"{place} ({id_}) is empty.")
        require_characters([id_, text], where=place)
        queries[id_] = Query(id_, text)
    if not queries:
        raise InputError("there are no queries.")
    return list(queries.values())


def qrels_of(objects: Any) -> Qrels:
    """Relevance by passage id by query id.

    Args:
        objects: One of these: a mapping from query id to a passage id, to several, or to relevance by passage id; a
            list of pairs or triples (query id, passage id, relevance), where relevance is 1 if it is left out; a list
            of records with these fields; a pandas data frame or a Hugging Face dataset of records.

    Raises:
        InputError: an object is none of these, a pair has two different relevances, or one is too large.
    """
    qrels: Qrels = {}
    for number, (query, passage, relevance) in enumerate(_judgements(objects)):
        judged = qrels.setdefault(_id(query, f"judgement {number + 1}"), {})
        passage = _id(passage, f"judgement {number + 1}")
        try:
            whole = int(relevance)
            if whole != relevance:
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"judgement {number + 1}: relevance {relevance!r} is not a whole number.") from None
        if abs(whole) > _MOST:
            raise InputError(f"judgement {number + 1}: relevance {whole} is too large: at most {_MOST:,}.")
        if judged.setdefault(passage, whole) != whole:
            raise InputError(f"judgement {number + 1}: {query!r} and {passage!r} were judged {judged[passage]} before.")
    return qrels


def make_dataset(
    passages: Any,
    queries: Any,
    splits: Mapping[str, Any],
    out: str | Path,
    *,
    overwrite: bool = False,
) -> Artifact:
    """Write the dataset directory ``out`` from Python objects.

    Args:
        passages: Passages, see :func:`passages_of`.
        queries: Queries of every split, see :func:`queries_of`.
        splits: Judgements by split, see :func:`qrels_of`.
        out: Where the dataset goes.
        overwrite: Replace a dataset made from other objects.

    Raises:
        InputError: see these functions; or a judgement has an unknown query or passage, or a split has no judgement.
    """
    passage_records, query_records = passages_of(passages), queries_of(queries)
    judged = {name: qrels_of(objects) for name, objects in splits.items() if objects is not None}
    _require_known(judged, {query.id for query in query_records}, {passage.id for passage in passage_records})

    def write(directory: Path) -> dict[str, Any]:
        write_passages(directory / CORPUS, ((passage, {}) for passage in passage_records))
        write_queries(directory / QUERIES, ((query, {}) for query in query_records))
        for name, qrels in judged.items():
            rows = (Qrel(query, passage, value) for query, grades in qrels.items() for passage, value in grades.items())
            write_qrels(directory / "qrels" / f"{name}.tsv", rows)
        return {"counts": {"passages": len(passage_records), "queries": len(query_records)}}

    records = {"passages": passage_records, "queries": query_records, "qrels": judged}
    inputs = {name: sha256_of_json(value) for name, value in records.items()}
    config = {"source": "Python objects"}
    return make_artifact(out, KIND, inputs=inputs, config=config, write=write, overwrite=overwrite)


def _items(objects: Any, what: str) -> Iterator[tuple[Any, Any]]:
    """Id (None where a record has it) and record or text."""
    if isinstance(objects, str | bytes):
        raise InputError(f"{what}: this is one text, and a list of texts is needed.")
    if _is_by_id(objects):
        yield from (
            (id_, record._asdict() if isinstance(record, _RECORDS) else record) for id_, record in objects.items()
        )
        return
    for number, record in enumerate(_records(objects, what)):
        if isinstance(record, str):
            yield str(number), record
        elif isinstance(record, _RECORDS):
            yield record.id, record._asdict()
        elif isinstance(record, Mapping):
            yield None, record
        else:
            raise InputError(f"{what}: a text or a record was expected, and number {number + 1} is {_kind(record)}.")


def _judgements(objects: Any) -> Iterator[tuple[Any, Any, Any]]:
    if _is_by_id(objects):
        for query, relevant in objects.items():
            if isinstance(relevant, Mapping):
                yield from ((query, passage, relevance) for passage, relevance in relevant.items())
            else:
                passages = relevant if isinstance(relevant, list | tuple | set | frozenset) else [relevant]
                yield from ((query, passage, 1) for passage in passages)
        return
    for number, record in enumerate(_records(objects, "qrels")):
        place = f"judgement {number + 1}"
        if isinstance(record, Mapping):
            names = [_field(record, "qrels", field, place) for field in ("query", "passage")]
            yield names[0], names[1], _relevance(record)
        elif isinstance(record, Qrel) or (isinstance(record, tuple | list) and len(record) in (2, 3)):
            yield record[0], record[1], record[2] if len(record) == 3 else 1
        else:
            raise InputError(f"{place}: (query id, passage id, relevance) was expected, and this is {_kind(record)}.")


def _relevance(record: Mapping[str, Any]) -> Any:
    name = _name_of("qrels", "relevance", record)
    return 1 if name is None else record[name]


def _is_by_id(objects: Any) -> bool:
    """Whether objects are by id, as a mapping or series; Hugging Face's mapping of datasets by split is not."""
    if hasattr(objects, "to_dict"):
        return hasattr(objects, "index") and hasattr(objects, "items") and not hasattr(objects, "columns")
    return isinstance(objects, Mapping) and not hasattr(objects, "column_names")


def _records(objects: Any, what: str) -> Iterable[Any]:
    """Rows of a data frame, or items of any iterable."""
    if hasattr(objects, "to_dict") and hasattr(objects, "columns"):  # pandas, polars
        frame = objects
        name = getattr(getattr(frame, "index", None), "name", None)
        if name and name not in frame.columns:  # the index may also be kept as a column
            frame = frame.reset_index()
        rows: Iterable[Any] = frame.to_dicts() if hasattr(frame, "to_dicts") else frame.to_dict("records")
        return rows
    if isinstance(objects, Mapping):  # a DatasetDict of Hugging Face
        raise InputError(f"{what}: these are datasets by name ({', '.join(map(str, objects))}): give one of them.")
    if not isinstance(objects, Iterable):
        raise InputError(f"{what}: a list, a mapping, a data frame or a dataset was expected, not {_kind(objects)}.")
    return objects


def _name_of(kind: str, field: str, record: Mapping[str, Any]) -> str | None:
    """The key of a field in a record: the first of its usual names that is present."""
    return next((name for name in COLUMNS[kind][field] if name in record), None)


def _field(record: Any, kind: str, field: str, place: str, default: str | None = None) -> str:
    if not isinstance(record, Mapping):
        raise InputError(f"{place}: a text or a record was expected, and this is {_kind(record)}.")
    name = _name_of(kind, field, record)
    if name is None:
        if default is not None:
            return default
        wanted, present = ", ".join(COLUMNS[kind][field]), ", ".join(map(str, record)) or "nothing"
        raise InputError(f"{place} has no {field}: wanted one of {wanted}; present: {present}.")
    value = record[name]
    if _is_missing(value):
        if default is not None:
            return default
        raise InputError(f"{place}: its {name} is empty.")
    return value if isinstance(value, str) else _id(value, place)


def _is_missing(value: Any) -> bool:
    """Whether a data frame has no value there: None, NaN or pandas' NA."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # NA is neither equal to itself nor unequal
        return True
    except ValueError:  # an array
        return False


def _id(value: Any, place: str) -> str:
    """An id as text; whole numbers, also numpy's, are accepted."""
    if isinstance(value, str):
        return value
    try:
        if not isinstance(value, bool) and int(value) == value:
            return str(int(value))
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"{place}: {value!r} is neither a text nor a whole number.")


def _new_id(value: Any, seen: Mapping[str, object], place: str) -> str:
    id_ = _id(value, place)
    if not id_.strip() or UNJUDGEABLE.search(id_):
        raise InputError(f"{place}: the id {id_!r} is empty, or has a tab or line break in it: give another.")
    if id_ in seen:
        raise InputError(f"{place}: the id {id_!r} is repeated: give every {place.partition(' ')[0]} another id.")
    return id_


def _require_known(judged: Mapping[str, Qrels], queries: set[str], passages: set[str]) -> None:
    for split, qrels in judged.items():
        if not qrels:
            raise InputError(f"qrels of {split}: there are no judgements.")
        for query, grades in qrels.items():
            if query not in queries:
                raise InputError(f"qrels of {split}: there is no query {query!r}.")
            unknown = next((passage for passage in grades if passage not in passages), None)
            if unknown is not None:
                raise InputError(f"qrels of {split}: there is no passage {unknown!r}, judged for query {query!r}.")


def _kind(value: object) -> str:
    return f"{type(value).__name__} ({str(value)[:40]!r})"
