"""Vectors for other engines: files that read back as what they were, and a running PostgreSQL that ranks as we do."""

import shutil
from contextlib import closing

import numpy as np
import pyarrow.parquet
import pytest
from postgres_answers import answers

from gnnretrieval.encoders.vector_file import open_vectors
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.index import build_index, export, open_index
from gnnretrieval.index.export import write_vectors
from gnnretrieval.index.export_databases import write_lancedb, write_pgvector, write_qdrant
from gnnretrieval.index.updating import remove_passages


@pytest.fixture(params=[True, False], ids=["cosine", "dot"])
def exported(request, make_features, tmp_path):
    """Features and their index, from which two of 300 passages were removed."""
    features = make_features(tmp_path / "features", 300, normalize=request.param)
    build_index(features, tmp_path / "index")
    return features, remove_passages(tmp_path / "index", ["p0", "p17"])


@pytest.fixture(params=[True, False], ids=["cosine", "dot"])
def small(request, make_features, tmp_path):
    """As ``exported``, of 40 passages: Qdrant's local mode syncs each."""
    features = make_features(tmp_path / "features", 40, normalize=request.param)
    build_index(features, tmp_path / "index")
    return features, remove_passages(tmp_path / "index", ["p0", "p17"])


def kept(features):
    rows = np.setdiff1d(np.arange(300), [0, 17])
    return [f"p{row}" for row in rows], features.similarity.prepare_array(features.passages[rows])


def test_npy_and_parquet_read_back_with_their_ids(exported, tmp_path):
    features, index = exported
    ids, vectors = kept(features)
    assert write_vectors(index, tmp_path / "v.npy") == [tmp_path / "v.npy", tmp_path / "v.ids.txt"]
    assert write_vectors(index, tmp_path / "v.parquet") == [tmp_path / "v.parquet"]
    for opened in (open_vectors(tmp_path / "v.npy", tmp_path / "v.ids.txt"), open_vectors(tmp_path / "v.parquet")):
        assert opened.ids == ids
        assert np.array_equal(np.concatenate([block for _, block in opened.blocks()]), vectors)
    table = pyarrow.parquet.read_table(tmp_path / "v.parquet")
    assert str(table.schema.field("vector").type) == "fixed_size_list<element: float>[16]"
    assert table.column("text").to_pylist() == [f"text {id_[1:]}" for id_ in ids]
    assert table.column("title").to_pylist() == [f"title {id_[1:]}" for id_ in ids]


def test_a_vector_that_was_read_finds_its_passage(exported, tmp_path):
    features, index = exported
    write_vectors(index, tmp_path / "v.npy")
    rows, _ = index.search(np.load(tmp_path / "v.npy"), 1)
    expected = np.setdiff1d(np.arange(300), [0, 17])
    assert features.similarity.normalize is False or np.array_equal(rows[:, 0], expected)


@pytest.mark.parametrize(("name", "says"), [("v.csv", r"written as \.npy or \.parquet"), ("d.npy", "a directory")])
def test_what_cannot_be_written_is_said(name, says, clustered, tmp_path):
    (tmp_path / "d.npy").mkdir()
    index = build_index(clustered, tmp_path / "index")
    with pytest.raises(InputError, match=says):
        write_vectors(index, tmp_path / name)


def test_vectors_that_are_gone_are_said_and_nothing_is_written(make_features, tmp_path):
    features = make_features(tmp_path / "features", 50)
    build_index(features, tmp_path / "index")
    shutil.rmtree(features.path)
    with pytest.raises(ArtifactError, match="no such directory"):
        write_vectors(open_index(tmp_path / "index"), tmp_path / "v.npy")
    assert not list(tmp_path.glob("*v.*"))


@pytest.mark.parametrize("fails_at", ["_ids", "_write_npy"])
def test_an_interrupted_export_leaves_the_vectors_and_the_ids_before_it(fails_at, make_features, tmp_path, monkeypatch):
    index = build_index(make_features(tmp_path / "features"), tmp_path / "index")
    files = write_vectors(index, tmp_path / "v.npy")
    before = [file.read_bytes() for file in files]
    remove_passages(tmp_path / "index", [index.texts.passage_ids()[0]])
    made = getattr(export, fails_at)
    calls = []

    def fails(*given):
        calls.append(given)
        if len(calls) == 1 and fails_at == "_ids":  # the check of the ids
            return made(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(export, fails_at, fails)
    with pytest.raises(KeyboardInterrupt):
        write_vectors(open_index(tmp_path / "index"), tmp_path / "v.npy")
    assert [file.read_bytes() for file in files] == before
    assert not list(tmp_path.glob(".v*"))


def test_new_vectors_never_lie_beside_old_ids(make_features, tmp_path, monkeypatch):
    index = build_index(make_features(tmp_path / "features"), tmp_path / "index")
    vectors, ids = write_vectors(index, tmp_path / "v.npy")
    before, rename = vectors.read_bytes(), type(vectors).replace

    def fails_for_ids(partial, target):
        if target == ids:
            raise KeyboardInterrupt
        return rename(partial, target)

    remove_passages(tmp_path / "index", [index.texts.passage_ids()[0]])
    monkeypatch.setattr(type(vectors), "replace", fails_for_ids)
    with pytest.raises(KeyboardInterrupt):
        write_vectors(open_index(tmp_path / "index"), vectors)
    assert vectors.read_bytes() != before
    assert not ids.exists()


def test_an_id_that_no_line_can_hold_is_refused_before_anything_is_written(make_features, tmp_path, monkeypatch):
    build_index(make_features(tmp_path / "features", 50), tmp_path / "index")
    monkeypatch.setattr(export, "_ids", lambda index, rows: ["two words"])
    with pytest.raises(InputError, match="whitespace"):
        write_vectors(open_index(tmp_path / "index"), tmp_path / "v.npy")
    assert not list(tmp_path.glob("*v.*"))


def test_postgresql_ranks_as_our_own_search(exported, pgvector):
    features, index = exported
    sql = write_pgvector(index, pgvector, "passages", overwrite=True)
    rows, scores = index.search(features.queries, 10)
    for found, own, values in zip(
        answers(pgvector, sql, features.similarity.prepare_array(features.queries)), rows, scores, strict=True
    ):
        assert [id_ for id_, _ in found] == [f"p{row}" for row in own]
        np.testing.assert_allclose([score for _, score in found], values, rtol=1e-5)


def test_an_approximate_table_answers_too(exported, pgvector):
    features, index = exported
    sql = write_pgvector(index, pgvector, "an odd name", approximate=True, overwrite=True)
    rows, _ = index.search(features.queries, 10)
    found = [
        [id_ for id_, _ in answer]
        for answer in answers(pgvector, sql, features.similarity.prepare_array(features.queries))
    ]
    shares = [len({*a} & {f"p{row}" for row in b}) / 10 for a, b in zip(found, rows.tolist(), strict=True)]
    assert np.mean(shares) > 0.8


def test_a_table_of_a_schema_is_named_with_it(exported, pgvector):
    features, index = exported
    write_pgvector(index, pgvector, "passages", overwrite=True)
    with pytest.raises(InputError, match=r"table 'public\.passages' is there already"):
        write_pgvector(index, pgvector, "public.passages")
    sql = write_pgvector(index, pgvector, "public.passages", overwrite=True)
    assert len(next(answers(pgvector, sql, features.similarity.prepare_array(features.queries)))) == 10


def test_a_table_that_is_there_is_kept_and_a_database_that_is_not_is_said(exported, pgvector, tmp_path):
    _, index = exported
    write_pgvector(index, pgvector, "kept", overwrite=True)
    with pytest.raises(InputError, match="table 'kept' is there already: name another with --table"):
        write_pgvector(index, pgvector, "kept")
    with pytest.raises(InputError, match=r"PostgreSQL says: .*Nothing was written\."):
        write_pgvector(index, f"host={tmp_path} user=me dbname=pgvector")


def test_qdrant_ranks_as_our_own_search_and_knows_the_texts(small, qdrant):
    import qdrant_client

    features, index = small
    call = write_qdrant(index, qdrant)
    rows, scores = index.search(features.queries, 10)
    client = qdrant_client.QdrantClient(path=qdrant)
    assert client.count("passages").count == 38
    for question, own, values in zip(features.similarity.prepare_array(features.queries), rows, scores, strict=True):
        found = client.query_points("passages", query=question, limit=10).points
        assert [point.payload for point in found] == [
            {"id": f"p{row}", "title": f"title {row}", "text": f"text {row}"} for row in own
        ]
        np.testing.assert_allclose([point.score for point in found], values, rtol=1e-5, atol=1e-6)
    client.close()
    names = {"QdrantClient": qdrant_client.QdrantClient, "question": question}
    assert [point.payload["id"] for point in eval(call, names).points] == [f"p{row}" for row in own]


def test_lancedb_ranks_as_our_own_search_and_knows_the_texts(exported, lancedb):
    import lancedb as client

    features, index = exported
    call = write_lancedb(index, lancedb)
    rows, scores = index.search(features.queries, 10)
    for question, own, values in zip(features.similarity.prepare_array(features.queries), rows, scores, strict=True):
        found = eval(call, {"lancedb": client, "question": question})
        assert [(one["id"], one["title"], one["text"]) for one in found] == [
            (f"p{row}", f"title {row}", f"text {row}") for row in own
        ]
        np.testing.assert_allclose([1 - one["_distance"] for one in found], values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("write", "engine"), [(write_qdrant, "qdrant"), (write_lancedb, "lancedb")])
def test_a_collection_that_is_there_is_kept_unless_it_is_to_be_replaced(
    write, engine, make_features, tmp_path, request
):
    index = build_index(make_features(tmp_path / "features", 5), tmp_path / "index")
    place = request.getfixturevalue(engine)
    write(index, place, "kept")
    with pytest.raises(InputError, match="'kept' is there already: name another with --table"):
        write(index, place, "kept")
    write(index, place, "kept", overwrite=True)


def test_a_refused_export_leaves_no_lock_in_qdrants_directory(make_features, tmp_path, qdrant):
    index = build_index(make_features(tmp_path / "features", 5), tmp_path / "index")
    write_qdrant(index, qdrant)
    with pytest.raises(InputError, match="is there already") as refused:
        write_qdrant(index, qdrant)
    assert "query_points" in write_qdrant(index, qdrant, overwrite=True)
    assert refused.tb is not None  # a notebook keeps the last error, and all that it refers to


def test_a_replaced_collection_is_kept_until_the_new_one_is_whole(make_features, tmp_path, qdrant, monkeypatch):
    import qdrant_client

    def fail(*arguments, **settings):
        raise RuntimeError("the disk is full")

    def there():
        with closing(qdrant_client.QdrantClient(path=qdrant)) as client:
            return client.count("passages").count, len(client.get_collections().collections)

    old = build_index(make_features(tmp_path / "features", 5), tmp_path / "index")
    new = build_index(make_features(tmp_path / "other", 7), tmp_path / "new")
    write_qdrant(old, qdrant)
    with monkeypatch.context() as patched:
        patched.setattr(qdrant_client.QdrantClient, "upload_points", fail)
        with pytest.raises(InputError, match=r"disk is full\. Nothing was written"):
            write_qdrant(new, qdrant, overwrite=True)
    assert there() == (5, 1)
    for index, count in ((new, 7), (old, 5)):  # in place of a collection, and of one behind an alias
        write_qdrant(index, qdrant, overwrite=True)
        assert there() == (count, 1)


@pytest.mark.parametrize(("write", "engine"), [(write_qdrant, "qdrant"), (write_lancedb, "lancedb")])
def test_of_an_index_that_lost_all_passages_an_empty_collection_is_made(
    write, engine, make_features, tmp_path, request
):
    build_index(make_features(tmp_path / "features", 3), tmp_path / "index")
    index = remove_passages(tmp_path / "index", ["p0", "p1", "p2"])
    assert "question" in write(index, request.getfixturevalue(engine))


def test_a_qdrant_that_is_not_there_is_said(clustered, tmp_path, qdrant, monkeypatch):
    index = build_index(clustered, tmp_path / "index")
    with pytest.raises(InputError, match=r"Qdrant says: .*Nothing was written\."):
        write_qdrant(index, "http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"Give the URL of a server, http://localhost:6333\."):
        write_qdrant(index, "localhost:6333")
