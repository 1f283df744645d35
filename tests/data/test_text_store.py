import errno

import pytest

from gnnretrieval.data.records import Passage
from gnnretrieval.data.text_store import QueryRow, TextStore, passage_rows
from gnnretrieval.errors import InputError


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
    with pytest.raises(InputError, match="not a file of ids and texts"):
        TextStore(path)
