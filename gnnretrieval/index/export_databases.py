"""Export of an index to vector databases by their own clients: PostgreSQL with pgvector, Qdrant, LanceDB.

Vectors have length 1 if the similarity is cosine, so the inner product ranks as our own search does. Equal scores may
come in another order. Every function returns how to ask for the best ten.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.index.export import arrow_tables, exported_blocks, exported_rows
from gnnretrieval.index.faiss_index import Index
from gnnretrieval.platform.extras import extra
from gnnretrieval.progress import progress

_INDEXED = 2000  # largest dimension of a vector that pgvector can index
_POINTS = uuid.UUID("8d5f1f2b-6c0e-4f0a-9a57-1f6c8a6e2b11")  # namespace of the names of Qdrant's points
_SENT = 256  # points that Qdrant gets in one request, so that it stays below its limit of 32 MB


def write_pgvector(
    index: Index, dsn: str, table: str = "passages", *, approximate: bool = False, overwrite: bool = False
) -> str:
    """Copy an index's ids and vectors into a table of a PostgreSQL database with pgvector, in one transaction.

    Columns are ``id`` (text, primary key), ``title``, ``text`` and ``embedding`` (``vector(d)``).

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
        ArtifactError: As :func:`gnnretrieval.index.export.write_vectors`, or passages have several vectors.
        GnnRetrievalError: psycopg is not installed.
    """
    rows, dimension = _rows(index), index.meta["dimension"]
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
            columns = sql.SQL("id text PRIMARY KEY, title text, text text, embedding vector({}) NOT NULL").format(
                sql.Literal(dimension)
            )
            cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(name, columns))
            copy = sql.SQL("COPY {} (id, title, text, embedding) FROM STDIN").format(name)
            with (
                progress(f"copying into {table}", len(rows), "vectors") as meter,
                cursor.copy(copy) as stream,
            ):
                for block in exported_blocks(index):
                    for *columns_of, vector in zip(*block, strict=True):
                        written = ",".join(f"{value:.9g}" for value in vector.tolist())
                        stream.write_row((*columns_of, f"[{written}]"))
                    meter.advance(len(block.ids))
            if approximate:
                cursor.execute(sql.SQL("CREATE INDEX ON {} USING hnsw (embedding vector_ip_ops)").format(name))
    except psycopg.errors.DuplicateTable:
        raise InputError(f"table {table!r} is there already: name another with --table, or pass --overwrite.") from None
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise InputError(f"PostgreSQL says: {reason}. Nothing was written.") from None
    order = "embedding <#> %(question)s"  # pgvector's negative inner product
    return f"SELECT id, -({order}) AS score FROM {name.as_string()} ORDER BY {order} LIMIT 10"


def write_qdrant(
    index: Index, place: str, collection: str = "passages", *, approximate: bool = False, overwrite: bool = False
) -> str:
    """Copy an index's vectors, ids, titles and texts into a collection of Qdrant.

    A point has ``id``, ``title`` and ``text`` as payload, and as its own name a UUID of the id: Qdrant has no others.

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
        ArtifactError: As :func:`gnnretrieval.index.export.write_vectors`, or passages have several vectors.
        GnnRetrievalError: qdrant-client is not installed.
    """
    rows = _rows(index)
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
            space = models.VectorParams(size=index.meta["dimension"], distance=models.Distance.DOT)
            links = None if approximate else models.HnswConfigDiff(m=0)  # m = 0: no index, so every vector is compared
            client.create_collection(made, vectors_config=space, hnsw_config=links)
            try:
                with progress(f"copying into {made}", len(rows), "vectors") as meter:
                    client.upload_points(made, _points(index, models, meter.advance), batch_size=_SENT, wait=True)
            except BaseException:
                client.delete_collection(made)
                raise
            if is_there:
                left = f"The new collection is {made!r}."
                _replace(client, models, collection, made)
    except (failures.ApiException, failures.UnexpectedResponse, ValueError, RuntimeError, OSError) as error:
        raise _refused("Qdrant", error, left) from None
    opened = f"url={place!r}" if remote else f"path={place!r}"
    return f"QdrantClient({opened}).query_points({collection!r}, query=question, limit=10)"


def _replace(client: Any, models: Any, collection: str, made: str) -> None:
    """Let the name ``collection`` mean the collection ``made``, and delete what it meant."""
    aliases = {alias.alias_name: alias.collection_name for alias in client.get_aliases().aliases}
    if collection not in aliases:  # a collection has the name itself, and no alias can have it too
        client.delete_collection(collection)
    alias = models.CreateAlias(collection_name=made, alias_name=collection)
    client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    if collection in aliases:
        client.delete_collection(aliases[collection])


def _points(index: Index, models: Any, advance: Any) -> Iterator[Any]:
    for block in exported_blocks(index):
        for id_, title, text, vector in zip(*block, strict=True):
            payload = {"id": id_, "title": title, "text": text}
            yield models.PointStruct(id=str(uuid.uuid5(_POINTS, id_)), vector=vector.tolist(), payload=payload)
        advance(len(block.ids))


def write_lancedb(index: Index, place: str, table: str = "passages", *, overwrite: bool = False) -> str:
    """Write an index's vectors, ids, titles and texts as a table of LanceDB, in one step.

    LanceDB searches the table exactly until an index is made there.

    Args:
        index: The index.
        place: Directory or URI of the database, such as ``s3://bucket/search``.
        table: Name of the new table; its columns are ``id``, ``title``, ``text`` and ``vector``.
        overwrite: Replace a table of this name.

    Returns:
        The Python call that answers a question with the vector ``question``; ``1 - _distance`` is the score.

    Raises:
        InputError: LanceDB has the table already, or reports another error.
        ArtifactError: As :func:`gnnretrieval.index.export.write_vectors`, or passages have several vectors.
        GnnRetrievalError: lancedb is not installed.
    """
    rows = _rows(index)
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
    search = 'search(question).distance_type("dot").limit(10).to_list()'
    return f"lancedb.connect({place!r}).open_table({table!r}).{search}"


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


def _rows(index: Index) -> NDArray[np.int64]:
    """Rows of the passages that are in the index.

    Raises:
        ArtifactError: It is an index of sentences, or has several vectors a passage.
    """
    if index.has_questions:
        raise ArtifactError(
            f"{index.path}: passages have several vectors here, and a row of these tables is a passage. Write a file "
            "(--out), which has a row for each vector, or export an index of one vector a passage."
        )
    return exported_rows(index)
