"""Additions to a graph store: new queries (a click log) and new passages, read, checked and encoded."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.beir import read_passages, read_qrels, read_queries
from gnnretrieval.data.records import Passage, Query
from gnnretrieval.data.runs.trec import Run, read_run
from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.opening import encoder_of
from gnnretrieval.encoders.settings import VECTORS
from gnnretrieval.encoders.text_encoder import TextEncoder
from gnnretrieval.encoders.vector_file import open_vectors
from gnnretrieval.encoders.vectors import as_kept
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError, counted
from gnnretrieval.graph.edges.sources import EDGE_SOURCES
from gnnretrieval.graph.store import Graph
from gnnretrieval.progress import progress
from gnnretrieval.storage.provenance import sha256_of_file

_Record = TypeVar("_Record")
_TEXTS = 1024  # texts encoded at a time


class Additions(NamedTuple):
    """New queries and passages with their vectors.

    Attributes:
        queries: New queries. One without a relevant passage has edges, but is not trained on.
        passages: New passages.
        qrels: Relevance by query id and passage id, of new or old queries and passages.
        query_vectors: ``(len(queries), d)`` float16.
        passage_vectors: ``(len(passages), d)`` float16.
        run: Passages that the new queries are joined to, for a graph with edges by a run.
        split: Split of the new queries.
        identity: Content hashes of the files: the same addition is not made twice in a row.
    """

    queries: Sequence[Query]
    passages: Sequence[Passage]
    qrels: Mapping[str, Mapping[str, int]]
    query_vectors: NDArray[np.float16]
    passage_vectors: NDArray[np.float16]
    run: Run | None
    split: str
    identity: Mapping[str, Any]


class _Known(Container[str]):
    """Container of the new ids and the store's ids. The store's are looked up one by one, not held in memory."""

    def __init__(self, new: Container[str], look_up: Callable[[Sequence[str]], Mapping[str, int]]) -> None:
        self._new, self._look_up = new, look_up

    def __contains__(self, id_: object) -> bool:
        return isinstance(id_, str) and (id_ in self._new or id_ in self._look_up([id_]))


def read_additions(
    store: Graph,
    *,
    queries: str | Path | None = None,
    passages: str | Path | None = None,
    qrels: str | Path | None = None,
    query_vectors: str | Path | None = None,
    passage_vectors: str | Path | None = None,
    run: str | Path | None = None,
    split: str | None = None,
    device: str = "cpu",
    encoder: TextEncoder | None = None,
    endpoint: str | None = None,
) -> Additions | None:
    """Read additions to ``store``, and encode them by the store's encoder unless vectors are given.

    Args:
        store: The graph.
        queries: ``queries.jsonl``, as in a dataset directory.
        passages: ``corpus.jsonl``, likewise.
        qrels: ``.tsv`` of judgements; queries without judgements are joined to their passages too.
        query_vectors: Vectors of the queries: ``.npy`` in the order of the file, or Parquet with ids; None: encode
            them.
        passage_vectors: The same for passages.
        run: TREC run, for a graph with edges by a run.
        split: Split of the new queries; None: that of the graph.
        device: Where to encode.
        encoder: The store's encoder as a Python object; None: open it.
        endpoint: As in :func:`gnnretrieval.encoders.opening.encoder_of`.

    Returns:
        The additions; None if the store's last update added the same files.

    Raises:
        InputError: A file is wrong, or an id is in the graph already.
        ArtifactError: The encoder's checkpoint has changed, or the store's vectors were imported and new ones are
            missing.
        GnnRetrievalError: There is nothing to add, or a run is missing or not needed.
    """
    if queries is None and passages is None:
        raise GnnRetrievalError(
            "there is nothing to add: give queries, passages, or both (--queries FILE, --passages FILE)."
        )
    _require_run(store, has_run=run is not None, has_queries=queries is not None)
    files = {
        "queries": queries,
        "passages": passages,
        "qrels": qrels,
        "query vectors": query_vectors,
        "passage vectors": passage_vectors,
        "run": run,
    }
    identity: dict[str, Any] = {name: sha256_of_file(Path(file)) for name, file in files.items() if file is not None}
    identity["split"] = split or store.config["split"]
    if store.meta.get("updates") and store.meta["updates"][-1]["change"] == identity:
        return None
    new_queries = [query for query, _ in _records(read_queries, queries)]
    new_passages = [passage for passage, _ in _records(read_passages, passages)]
    with store.texts() as texts:
        _refuse_known("query", [query.id for query in new_queries], texts.rows_of_queries, queries)
        _refuse_known("passage", [passage.id for passage in new_passages], texts.rows_of_passages, passages)
        judgements = _judgements(texts, qrels, new_queries, new_passages)
    vectors = _Encoding(store, device, encoder, endpoint)
    return Additions(
        new_queries,
        new_passages,
        judgements,
        vectors.of("query", new_queries, [query.text for query in new_queries], query_vectors),
        vectors.of("passage", new_passages, [passage.full_text for passage in new_passages], passage_vectors),
        read_run(run) if run is not None else None,
        identity["split"],
        identity,
    )


def _require_run(store: Graph, *, has_run: bool, has_queries: bool) -> None:
    """Raise unless a run is given exactly where new queries get their edges from one."""
    source = EDGE_SOURCES.get(store.config["edges"])
    takes_run = source is not None and source.takes_run
    if has_run and not takes_run:
        raise GnnRetrievalError(
            f"{store.path}: its edges ({store.config['edges']}) do not come from a run: leave out the run (--run)."
        )
    if takes_run and has_queries and not has_run:
        raise GnnRetrievalError(
            f"{store.path}: its edges come from a run: give a run with the passages of the new queries (--run FILE)."
        )
    if has_run and not has_queries:
        raise GnnRetrievalError(
            "a run ranks passages for new queries, and there are none: give queries (--queries FILE), or leave out the "
            "run (--run)."
        )


def _records(read: Callable[[Path], Iterable[_Record]], path: str | Path | None) -> Iterable[_Record]:
    return read(Path(path)) if path is not None else ()


def _judgements(
    texts: TextStore, qrels: str | Path | None, queries: Sequence[Query], passages: Sequence[Passage]
) -> dict[str, dict[str, int]]:
    if qrels is None:
        return {}
    known_queries = _Known({query.id for query in queries}, texts.rows_of_queries)
    known_passages = _Known({passage.id for passage in passages}, texts.rows_of_passages)
    return read_qrels(qrels, known_queries, known_passages)


def _refuse_known(
    what: str, ids: Sequence[str], look_up: Callable[[Sequence[str]], Mapping[str, int]], path: str | Path | None
) -> None:
    known = look_up(ids)
    if known:
        first = next(id_ for id_ in ids if id_ in known)
        raise InputError(
            f"{len(known):,} of {len(ids):,} {'queries' if what == 'query' else 'passages'} are in the graph already, "
            f"such as {first!r}: leave them out.",
            path,
        )


class _Encoding:
    """Vectors of new texts, from a file or by the store's encoder."""

    def __init__(self, store: Graph, device: str, given: TextEncoder | None, endpoint: str | None) -> None:
        self._store, self._device, self._given, self._endpoint = store, device, given, endpoint
        self._encoder: Any = None

    def of(
        self, side: Any, records: Sequence[Any], texts: Sequence[str], given: str | Path | None
    ) -> NDArray[np.float16]:
        vectors = np.empty((len(records), self._store.dimension), dtype=np.float16)
        if given is not None:
            self._read(given, [record.id for record in records], vectors)
        elif len(records):
            encoder = self._opened(side)
            with progress(f"encoding {'queries' if side == 'query' else 'passages'}", len(texts), "texts") as meter:
                for start in range(0, len(texts), _TEXTS):
                    part = texts[start : start + _TEXTS]
                    vectors[start : start + len(part)] = encoder.encode(part, side)
                    meter.advance(len(part))
        return vectors

    def _read(self, path: str | Path, ids: Sequence[str], vectors: NDArray[np.float16]) -> None:
        file = open_vectors(path, ids=ids)
        if file.dimension != vectors.shape[1]:
            raise InputError(
                f"the vectors have {file.dimension} dimensions, but the graph's have {vectors.shape[1]}.", Path(path)
            )
        row_of, filled = {id_: row for row, id_ in enumerate(ids)}, np.zeros(len(ids), dtype=bool)
        assert file.ids is not None
        imported = self._store.encoder_settings.checkpoint.startswith(VECTORS)
        for part, block in file.blocks():
            if imported:  # converted as the graph's own vectors were
                block = as_kept(file, np.arange(part.start, part.stop), block, self._store.similarity)
            for id_, vector in zip(file.ids[part.start : part.stop], block, strict=True):
                if (row := row_of.get(id_)) is not None:
                    vectors[row], filled[row] = vector, True
        if not filled.all():
            missing = ids[int((~filled).argmax())]
            lack = counted(int((~filled).sum()), "vector is missing", "vectors are missing")
            raise InputError(f"{lack}, such as that of {missing!r}.", Path(path))

    def _opened(self, side: str) -> Any:
        if self._encoder is None:
            settings = self._store.encoder_settings
            if self._given is None and settings.checkpoint.startswith(VECTORS):
                name = settings.checkpoint.removeprefix(VECTORS)
                raise ArtifactError(
                    f"{self._store.path}: its vectors were made outside of gnnretrieval ({name}): give the vectors of "
                    f"the new texts too (--{side}-vectors FILE)."
                )
            meta, path = self._store.meta, self._store.path
            self._encoder = encoder_of(meta, path, self._device, given=self._given, endpoint=self._endpoint)
        return self._encoder
