import gzip

import pytest

from gnnretrieval.data import lines
from gnnretrieval.data.formats.columns import quoted_rows
from gnnretrieval.data.formats.json_array import json_array
from gnnretrieval.data.formats.trec import read_topics
from gnnretrieval.data.lines import excerpt, read_lines, read_text, text_pieces
from gnnretrieval.data.runs.lines import blocks_of
from gnnretrieval.errors import InputError


def test_lines_keep_their_numbers_when_blank_ones_are_passed_over(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a\n\n \r\nb\r\nc")
    assert list(read_lines(path, "letters")) == [(1, "a"), (4, "b"), (5, "c")]


def test_a_large_file_reads_the_same_with_its_progress(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("\n".join(map(str, range(250_000))))
    plain = list(read_lines(path, "numbers"))
    monkeypatch.setattr(lines, "LARGE_FILE", 1)
    assert list(read_lines(path, "numbers")) == plain


@pytest.mark.parametrize("value", ["x" * 10_000, list(range(10_000)), {"a": {"b": {"c": "d" * 10_000}}}])
def test_an_excerpt_is_short(value):
    assert len(excerpt(value)) < 200


def test_gzipped_lines_are_read_whatever_the_name_says(tmp_path):
    path = tmp_path / "file.jsonl"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfa\n\nb\r\n"))
    assert list(read_lines(path, "letters")) == [(1, "a"), (3, "b")]


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:40] + bytes(20) + data[60:]])
def test_broken_gzip_data_are_said_with_the_line(tmp_path, damage):
    path = tmp_path / "file.gz"
    path.write_bytes(damage(gzip.compress(bytes(str(list(range(400))), "ascii").replace(b",", b"\n"))))
    with pytest.raises(InputError, match=r"file.gz:\d+: the gzip data is broken"):
        list(read_lines(path, "letters"))


@pytest.fixture
def short(monkeypatch):
    """Lines of more than 100 bytes are too long, and pieces have 7."""
    monkeypatch.setattr(lines, "LONGEST_LINE", 100)
    monkeypatch.setattr(lines, "_PIECE", 7)


@pytest.mark.parametrize(
    ("read", "content", "line"),
    [
        (lambda path: read_lines(path, "words"), b"a\n\n" + 101 * b"b", 3),
        (lambda path: blocks_of(path), b"a b c\n" + 101 * b"b", 2),
        (lambda path: json_array(path, "a list"), b'[1,\n"' + 300 * b"b" + b'"]', 2),
        (lambda path: json_array(path, "a list"), b"[1,\n[" + 99 * b"1,\n", 2),
        (lambda path: quoted_rows(path, "rows", ","), b'a,b\n1,"' + 99 * b"b\n", 2),
        (lambda path: read_topics(path, ""), b"\n<top>\n" + 99 * b"<con> 1 1 1\n", 2),
    ],
    ids=["lines", "run", "element", "list", "row", "topic"],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_record_that_is_too_long_is_refused_with_its_line(read, content, line, pack, short, monkeypatch, tmp_path):
    monkeypatch.setattr("gnnretrieval.data.runs.lines._BLOCK", 6)
    monkeypatch.setattr("gnnretrieval.data.runs.lines.LONGEST_LINE", 100)
    path = tmp_path / "file"
    path.write_bytes(pack(content))
    with pytest.raises(InputError, match=rf"file:{line}: longer than 100 bytes"):
        list(read(path))


def test_lines_of_the_greatest_length_are_read(short, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(99 * b"a" + b"\n" + 100 * b"b")
    assert [len(line) for _, line in read_lines(path, "words")] == [99, 100]


def test_a_long_line_comes_in_pieces_of_whole_characters(short, tmp_path):
    path = tmp_path / "file"
    text = "grüße\u20ac, " * 30 + "\nende \U0001f600"
    path.write_text(text, encoding="utf-8")
    pieces = list(text_pieces(path, "words"))
    assert "".join(piece for _, piece in pieces) == text
    assert {number for number, _ in pieces} == {1, 2}
    assert read_text(path, "words") == text


@pytest.mark.parametrize("content", [b"a\n" + 20 * b"b" + b"\xff" + 20 * b"c", b"a\n" + 20 * b"b" + b"\xe2\x82"])
def test_what_is_not_utf_8_in_pieces_is_said_with_its_line(content, short, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"file:2: byte 0x.. at position \d+ is not UTF-8"):
        list(text_pieces(path, "words"))


def test_a_text_that_is_read_whole_is_bounded(monkeypatch, tmp_path):
    monkeypatch.setattr(lines, "LONGEST_TEXT", 100)
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(1000 * b"a\n"))
    with pytest.raises(InputError, match="longer than 100 characters"):
        read_text(path, "words")
