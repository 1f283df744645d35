import errno
import sqlite3
from contextlib import closing

import pytest

from gnnretrieval.data import sqlite_files
from gnnretrieval.data.records import Passage
from gnnretrieval.data.text_store import QueryRow, TextStore, passage_rows
from gnnretrieval.errors import ArtifactError, InputError


@pytest.fixture
def path(tmp_path):
    with TextStore(tmp_path / "texts.sqlite", create=True) as store:
        store.add_passages(passage_rows([Passage("a", "T", "one"), Passage("b", "", "two")]))
        store.add_queries([QueryRow(0, "q", "what?", "train")])
        store.add_qrels([(0, 1, 1)])
    return tmp_path / "texts.sqlite"


def test_texts_come_by_row_in_the_order_asked(path):
    with TextStore(path) as store:
        assert store.texts_of_passages([1, 0, 1]) == ["two", "T. one", "two"]
        assert store.texts_of_queries([0]) == ["what?"]
        assert store.counts() == (2, 1)
        assert store.rows_of_queries(["q", "none"]) == {"q": 0}
        assert store.query_rows_of_split("train") == [0]


@pytest.mark.parametrize(
    "look_up",
    [
        lambda store: store.rows_of_passages(["caf\udce9"]),
        lambda store: store.rows_of_queries(["caf\udce9"]),
        lambda store: store.passage_by_id("caf\udce9"),
        lambda store: store.query_by_id("caf\udce9"),
        lambda store: store.rows_named("caf\udce9", 5),
        lambda store: store.ids_beside("passages", "caf\udce9"),
    ],
)
def test_an_id_of_another_encoding_is_a_sentence(path, look_up):
    with TextStore(path) as store, pytest.raises(InputError, match=r"'caf\\udce9' is not UTF-8: give it in UTF-8"):
        look_up(store)


def test_what_is_added_is_there_at_the_end_of_the_block_or_not_at_all(path):
    with TextStore(path, extend=True) as store:
        store.add_passages(passage_rows([Passage("c", "", "three")], 2))

    def breaks_off() -> None:
        with TextStore(path, extend=True) as store:
            store.add_passages(passage_rows([Passage("d", "", "four")], 3))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        breaks_off()
    with TextStore(path) as store:
        assert store.passage_ids() == ["a", "b", "c"]


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path):
    def fills_up() -> None:
        with TextStore(tmp_path / "full.sqlite", create=True) as store:
            store._db.execute("PRAGMA max_page_count = 8")
            store.add_passages(passage_rows(Passage(f"p{n}", "", "text " * 100) for n in range(500)))

    with pytest.raises(OSError, match="full") as caught:
        fills_up()
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(tmp_path / "full.sqlite")


def test_a_damaged_file_is_a_sentence(path):
    path.write_bytes(b"no database, and longer than a header of one is, so that it is read at all" * 20)
    with pytest.raises(ArtifactError, match="file of ids and texts is damaged"):
        TextStore(path)


def test_a_damaged_name_of_a_table_is_a_sentence(path):
    content = path.read_bytes()
    at = content.index(b"CREATE TABLE passages")
    path.write_bytes(content[:at] + b"CREATE TABLE \xff" + content[at + 14 :])
    with pytest.raises(ArtifactError, match="file of ids and texts is damaged"):
        TextStore(path)


FOREIGN = {
    "a view in a table's place": "ALTER TABLE passages RENAME TO other; CREATE VIEW passages AS WITH RECURSIVE c(x) AS "
    "(SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS row, 'a' AS id, '' AS title, '' AS text FROM c;",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON qrels BEGIN DELETE FROM passages; END;",
    "an index on an expression": "CREATE INDEX i ON passages (lower(title));",
    "another table": "CREATE TABLE other (x);",
    "no table": "DROP TABLE qrels;",
    "a default": "DROP TABLE qrels; CREATE TABLE qrels (query, passage, relevance DEFAULT (randomblob(9)));",
}


@pytest.mark.parametrize("statements", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("extend", [False, True])
def test_a_file_with_other_than_our_tables_is_not_opened(path, statements, extend):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(statements)
    with pytest.raises(ArtifactError, match="its tables are not those of gnnretrieval"):
        TextStore(path, extend=extend)


READS = {
    "UPDATE passages SET text = x'ff00'": lambda store: list(store.passages()),
    "UPDATE passages SET title = x'ff'": lambda store: store.texts_of_passages([0]),
    "UPDATE passages SET id = x'61' WHERE row = 0": lambda store: store.passage_ids(),
    "UPDATE queries SET text = x'61'": lambda store: store.texts_of_queries([0]),
    "UPDATE queries SET split = x'61'": lambda store: store.query(0),
    "UPDATE passages SET text = CAST(x'ff' AS TEXT)": lambda store: store.passage_by_id("a"),
    "DELETE FROM passages WHERE row = 0": lambda store: store.passage_ids(),
    "UPDATE passages SET row = -1 WHERE row = 0": lambda store: list(store.passages()),
    "DELETE FROM queries": lambda store: store.texts_of_queries([0]),
    "UPDATE passages SET row = 9223372036854775807 WHERE row = 1": lambda store: store.counts(),
    "UPDATE qrels SET passage = -1": lambda store: store.qrels(),
    "UPDATE qrels SET query = 1": lambda store: store.qrels(),
    "UPDATE qrels SET relevance = 'much'": lambda store: store.relevance(0, 1),
}


@pytest.mark.parametrize(("statement", "read"), READS.items(), ids=READS)
def test_wrong_values_are_a_sentence(path, statement, read):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)
    with TextStore(path) as store, pytest.raises(ArtifactError, match="file of ids and texts is damaged") as refused:
        read(store)
    assert "\n" not in str(refused.value)


def test_work_is_limited_by_what_was_asked(path, monkeypatch):
    monkeypatch.setattr(sqlite_files, "_TICK", 1)
    monkeypatch.setattr(sqlite_files, "_LOOKUP", 300)
    with TextStore(path) as store:
        assert store.passage(0).id == "a"
        with pytest.raises(ArtifactError, match="interrupted"):
            list(store._rows(f"SELECT {' + '.join(['length(hex(id))'] * 500)} FROM passages", types=(int,)))


def test_a_file_is_read_without_its_directory_being_written_to(path):
    before = sorted(path.parent.iterdir())
    with TextStore(path) as store:
        assert store.passage(0).id == "a"
        assert sorted(path.parent.iterdir()) == before


def test_passages_are_named_by_an_id_or_by_a_part_of_id_or_title(tmp_path):
    passages = [Passage("a1", "The T_x", "one"), Passage("a", "", "two"), Passage("b", "A tax", "three")]
    with TextStore(tmp_path / "texts.sqlite", create=True) as store:
        store.add_passages(passage_rows(passages))
    with TextStore(tmp_path / "texts.sqlite") as store:
        assert store.rows_named("a", 10) == [1]  # an id, and nothing else
        assert store.rows_named("A", 10) == [0, 1, 2]
        assert store.rows_named("A", 2) == [0, 1]
        assert store.rows_named("t_x", 10) == [0]
        assert store.rows_named("", 10) == store.rows_named("one", 10) == []
    with TextStore(tmp_path / "texts.sqlite", hidden={1}) as store:
        assert store.rows_named("a", 10) == store.rows_named("A", 10) == [0, 2]
