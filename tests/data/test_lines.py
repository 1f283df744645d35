import gzip

import pytest

from gnnretrieval.data import lines
from gnnretrieval.data.lines import excerpt, read_lines
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
