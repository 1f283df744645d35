"""Events out of a real PostgreSQL."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gnnretrieval.cli import cli
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.feedback import fetch_events
from gnnretrieval.feedback.events import EventLog

QUERY = """
SELECT asked AS query, at AS time, session, ids AS shown, clicked, details->'dwell' AS dwell
FROM searches ORDER BY at;
"""


@pytest.fixture
def database(postgres):
    """DSN of a database with two searches: arrays, a time with a zone, JSON, an empty click."""
    import psycopg

    with psycopg.connect(postgres) as connection:
        connection.execute("DROP TABLE IF EXISTS searches")
        connection.execute(
            "CREATE TABLE searches (asked text, at timestamptz, session uuid, ids text[], clicked text[],"
            " details jsonb)"
        )
        connection.execute(
            "INSERT INTO searches VALUES "
            "('wo ist \"Heron\"?\n', '2026-03-01 10:30+01', '8d1f0a52-0000-0000-0000-000000000001', "
            "'{p1,\"p,2\",p3}', '{\"p,2\"}', '{\"dwell\": 42.5}'), "
            "('Möwe', '2026-03-01 09:31+00', '8d1f0a52-0000-0000-0000-000000000002', '{p3}', '{}', NULL)"
        )
    return postgres


def test_the_rows_of_a_query_are_an_event_log(database, tmp_path):
    out = tmp_path / "log.jsonl"
    assert fetch_events(QUERY, database, out) == 2
    one, other = EventLog(out).events()
    assert (one.question, other.question) == ('wo ist "Heron"?\n', "Möwe")
    assert one.time == datetime(2026, 3, 1, 9, 30, tzinfo=UTC).timestamp()
    assert one.session.endswith("1")
    assert [(shown.passage, shown.position, shown.clicked, shown.dwell) for shown in one.shown] == [
        ("p1", 1, False, None),
        ("p,2", 2, True, 42.5),
        ("p3", 3, False, None),
    ]
    assert [shown.clicked for shown in other.shown] == [False]
    assert sorted(json.loads(out.read_text("utf-8").splitlines()[0])) == [
        "clicked", "dwell", "query", "session", "shown", "time"
    ]  # fmt: skip


def test_the_command_reads_the_query_from_a_file(database, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("clicks.sql").write_text(QUERY)
    cli(args=["feedback", "fetch", "clicks.sql", "--database", database], standalone_mode=False)
    assert capsys.readouterr().out.startswith("log.jsonl: 2 events\n")
    assert len(Path("log.jsonl").read_text("utf-8").splitlines()) == 2
    Path("bytes.sql").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="wanted one with a SELECT"):
        cli(args=["feedback", "fetch", "bytes.sql"], standalone_mode=False)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT nothing FROM searches", "PostgreSQL says: .*nothing.* Nothing was written"),
        ("SELECT * FROM searches WHERE false", "the query selects no row"),
        ("SELECT asked AS query, session AS query FROM searches", "two columns 'query'"),
        ("WITH gone AS (DELETE FROM searches RETURNING asked) SELECT asked FROM gone", "PostgreSQL says: "),
    ],
)
def test_a_query_that_is_no_log_is_refused_and_the_file_stays(database, tmp_path, query, says):
    out = tmp_path / "log.jsonl"
    out.write_text("before")
    with pytest.raises(InputError, match=says):
        fetch_events(query, database, out)
    assert [one.name for one in tmp_path.iterdir()] == ["log.jsonl"]
    assert out.read_text() == "before"
    assert fetch_events("SELECT asked FROM searches", database, tmp_path / "all.jsonl") == 2  # nothing was deleted


def test_a_database_that_cannot_be_reached_is_said(tmp_path):
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'gnnretrieval[pgvector]'")
    with pytest.raises(InputError, match=r"PostgreSQL says: connection .*No such file"):
        fetch_events("SELECT 1", f"host={tmp_path} dbname=none", tmp_path / "log.jsonl")


def test_without_psycopg_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(GnnRetrievalError, match=r"gnnretrieval\[pgvector\]"):
        fetch_events("SELECT 1", "", tmp_path / "log.jsonl")
