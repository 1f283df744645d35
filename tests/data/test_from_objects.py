import json

import numpy as np
import pytest

from gnnretrieval import Dataset
from gnnretrieval.data.from_objects import passages_of, qrels_of, queries_of
from gnnretrieval.data.records import Passage, Qrel, Query
from gnnretrieval.errors import InputError

WANTED = [Passage("a", "", "one"), Passage("b", "Two", "two")]


class Frame:
    """What a data frame is to us: columns, an index, and its rows as records."""

    def __init__(self, rows):
        self.rows, self.columns = rows, list(rows[0])

    def to_dict(self, how):
        assert how == "records"
        return self.rows


class Splits(dict):
    """What a ``DatasetDict`` of Hugging Face is to us: datasets by split, with the columns of each."""

    column_names = ("id", "text")


ROWS = [{"_id": "a", "title": None, "text": "one"}, {"_id": "b", "title": "Two", "text": "two"}]


@pytest.mark.parametrize(
    "given",
    [
        WANTED,
        ROWS,
        Frame(ROWS),
        iter(ROWS),
        {"a": "one", "b": {"title": "Two", "text": "two"}},
        {"a": {"text": "one"}, "b": WANTED[1]},
        [{"docno": "a", "contents": "one"}, {"docid": "b", "contents": "two", "title": "Two", "more": 1}],
        [{"id": "a", "text": "one", "title": float("nan")}, {"id": "b", "text": "two", "title": "Two"}],
    ],
)
def test_passages_come_in_many_shapes(given):
    assert passages_of(given) == WANTED


def test_texts_are_numbered_and_whole_numbers_are_ids():
    assert passages_of(["one", "two"]) == [Passage("0", "", "one"), Passage("1", "", "two")]
    assert queries_of([{"qid": 7, "question": "what?"}]) == [Query("7", "what?")]
    assert queries_of({"q": "what?"}) == queries_of([Query("q", "what?")]) == [Query("q", "what?")]
    assert queries_of({"q": Query("of the key", "what?")}) == [Query("q", "what?")]


@pytest.mark.parametrize(
    "given",
    [
        {"q": {"a": 1, "b": 2}},
        [("q", "a"), ("q", "b", 2)],
        [Qrel("q", "a", 1), Qrel("q", "b", 2)],
        [{"query-id": "q", "corpus-id": "a"}, {"query-id": "q", "corpus-id": "b", "score": 2.0}],
        Frame([{"qid": "q", "docid": "a", "rel": 1}, {"qid": "q", "docid": "b", "rel": 2}]),
        [("q", "a", 1), ("q", "a", 1), ("q", "b", 2)],
    ],
)
def test_judgements_come_in_many_shapes(given):
    assert qrels_of(given) == {"q": {"a": 1, "b": 2}}


def test_a_mapping_to_passages_judges_them_relevant():
    assert qrels_of({"q": "a", 5: ["b", "c"]}) == {"q": {"a": 1}, "5": {"b": 1, "c": 1}}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: passages_of("one"), "this is one text, and a list of texts is needed"),
        (lambda: passages_of(3), "a list, a mapping, a data frame or a dataset was expected, not int"),
        (lambda: passages_of([]), "there are no passages"),
        (lambda: passages_of([3]), "number 1 is int"),
        (lambda: passages_of(Splits(train=ROWS)), r"passages: these are datasets by name \(train\): give one of them"),
        (lambda: qrels_of(Splits(train=[], test=[])), r"qrels: these are datasets by name \(train, test\)"),
        (
            lambda: passages_of([{"id": "a", "body_of": "x"}]),
            "passage 1 has no text: wanted one of text, .*present: id",
        ),
        (lambda: passages_of([{"text": "x"}]), "passage 1 has no id"),
        (lambda: passages_of([{"id": "a", "text": " "}]), r"passage 1 \(a\) has neither title nor text"),
        (
            lambda: passages_of([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}]),
            "passage 2: the id 'a' is repeated",
        ),
        (lambda: passages_of([{"id": "a", "text": np.array(["x", "y"])}]), "passage 1: array.* is neither a text"),
        (lambda: passages_of([{"id": 1.5, "text": "x"}]), "1.5 is neither a text nor a whole number"),
        (lambda: passages_of([{"id": float("inf"), "text": "x"}]), "inf is neither a text nor a whole number"),
        (lambda: passages_of({"a\tb": "x"}), r"passage 1: the id 'a\\tb' is empty, or has a tab or line break in it"),
        (lambda: queries_of({" ": "x"}), "query 1: the id ' ' is empty"),
        (lambda: queries_of({"q": ""}), r"query 1 \(q\) is empty"),
        (lambda: queries_of([]), "there are no queries"),
        (lambda: queries_of({"q": "half \ud800"}), r"half of a surrogate pair .* is in query 1"),
        (lambda: passages_of({"p": "half \udfff"}), r"half of a surrogate pair .* is in passage 1"),
        (lambda: qrels_of([("q",)]), r"judgement 1: \(query id, passage id, relevance\) was expected"),
        (lambda: qrels_of([("q", "a", "x")]), "judgement 1: relevance 'x' is not a whole number"),
        (lambda: qrels_of([("q", "a", float("inf"))]), "relevance inf is not a whole number"),
        (lambda: qrels_of([("q", "a", 10**9)]), "relevance 1000000000 is too large"),
        (lambda: qrels_of([("q", "a", 0.5)]), r"relevance 0\.5 is not a whole number"),
        (lambda: qrels_of([("q", "a", 1), ("q", "a", 0)]), "judgement 2: 'q' and 'a' were judged 1 before"),
    ],
)
def test_what_does_not_fit_is_a_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_a_dataset_of_objects_is_one_on_disk(tmp_path):
    made = Dataset.from_records(
        WANTED, {"q": "what?", "r": "where?"}, {"q": "a"}, tmp_path / "set", test=[("r", "b", 2)]
    )
    assert made.splits == ["train", "test"]
    assert list(made.passages()) == WANTED
    assert (made.split("train"), made.split("test")) == ({"q": {"a": 1}}, {"r": {"b": 2}})
    assert repr(made) == f"Dataset('{tmp_path / 'set'}': 2 passages, 2 queries, judged: 1 train, 1 test)"
    before = json.loads((tmp_path / "set" / "meta.json").read_text())["hash"]
    again = Dataset.from_records(
        ROWS, {"q": "what?", "r": "where?"}, [("q", "a")], tmp_path / "set", test={"r": {"b": 2}}
    )
    assert json.loads((again.path / "meta.json").read_text())["hash"] == before


@pytest.mark.parametrize(
    ("qrels", "message"),
    [({"x": "a"}, "no query 'x'"), ({"q": "x"}, "no passage 'x'"), ({}, "qrels of train: there are no judgements")],
)
def test_judgements_of_what_is_not_there_are_refused(qrels, message, tmp_path):
    with pytest.raises(InputError, match=message):
        Dataset.from_records(WANTED, {"q": "what?"}, qrels, tmp_path / "set")
    assert not list(tmp_path.iterdir())


def test_a_data_frame_may_have_its_ids_as_a_column_and_as_its_index():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": ["a", "b"], "text": ["one", "two"]})
    assert passages_of(frame.set_index("id", drop=False)) == passages_of(frame) == passages_of(frame.set_index("id"))


def test_a_title_that_is_pandas_na_is_none_and_a_text_is_asked_for():
    pandas = pytest.importorskip("pandas")
    assert passages_of([{"id": "a", "title": pandas.NA, "text": "one"}]) == [WANTED[0]]
    with pytest.raises(InputError, match="passage 1: its text is empty"):
        passages_of([{"id": "a", "text": pandas.NA}])


def test_a_series_is_read_by_its_index():
    pandas = pytest.importorskip("pandas")
    texts = pandas.Series(["one text", "another"], index=["x7", "x9"])
    assert [(passage.id, passage.text) for passage in passages_of(texts)] == [("x7", "one text"), ("x9", "another")]
    assert [query.id for query in queries_of(texts)] == ["x7", "x9"]
    assert qrels_of(pandas.Series(["x7", "x9"], index=["q1", "q2"])) == {"q1": {"x7": 1}, "q2": {"x9": 1}}
    with pytest.raises(InputError, match="'x7' is repeated"):
        passages_of(pandas.Series(["a", "b"], index=["x7", "x7"]))
