import contextlib
import json
import string
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnretrieval.data.beir import read_passages, read_qrels, read_queries, write_passages, write_qrels, write_queries
from gnnretrieval.data.records import Passage, Qrel, Query
from gnnretrieval.errors import InputError

GOOD = '{"_id": "a", "text": "one"}\n'


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def fault(read, path, *args) -> str:
    with pytest.raises(InputError) as caught:
        list(read(path, *args))
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message.removeprefix(str(path))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"_id": "b", "text": ', "not JSON"),
        ("[1, 2]", "found [1, 2], wanted a passage as a JSON object"),
        ('"b"', "wanted a passage as a JSON object"),
        ('{"text": "two"}', "this passage has no '_id', only ['text']"),
        ('{"_id": "b"}', "this passage has no 'text'"),
        ('{"_id": 7, "text": "two"}', "found '_id' 7, wanted a string"),
        ('{"_id": "b", "text": null}', "found 'text' None, wanted a string"),
        ('{"_id": "b", "text": ["two"]}', "found 'text' ['two'], wanted a string"),
        ('{"_id": "b", "text": "two", "title": 3}', "found title 3, wanted a string"),
        ('{"_id": "b", "text": "two", "metadata": "x"}', "found metadata 'x', wanted an object"),
        ('{"_id": "", "text": "two"}', "empty '_id'"),
        ('{"_id": "b\\tc", "text": "two"}', "tab or line break"),
        ('{"_id": "b", "text": " \\n", "title": " "}', "passage 'b' has neither title nor text"),
        ('{"_id": "b", "text": "\\ud800"}', "surrogate"),
        ('{"_id": "a", "text": "two"}', "passage id 'a' is already on line 1"),
        ('{"_id": "b", "text": "two", "metadata": ' + "[" * 100_000 + "}", "nested too deeply"),
        ('{"_id": "b", "text": "two", "metadata": {"n": ' + "9" * 5000 + "}}", "not JSON"),
    ],
)
def test_a_bad_passage_is_one_sentence_with_its_line(tmp_path, line, said):
    message = fault(read_passages, write(tmp_path / "corpus.jsonl", GOOD + "\n" + line + "\n"))
    assert message.startswith(":3: ")
    assert said in message
    assert len(message) < 300


@pytest.mark.parametrize("text", ["", "  ", "\\t"])
def test_an_empty_query_is_an_error(tmp_path, text):
    message = fault(read_queries, write(tmp_path / "q.jsonl", GOOD + f'{{"_id": "b", "text": "{text}"}}'))
    assert message.startswith(":2: query 'b' has an empty text")


def test_a_passage_may_have_only_a_title_and_a_title_may_be_null(tmp_path):
    lines = '{"_id": "a", "title": "T", "text": ""}\n{"_id": "b", "title": null, "text": "two"}\n'
    passages = [passage for passage, _ in read_passages(write(tmp_path / "c.jsonl", lines))]
    assert passages == [Passage("a", "T", ""), Passage("b", "", "two")]


def test_invalid_utf8_is_named_by_line_and_byte(tmp_path):
    message = fault(read_passages, write(tmp_path / "c.jsonl", GOOD.encode() + b'{"_id": "b", "text": "caf\xe9"}\n'))
    assert message.startswith(":2: byte 0xe9 at position 26 is not UTF-8")


def test_utf16_is_recognised(tmp_path):
    assert "UTF-16" in fault(read_passages, write(tmp_path / "c.jsonl", GOOD.encode("utf-16")))


def test_a_missing_file_names_the_nearest_one(tmp_path):
    write(tmp_path / "corpus.jsonl.gz", b"")
    assert "Did you mean 'corpus.jsonl.gz'?" in fault(read_passages, tmp_path / "corpus.jsonl")


def test_a_folder_in_place_of_a_file_is_a_sentence(tmp_path):
    (tmp_path / "corpus.jsonl").mkdir()
    assert "cannot be read" in fault(read_passages, tmp_path / "corpus.jsonl")


@pytest.mark.parametrize("content", ["", "\n \n", "\ufeff"])
def test_a_file_without_records_is_an_error(tmp_path, content):
    assert "empty" in fault(read_passages, write(tmp_path / "c.jsonl", content))


def test_byte_order_mark_and_crlf_change_nothing(tmp_path):
    plain = write(tmp_path / "a.jsonl", GOOD + '{"_id": "b", "text": "two"}\n')
    dressed = write(tmp_path / "b.jsonl", b"\xef\xbb\xbf" + plain.read_bytes().replace(b"\n", b"\r\n"))
    assert list(read_passages(dressed)) == list(read_passages(plain))
    qrels = write(tmp_path / "a.tsv", b"\xef\xbb\xbfquery-id\tcorpus-id\tscore\r\nq\tp\t2\r\n")
    assert read_qrels(qrels) == {"q": {"p": 2}}


def test_unicode_line_separators_are_text_not_line_ends(tmp_path):
    path = tmp_path / "c.jsonl"
    passage = Passage("a", "", "one\u2028two\x85three\x0bfour")
    write_passages(path, [(passage, {})])
    assert list(read_passages(path)) == [(passage, {})]


def test_qrels_may_have_no_header_and_keep_their_order(tmp_path):
    path = write(tmp_path / "t.tsv", "q2\tp1\t1\nq1\tp3\t0\nq2\tp0\t-1\nq2\tp1\t1\n")
    qrels = read_qrels(path)
    assert qrels == {"q2": {"p1": 1, "p0": -1}, "q1": {"p3": 0}}
    assert list(qrels) == ["q2", "q1"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("q\tp", "found 2 columns, wanted three"),
        ("q p 1", "separated by spaces?"),
        ("q\t0\tp\t1", "TREC qrels"),
        ("q\tp\t1.0", "found score '1.0', wanted an integer"),
        ("q\tp\tscore", "found score 'score'"),
        ("q\tp\t", "found score ''"),
        ("q\tp\t1_0", "found score '1_0'"),
        ("q\tp\t" + "9" * 5000, "wanted an integer"),
        ("x\tp\t1", "there is no query 'x'"),
        ("q\tx\t1", "there is no passage 'x'"),
        ("q\tp\t0", "have score 0 here and 1 on line 2"),
    ],
)
def test_a_bad_judgement_is_one_sentence_with_its_line(tmp_path, line, said):
    path = write(tmp_path / "test.tsv", f"query-id\tcorpus-id\tscore\nq\tp\t1\n{line}\n")
    message = fault(read_qrels, path, {"q"}, {"p"})
    assert message.startswith(":3: ")
    assert said in message


@pytest.mark.parametrize("content", ["", "query-id\tcorpus-id\tscore\n"])
def test_a_split_without_judgements_is_an_error(tmp_path, content):
    assert "no judgements" in fault(read_qrels, write(tmp_path / "t.tsv", content))


words = st.text(min_size=1).filter(lambda text: text.strip() and text.isprintable())
metadata = st.dictionaries(st.text(string.ascii_letters, min_size=1), st.none() | st.booleans() | st.integers() | words)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(words, st.tuples(words.map(str.strip), words, metadata), min_size=1))
def test_what_is_written_is_read_back(records):
    passages = [(Passage(id_, title, text), data) for id_, (title, text, data) in records.items()]
    queries = [(Query(id_, text), data) for id_, (_, text, data) in records.items()]
    qrels = [
        Qrel(id_, passage.id, number) for number, (id_, (passage, _)) in enumerate(zip(records, passages, strict=True))
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        assert write_passages(root / "c", passages) == write_queries(root / "q", queries) == len(records)
        assert write_qrels(root / "qrels" / "t.tsv", qrels) == len(records)
        assert list(read_passages(root / "c")) == passages
        assert list(read_queries(root / "q")) == queries
        assert read_qrels(root / "qrels" / "t.tsv", records, records) == {q: {p: n} for q, p, n in qrels}


@settings(max_examples=150, deadline=None)
@given(
    st.binary()
    | st.lists(st.sampled_from([b'{"_id": "a", "text": "x"}', b"{}", b"\n", b"\r", b"\x00", b"q\tp\t1", b"\xff"])).map(
        b"".join
    )
    | st.recursive(st.none() | st.floats() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)).map(
        lambda value: json.dumps(value).encode()
    )
)
def test_no_bytes_bring_anything_but_an_input_error(content):
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "file", content)
        for read in (read_passages, read_queries, read_qrels):
            with contextlib.suppress(InputError):
                list(read(path))


def test_a_score_may_have_any_white_space_around_it(tmp_path):
    path = write(tmp_path / "t.tsv", "q\tp\t\x1d1\u00a0\n")
    assert read_qrels(path) == {"q": {"p": 1}}
