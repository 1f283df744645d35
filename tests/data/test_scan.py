import gzip
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnretrieval.data import Dataset
from gnnretrieval.data.inspection.problems import LINES, NOTICES, Problem, ProblemLine
from gnnretrieval.data.inspection.scan import scan_files
from gnnretrieval.errors import InputError

CORPUS = [b'{"_id": "p1", "title": "T", "text": "one"}', b'{"_id": "p2", "text": "two"}']
QUERIES = [b'{"_id": "q1", "text": "who"}', b'{"_id": "q2", "text": "what"}']
QRELS = [b"query-id\tcorpus-id\tscore", b"q1\tp1\t1", b"q2\tp2\t1"]


def make(root: Path, corpus=CORPUS, queries=QUERIES, qrels=QRELS, end: bytes = b"\n") -> Path:
    (root / "qrels").mkdir(parents=True)
    for name, lines in (("corpus.jsonl", corpus), ("queries.jsonl", queries), ("qrels/test.tsv", qrels)):
        (root / name).write_bytes(b"".join(line + end for line in lines))
    return root


def text(value: str) -> bytes:
    return json.dumps({"_id": "x", "text": value}).encode()


# A line that is put behind the good ones: its file, its kind of problem, and what is said of it.
LINE_OF = {
    "not UTF-8": ("corpus.jsonl", b'{"_id": "x", "text": "caf\xe9"}', "byte 0xe9 at position 26"),
    "not JSON": ("corpus.jsonl", b'{"_id": "x", "text": "a",}', "not JSON: "),
    "half a character": ("queries.jsonl", rb'{"_id": "x", "text": "\ud800"}', "half of a surrogate pair"),
    "missing field": ("queries.jsonl", b'{"id": "x", "text": "a"}', "this query has no '_id', only ['id', 'text']"),
    "wrong type": ("corpus.jsonl", b'{"_id": 7, "text": "a"}', "found '_id' 7, wanted a string"),
    "unusable id": ("corpus.jsonl", rb'{"_id": "a\tb", "text": "a"}', "a tab or line break"),
    "empty text": ("queries.jsonl", b'{"_id": "x", "text": " "}', "query 'x' has an empty text"),
    "repeated id": ("corpus.jsonl", b'{"_id": "p2", "text": "other"}', "'p2' is already on line 2"),
    "wrong columns": ("qrels/test.tsv", b"q1 p1 1", "found 1 column, wanted three"),
    "score is no integer": ("qrels/test.tsv", b"q1\tp2\tyes", "found score 'yes'"),
    "unknown query": ("qrels/test.tsv", b"x\tp1\t1", "there is no query 'x'"),
    "unknown passage": ("qrels/test.tsv", b"q1\tx\t1", "there is no passage 'x'"),
    "contradicting judgements": ("qrels/test.tsv", b"q1\tp1\t0", "score 0 here and 1 on line 2"),
    "repeated judgement": ("qrels/test.tsv", b"q1\tp1\t1", "judged on an earlier line"),
    "Windows line ends": ("queries.jsonl", b'{"_id": "x", "text": "a"}\r', "CR LF"),
    "control character": ("corpus.jsonl", rb'{"_id": "x", "text": "a\u0000b"}', "U+0000 in 'a\\x00b'"),
    "replacement character": ("corpus.jsonl", text("caf\ufffd"), "U+FFFD in "),
    "doubly encoded": ("queries.jsonl", text("cafÃ©"), "'cafÃ©' looks like UTF-8 that was read as Latin-1"),
    "HTML entity": ("corpus.jsonl", text("R&D &amp; more"), "&amp; in "),
    "HTML tag": ("corpus.jsonl", text("a<br/>b"), "a tag in 'a<br/>b'"),
    "no text": ("corpus.jsonl", b'{"_id": "x", "title": "Only", "text": ""}', "passage 'x' has only a title, 'Only'"),
    "white space in an id": ("corpus.jsonl", b'{"_id": "a b", "text": "a"}', "passage id 'a b' cannot be written"),
}


@pytest.mark.parametrize("kind", LINE_OF)
def test_a_problem_is_named_with_its_file_and_line(kind, tmp_path):
    file, line, says = LINE_OF[kind]
    root = make(tmp_path / "data")
    before = (root / file).read_bytes()
    number = before.count(b"\n") + 2
    (root / file).write_bytes(before + b"\n" + line + b"\n")  # behind a blank line, which counts
    (problem,) = scan_files(root).problems
    assert (problem.kind, problem.file, problem.count) == (kind, file, 1)
    assert problem.is_error == (kind not in NOTICES)
    (found,) = problem.lines
    assert found.line == number
    assert says in found.says
    assert found.says.endswith((".", "?"))


def test_every_notice_has_a_test():
    assert set(NOTICES) - LINE_OF.keys() == {"byte order mark"}


@pytest.mark.parametrize("kind", LINE_OF)
def test_what_the_readers_refuse_is_an_error_in_their_words_and_all_else_a_notice(kind, tmp_path):
    file, line, _ = LINE_OF[kind]
    root = make(tmp_path / "data")
    (root / file).write_bytes((root / file).read_bytes() + line + b"\n")
    (problem,) = scan_files(root).problems
    if kind in NOTICES:
        Dataset.open(root)
        return
    with pytest.raises(InputError) as refused:
        Dataset.open(root)
    (found,) = problem.lines
    assert str(refused.value) == f"{root / file}:{found.line}: {found.says}"


def test_a_sound_dataset_has_no_problem_and_its_files_are_described(tmp_path):
    found = scan_files(make(tmp_path / "data"))
    assert found.problems == []
    assert found.errors == 0
    assert list(found.files) == ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"]
    assert found.files["corpus.jsonl"].as_json() == {
        "bytes": (tmp_path / "data" / "corpus.jsonl").stat().st_size,
        "lines": 2,
        "gzipped": False,
        "byte_order_mark": False,
        "windows_line_ends": 0,
        "not_ascii": 0,
    }


def test_all_problems_of_all_files_are_found_at_once_errors_first(tmp_path):
    root = make(tmp_path / "data")
    for kind, (file, line, _) in LINE_OF.items():
        if kind != "Windows line ends":
            line = line.replace(b'"x"', f'"{kind}"'.encode())
            (root / file).write_bytes((root / file).read_bytes() + line + b"\n")
    found = scan_files(root)
    assert {problem.kind for problem in found.problems} == LINE_OF.keys() - {"Windows line ends"}
    severities = [problem.is_error for problem in found.problems]
    assert severities == sorted(severities, reverse=True)
    assert found.errors == sum(severities)


@pytest.mark.parametrize("kind", ["not JSON", "repeated id", "contradicting judgements", "HTML tag"])
def test_of_a_kind_the_first_lines_are_named_and_all_are_counted(kind, tmp_path):
    file, line, _ = LINE_OF[kind]
    root = make(tmp_path / "data")
    before = (root / file).read_bytes()
    lines = [line.replace(b'"x"', b'"x%d"' % number) for number in range(12)]
    (root / file).write_bytes(before + b"\n".join(lines))
    (problem,) = scan_files(root).problems
    assert (problem.kind, problem.count) == (kind, 12)
    first = before.count(b"\n") + 1
    assert [line.line for line in problem.lines] == list(range(first, first + LINES))


def test_a_line_with_two_faults_is_named_for_both(tmp_path):
    root = make(tmp_path / "data", corpus=[*CORPUS, b'{"_id": 3, "title": 4, "text": "a<p>\\u0007"}'])
    assert [(p.kind, p.count) for p in scan_files(root).problems] == [
        ("wrong type", 2),
        ("control character", 1),
        ("HTML tag", 1),
    ]


def test_half_a_character_in_an_id_is_an_error_like_any_other(tmp_path):
    root = make(tmp_path / "data", corpus=[*CORPUS, rb'{"_id": "a\ud800", "text": "a"}'])
    assert [problem.kind for problem in scan_files(root).problems] == ["half a character"]


@pytest.mark.parametrize("broken", [b'{"_id": "p3", "text": "a}', b'{"text": "caf\xe9", "_id": "p3"}'])
def test_judgements_of_a_passage_whose_line_is_broken_are_not_reported_too(broken, tmp_path):
    root = make(tmp_path / "data", corpus=[*CORPUS, broken], qrels=[*QRELS, b"q1\tp3\t1", b"q1\tp4\t1"])
    found = {problem.kind: problem.lines for problem in scan_files(root).problems}
    assert [line.line for line in found.pop("unknown passage")] == [5]
    assert len(found) == 1


def test_a_byte_order_mark_and_windows_line_ends_are_counted_and_hinder_nothing(tmp_path):
    root = make(tmp_path / "data", corpus=[b"\xef\xbb\xbf" + CORPUS[0], CORPUS[1]], end=b"\r\n")
    found = scan_files(root)
    assert found.errors == 0
    assert [(p.kind, p.file, p.count, p.lines[0].line) for p in found.problems] == [
        ("byte order mark", "corpus.jsonl", 1, 1),
        ("Windows line ends", "corpus.jsonl", 2, 1),
        ("Windows line ends", "queries.jsonl", 2, 1),
        ("Windows line ends", "qrels/test.tsv", 3, 1),
    ]
    assert found.files["corpus.jsonl"].byte_order_mark
    assert found.files["qrels/test.tsv"].windows_line_ends == 3


def test_gzipped_files_are_read_and_broken_ones_are_named(tmp_path):
    root = make(tmp_path / "data", corpus=[*CORPUS, b"{"])
    plain = (root / "corpus.jsonl").read_bytes()
    (root / "corpus.jsonl").write_bytes(gzip.compress(plain))
    found = scan_files(root)
    assert found.files["corpus.jsonl"].gzipped
    assert [(p.kind, p.lines[0].line) for p in found.problems] == [("not JSON", 3)]
    (root / "corpus.jsonl").write_bytes(gzip.compress(plain)[:-9])
    assert [p.kind for p in scan_files(root).problems if p.is_error][-1] == "cannot be read"


FILES = {
    "a missing corpus": (lambda root: (root / "corpus.jsonl").unlink(), "no such file", "corpus.jsonl"),
    "no folder of judgements": (lambda root: (root / "qrels").rename(root / "qrel"), "no judgements", "qrels/"),
    "an empty file of queries": (lambda root: (root / "queries.jsonl").write_bytes(b""), "empty file", "queries.jsonl"),
    "a split with a header alone": (
        lambda root: (root / "qrels" / "dev.tsv").write_bytes(QRELS[0] + b"\n"),
        "empty file",
        "qrels/dev.tsv",
    ),
    "UTF-16": (
        lambda root: (root / "corpus.jsonl").write_bytes((root / "corpus.jsonl").read_text().encode("utf-16")),
        "cannot be read",
        "corpus.jsonl",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_file_is_one_problem_and_its_ids_are_not_missed(name, tmp_path):
    spoil, kind, file = FILES[name]
    root = make(tmp_path / "data")
    spoil(root)
    problems = [problem for problem in scan_files(root).problems if problem.kind != "unknown query"]
    assert [(problem.kind, problem.file, problem.count) for problem in problems] == [(kind, file, 1)]
    with pytest.raises(InputError):
        Dataset.open(root)


def test_problems_are_json(tmp_path):
    problem = Problem(
        kind="not JSON",
        severity="error",
        file="corpus.jsonl",
        count=3,
        lines=[ProblemLine(line=1, says="a"), ProblemLine(line=None, says="b")],
    )
    assert problem.is_error
    assert problem.as_json() == {
        "kind": "not JSON",
        "severity": "error",
        "file": "corpus.jsonl",
        "count": 3,
        "lines": [{"line": 1, "says": "a"}, {"line": None, "says": "b"}],
    }


pieces = st.sampled_from(
    [
        *CORPUS,
        *QUERIES,
        *QRELS,
        *(line for _, line, _ in LINE_OF.values()),
        b"",
        b"\xef\xbb\xbf",
        b"\x00",
        b"q1\tp1\t1\r",
        b"q1\tp1\t2",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(pieces, max_size=3), st.lists(pieces, max_size=3), st.lists(pieces, max_size=3))
def test_there_is_an_error_exactly_where_the_dataset_cannot_be_opened(corpus, queries, qrels):
    with tempfile.TemporaryDirectory() as folder:
        root = make(Path(folder) / "data", CORPUS + corpus, QUERIES + queries, qrels + QRELS[1:])
        found = scan_files(root)
        refused = []
        try:
            Dataset.open(root)
        except InputError as error:
            refused.append(error.says)
        said = {line.says for problem in found.problems if problem.is_error for line in problem.lines}
        assert said >= set(refused)
        assert bool(refused) == bool(found.errors)
