"""Vectors for other engines: files that read back as what they were, and a running PostgreSQL that ranks as we do."""

import os
import pwd
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from gnnretrieval.encoders.vector_file import open_vectors
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.index import build_index, export, open_index
from gnnretrieval.index.export import write_pgvector, write_vectors
from gnnretrieval.index.updating import remove_passages


@pytest.fixture(params=[True, False], ids=["cosine", "dot"])
def exported(request, make_features, tmp_path):
    """Features and their index, from which two of 300 passages were removed."""
    features = make_features(tmp_path / "features", 300, normalize=request.param)
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
    assert str(pyarrow.parquet.read_schema(tmp_path / "v.parquet").field("vector").type) == (
        "fixed_size_list<element: float>[16]"
    )


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


def test_an_id_that_no_line_can_hold_is_refused_before_anything_is_written(make_features, tmp_path, monkeypatch):
    build_index(make_features(tmp_path / "features", 50), tmp_path / "index")
    monkeypatch.setattr(export, "_ids", lambda index, rows: ["two words"])
    with pytest.raises(InputError, match="whitespace"):
        write_vectors(open_index(tmp_path / "index"), tmp_path / "v.npy")
    assert not list(tmp_path.glob("*v.*"))


def programs_of_postgres() -> Path | None:
    """Where initdb and pg_ctl of a PostgreSQL with pgvector are: Debian's, or the PyPI package pgserver's."""
    for place in sorted(Path("/usr/lib/postgresql").glob("*"), reverse=True):
        if Path("/usr/share/postgresql", place.name, "extension/vector.control").is_file():
            return place / "bin"
    found = find_spec("pgserver")
    if found is not None and found.origin is not None:
        return Path(found.origin).parent / "pginstall" / "bin"
    return None


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    """DSN of a PostgreSQL of this test's own, on a socket in a directory of its own."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'gnnretrieval[pgvector]'")
    programs = programs_of_postgres()
    if programs is None:
        pytest.skip("no PostgreSQL with pgvector: apt-get install postgresql-15-pgvector, or pip install pgserver")
    place = Path(tmp_path_factory.mktemp("postgres"))
    user = None
    if os.geteuid() == 0:  # PostgreSQL refuses root
        try:
            user = pwd.getpwnam("postgres").pw_name
        except KeyError:
            user = "nobody"
        for directory in (place, *place.parents[:2]):
            directory.chmod(0o755)
        os.chown(place, pwd.getpwnam(user).pw_uid, -1)
    (place / "socket").mkdir()
    if user is not None:
        os.chown(place / "socket", pwd.getpwnam(user).pw_uid, -1)

    def started(*words):
        done = subprocess.run(
            [programs / words[0], *map(str, words[1:])], user=user, cwd=place, capture_output=True, text=True
        )
        return done.returncode == 0, done.stdout + done.stderr

    ok, said = started("initdb", "-D", place / "data", "-U", "me", "--auth=trust", "--no-sync")
    if not ok:
        pytest.skip(f"initdb: {said[-200:]}")
    options = f"-k {place / 'socket'} -h '' -F"
    ok, said = started("pg_ctl", "-D", place / "data", "-l", place / "log", "-w", "-t", "60", "-o", options, "start")
    if not ok:
        pytest.skip(f"pg_ctl: {said[-200:]}")
    yield f"host={place / 'socket'} user=me dbname=postgres"
    started("pg_ctl", "-D", place / "data", "-m", "immediate", "stop")


def answers(dsn, sql, features):
    import psycopg

    asked = features.similarity.prepare_array(features.queries)
    with psycopg.connect(dsn) as connection:
        for question in asked:
            literal = "[" + ",".join(f"{value:.9g}" for value in question.tolist()) + "]"
            yield connection.execute(
                sql.replace("%(question)s", "%(question)s::vector"), {"question": literal}
            ).fetchall()


def test_postgresql_ranks_as_our_own_search(exported, postgres):
    features, index = exported
    sql = write_pgvector(index, postgres, "passages", overwrite=True)
    rows, scores = index.search(features.queries, 10)
    for found, own, values in zip(answers(postgres, sql, features), rows, scores, strict=True):
        assert [id_ for id_, _ in found] == [f"p{row}" for row in own]
        np.testing.assert_allclose([score for _, score in found], values, rtol=1e-5)


def test_an_approximate_table_answers_too(exported, postgres):
    features, index = exported
    sql = write_pgvector(index, postgres, "an odd name", approximate=True, overwrite=True)
    rows, _ = index.search(features.queries, 10)
    found = [[id_ for id_, _ in answer] for answer in answers(postgres, sql, features)]
    shares = [len({*a} & {f"p{row}" for row in b}) / 10 for a, b in zip(found, rows.tolist(), strict=True)]
    assert np.mean(shares) > 0.8


def test_a_table_that_is_there_is_kept_and_a_database_that_is_not_is_said(exported, postgres, tmp_path):
    _, index = exported
    write_pgvector(index, postgres, "kept", overwrite=True)
    with pytest.raises(InputError, match="table 'kept' is there already: name another with --table"):
        write_pgvector(index, postgres, "kept")
    with pytest.raises(InputError, match=r"PostgreSQL says: .*Nothing was written\."):
        write_pgvector(index, f"host={tmp_path} user=me dbname=postgres")
