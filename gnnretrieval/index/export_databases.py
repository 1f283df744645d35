"""Export of an index to vector databases by their own clients: PostgreSQL with pgvector, Qdrant, LanceDB.

Vectors have length 1 if the similarity is cosine, so the inner product ranks as our own search does. Equal scores may
come in another order. Every function returns how to ask for the best ten. Where passages have several vectors, what is
asked for is the best of each, as in our own search.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.errors import InputError
from gnnretrieval.index.export import arrow_tables, exported_blocks, exported_rows
from gnnretrieval.index.faiss_index import Index
from gnnretrieval.platform.extras import extra
from gnnretrieval.progress import progress

_INDEXED = 2000  # largest dimension of a vector that pgvector can index
_TYPES = {"number": "integer", "embedding": "vector({}) NOT NULL"}  # of PostgreSQL's columns; the others: text
_POINTS = uuid.UUID("8d5f1f2b-6c0e-4f0a-9a57-1f6c8a6e2b11")  # namespace of the names of Qdrant's points
_SENT = 256  # vectors that Qdrant gets in one request, so that it stays below its limit of 32 MB


def write_pgvector(
    index: Index, dsn: str, table: str = "passages", *, approximate: bool = False, overwrite: bool = False
) -> str:
    """Copy an index's ids and vectors into a table of a PostgreSQL database with pgvector, in one transaction.

    Columns are ``id`` (text, primary key), ``title``, ``text`` and ``embedding`` (``vector(d)``). Where passages have
    several vectors, a row is a vector, ``number`` counts those of a passage from 0, its own, and only that row has the
    title and text.

    Args:
        index: The index.
        dsn: The database, such as ``postgresql://user@host/name``.
        table: Name of the new table, such as ``passages`` or ``schema.passages``.
        approximate: Make an HNSW index over the vectors; without it, PostgreSQL searches exactly.
        overwrite: Replace a table of this name.

    Returns:
        The SQL that answers a question with the vector ``%(question)s``.

    Raises:
        InputError: PostgreSQL cannot be reached, has no pgvector, has the table already or reports another error; or
            ``approximate`` is set and the vectors have more than 2,000 dimensions.
        ArtifactError: As :func:`gnnretrieval.index.export.write_vectors`.
        GnnRetrievalError: psycopg is not installed.
    """
    rows, dimension, several = exported_rows(index), index.meta["dimension"], index.has_questions
    psycopg = extra("psycopg", "pgvector", "PostgreSQL")
    sql = extra("psycopg.sql", "pgvector", "PostgreSQL")
    if approximate and dimension > _INDEXED:
        raise InputError(f"pgvector indexes vectors of up to {_INDEXED:,} numbers, and these have {dimension:,}.")
    name = sql.Identifier(*table.split("."))
    try:
        with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
            if overwrite:
                cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(name))
            columns = (
                ("id", "number", "title", "text", "embedding") if several else ("id", "title", "text", "embedding")
            )
            typed = ", ".join(f"{column} {_TYPES.get(column, 'text')}" for column in columns)
            key = "id, number" if several else "id"
            create = sql.SQL(f"CREATE TABLE {{}} ({typed}, PRIMARY KEY ({key}))")
            cursor.execute(create.format(name, sql.Literal(dimension)))
            copy = sql.SQL(f"COPY {{}} ({', '.join(columns)}) FROM STDIN").format(name)
            with (
                progress(f"copying into {table}", len(rows), "vectors") as meter,
                cursor.copy(copy) as stream,
            ):
                for (id_, title, text), vectors in _passages(index, meter.advance):
                    for number, vector in enumerate(vectors):
                        written = f"[{','.join(f'{value:.9g}' for value in vector.tolist())}]"
                        said = (title, text) if number == 0 else (None, None)
                        stream.write_row((id_, *([number] if several else []), *said, written))
            if approximate:
                cursor.execute(sql.SQL("CREATE INDEX ON {} USING hnsw (embedding vector_ip_ops)").format(name))
    except psycopg.errors.DuplicateTable:
        raise InputError(f"table {table!r} is there already: name another with --table, or pass --overwrite.") from None
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise InputError(f"PostgreSQL says: {reason}. Nothing was written.") from None
    order = "embedding <#> %(question)s"  # pgvector's negative inner product
    if not several:
        return f"SELECT id, -({order}) AS score FROM {name.as_string()} ORDER BY {order} LIMIT 10"
    nearest = f"SELECT id, -({order}) AS score FROM {name.as_string()}"
    if approximate:  # as many vectors as hold ten passages whatever the question
        nearest += f" ORDER BY {order} LIMIT {10 * _most(rows)}"
    return f"SELECT id, max(score) AS score FROM ({nearest}) nearest GROUP BY id ORDER BY score DESC LIMIT 10"


def write_qdrant(
    index: Index, place: str, collection: str = "passages", *, approximate: bool = False, overwrite: bool = False
) -> str:
    """Copy an index's vectors, ids, titles and texts into a collection of Qdrant.

    A point has ``id``, ``title`` and ``text`` as payload, and as its own name a UUID of the id: Qdrant has no others.
    Where passages have several vectors, a point has all of its passage's, and scores by the best of them.

    Args:
        index: The index.
        place: URL of a server, with its key, if any, in the environment as ``QDRANT_API_KEY``; or a directory of
            Qdrant's local mode, which searches exactly and is meant for small collections.
        collection: Name of the new collection.
        approximate: Let Qdrant make its HNSW index; without it, it searches exactly.
        overwrite: Replace a collection of this name once the new one is whole: that has another name, and this name
            becomes its alias.

    Returns:
        The Python call that answers a question with the vector ``question``.

    Raises:
        InputError: ``place`` is a server's name without its protocol; Qdrant cannot be reached, has the collection
            already, or reports another error. A collection that was begun is deleted.
        ArtifactError: As :func:`gnnretrieval.index.export.write_vectors`.
        GnnRetrievalError: qdrant-client is not installed.
    """
    rows = exported_rows(index)
    qdrant = extra("qdrant_client", "qdrant", "Qdrant")
    failures = extra("qdrant_client.http.exceptions", "qdrant", "Qdrant")
    models = qdrant.models
    if re.fullmatch(r"[\w.-]+:\d+", place):
        raise InputError(f"--qdrant {place}: this names a directory. Give the URL of a server, http://{place}.")
    remote, left = "://" in place, "Nothing was written."
    try:
        key = os.environ.get("QDRANT_API_KEY") if remote else None
        client = (
            qdrant.QdrantClient(url=place, api_key=key, check_compatibility=False)
            if remote
            else qdrant.QdrantClient(path=place)
        )
        with closing(client):  # the local mode locks its directory
            is_there = client.collection_exists(collection)
            if is_there and not overwrite:
                raise InputError(
                    f"collection {collection!r} is there already: name another with --table, or pass --overwrite."
                )
            made = f"{collection}-{uuid.uuid4().hex[:8]}" if is_there else collection
            best = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
            space = models.VectorParams(
                size=index.meta["dimension"],
                distance=models.Distance.DOT,
                multivector_config=best if index.has_questions else None,
            )
            links = None if approximate else models.HnswConfigDiff(m=0)  # m = 0: no index, so every vector is compared
            client.create_collection(made, vectors_config=space, hnsw_config=links)
            try:
                with progress(f"copying into {made}", len(rows), "vectors") as meter:
                    points, sent = _points(index, models, meter.advance), max(1, _SENT // _most(rows))
                    client.upload_points(made, points, batch_size=sent, wait=True)
            except BaseException:
                client.delete_collection(made)
                raise
            if is_there:
                left = f"The new collection is {made!r}."
                _replace(client, models, collection, made)
    except (failures.ApiException, failures.UnexpectedResponse, ValueError, RuntimeError, OSError) as error:
        raise _refused("Qdrant", error, left) from None
    opened = f"url={place!r}" if remote else f"path={place!r}"
    asked = "[question]" if index.has_questions else "question"  # beside several vectors a question is a list of one
    return f"QdrantClient({opened}).query_points({collection!r}, query={asked}, limit=10)"


def _replace(client: Any, models: Any, collection: str, made: str) -> None:
    """Let the name ``collection`` mean the collection ``made``, and delete what it meant."""
    aliases = {alias.alias_name: alias.collection_name for alias in client.get_aliases().aliases}
    if collection not in aliases:  # a collection has the name itself, and no alias can have it too
        client.delete_collection(collection)
    alias = models.CreateAlias(collection_name=made, alias_name=collection)
    client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    if collection in aliases:
        client.delete_collection(aliases[collection])


def _points(index: Index, models: Any, advance: Callable[[int], None]) -> Iterator[Any]:
    for (id_, title, text), vectors in _passages(index, advance):
        payload = {"id": id_, "title": title, "text": text}
        vector = [each.tolist() for each in vectors]
        name = str(uuid.uuid5(_POINTS, id_))
        yield models.PointStruct(id=name, vector=vector if index.has_questions else vector[0], payload=payload)


def _passages(
    index: Index, advance: Callable[[int], None]
) -> Iterator[tuple[tuple[str, str, str], list[NDArray[np.float32]]]]:
    """Id, title and text of each passage, and its vectors, its own first."""

    def vectors() -> Iterator[tuple[tuple[str, str, str], NDArray[np.float32]]]:
        for block in exported_blocks(index):
            for id_, title, text, vector in zip(*block, strict=True):
                yield (id_, title, text), vector
            advance(len(block.ids))

    for passage, of_passage in groupby(vectors(), itemgetter(0)):
        yield passage, [vector for _, vector in of_passage]


def _most(rows: NDArray[np.int64]) -> int:
    """The most vectors that a passage has, from the sorted rows of all vectors."""
    return int(np.unique(rows, return_counts=True)[1].max(initial=1))


def write_lancedb(index: Index, place: str, table: str = "passages", *, overwrite: bool = False) -> str:
    """Write an index's vectors, ids, titles and texts as a table of LanceDB, in one step.

    LanceDB searches the table exactly until an index is made there. A row is a vector: where passages have several, as
    many vectors are asked for as hold ten passages whatever the question.

    Args:
        index: The index.
        place: Directory or URI of the database, such as ``s3://bucket/search``.
        table: Name of the new table; its columns are ``id``, ``title``, ``text`` and ``vector``.
        overwrite: Replace a table of this name.

    Returns:
        The Python call that answers a question with the vector ``question``; ``1 - _distance`` is the score. Where
        passages have several vectors, it gives their ids alone.

    Raises:
        InputError: LanceDB has the table already, or reports another error.
        ArtifactError: As :func:`gnnretrieval.index.export.write_vectors`.
        GnnRetrievalError: lancedb is not installed.
    """
    rows = exported_rows(index)
    lancedb = extra("lancedb", "lancedb", "LanceDB")
    try:
        database = lancedb.connect(place)
        if not overwrite and _has(database, table):
            raise InputError(f"table {table!r} is there already: name another with --table, or pass --overwrite.")
        schema, tables = arrow_tables(index)
        with progress(f"writing {table}", len(rows), "vectors") as meter:

            def batches() -> Iterator[Any]:
                for block in tables:
                    yield from block.to_batches()
                    meter.advance(len(block))

            mode = "overwrite" if overwrite else "create"
            database.create_table(table, batches() if len(rows) else schema.empty_table(), schema=schema, mode=mode)
    except (ValueError, RuntimeError, OSError) as error:
        raise _refused("LanceDB", error) from None
    search = f'search(question).distance_type("dot").limit({10 * _most(rows)}).to_list()'
    asking = f"lancedb.connect({place!r}).open_table({table!r}).{search}"
    return f'list(dict.fromkeys(row["id"] for row in {asking}))[:10]' if index.has_questions else asking


def _has(database: Any, table: str) -> bool:
    try:
        database.open_table(table)
    except (ValueError, RuntimeError, OSError):  # by version
        return False
    return True


def _refused(engine: str, error: Exception, left: str = "Nothing was written.") -> InputError:
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    reason = reason.partition(", /")[0].rstrip(".")  # LanceDB ends in a place in its source code
    return InputError(f"{engine} says: {reason}. {left}")
