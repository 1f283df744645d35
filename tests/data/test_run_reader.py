import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs import lines as run_lines
from gnnretrieval.data.runs.trec import rank, read_run
from gnnretrieval.errors import InputError

LINES = "q1 Q0 d2 1 2.5 bm25\nq1 Q0 d1 2 1.5 bm25\nq2 Q0 d1 1 -3 bm25\n"
READ = {"q1": [ScoredPassage("d2", 2.5), ScoredPassage("d1", 1.5)], "q2": [ScoredPassage("d1", -3.0)]}

characters = st.characters(codec="utf-8", exclude_characters="\x00\ufeff").filter(lambda c: not c.isspace())
ids = st.text(characters, min_size=1, max_size=4)
scores = st.one_of(st.floats(allow_nan=False), st.floats(allow_nan=False, width=32), st.sampled_from([0.0, -0.0, 1.0]))


def passages(ranking):
    return [passage.passage_id for passage in ranking]


@pytest.mark.parametrize(
    "content",
    [
        LINES.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + LINES.encode(),
        b"\n \r\n" + LINES.replace("\n", "\n\n").encode() + b"\t\n",
        LINES.rstrip("\n").encode(),
        LINES.replace(" ", "\t").encode(),
        gzip.compress(LINES.encode(), mtime=0),
        b"q2 Q0 d1 7 -3.0 x\nq1 Q0 d1 1 15e-1 x\nq1 Q0 d2 2 2.5 x\n",
    ],
    ids=["crlf", "bom", "blank lines", "no last newline", "tabs", "gzip", "wrong ranks"],
)
def test_every_common_form_of_run_is_read_alike(tmp_path, content):
    (tmp_path / "run").write_bytes(content)
    assert read_run(tmp_path / "run") == READ


@pytest.mark.parametrize(
    "content",
    [
        b"q1 Q0 d2 1 2.5\nq1 Q0 d1 2 1.5\nq2 0 d1 1 -3\n",
        b'{"q1": {"d1": 1.5, "d2": 2.5}, "q2": {"d1": -3}}',
        b'\xef\xbb\xbf \n{"q2": {"d1": -3e0},\n"q1": {"d2": 25e-1, "d1": 1.5}}',
        gzip.compress(b'{"q1": {"d1": 1.5, "d2": 2.5}, "q2": {"d1": -3}}', mtime=0),
    ],
    ids=["no tag", "json", "json with bom", "json gzipped"],
)
def test_what_other_tools_write_is_read_alike(tmp_path, content):
    (tmp_path / "run").write_bytes(content)
    assert read_run(tmp_path / "run") == READ


def test_a_ranking_of_ms_marco_is_read_by_its_ranks(tmp_path):
    (tmp_path / "run.tsv").write_text("q1\t30\t2\nq1\t7\t1\nq2\t7\t1\n")
    found = read_run(tmp_path / "run.tsv")
    assert found == {"q1": [("7", -1.0), ("30", -2.0)], "q2": [("7", -1.0)]}


def test_infinite_scores_are_ranked_first_and_last(tmp_path):
    (tmp_path / "run").write_text("q Q0 a 1 inf x\nq Q0 b 2 1e300 x\nq Q0 c 3 0 x\nq Q0 d 4 -Infinity x\n")
    assert passages(read_run(tmp_path / "run")["q"]) == ["b", "a", "c", "d"]  # 1e300 is infinite in float32


@pytest.mark.parametrize(
    ("lines", "queries"),
    [
        ("a Q0 x 1 2 t\na Q0 y 2 1 t\n", None),
        ("a Q0 x 2 2 t\na Q0 y 1 1 t\n", "1 of 1 queries, such as 'a'"),
        ("a Q0 x 1 2 t\na Q0 y 2 1 t\nb Q0 x 1 1 t\nb Q0 y 2 2 t\n", "1 of 2 queries, such as 'b'"),
        ("a Q0 y 2 1 t\na Q0 x 1 2 t\n", None),  # another order of lines
        ("a Q0 x 1 1 t\na Q0 y 1 2 t\n", None),  # ranks that say nothing
        ("a Q0 x - 1 t\na Q0 y - 2 t\n", None),
        ("a Q0 x 1 2 t\na Q0 y 2 2 t\na Q0 z 3 1 t\n", None),  # a tie, which tools break as they like
        ("a Q0 x 1 2 t\na Q0 y 2 2 t\n", "1 of 1 queries"),  # but ranks alone order these
        ("a Q0 y 1 2 t\na Q0 x 2 2 t\n", None),
    ],
)
def test_ranks_in_another_order_than_the_scores_are_said(tmp_path, lines, queries):
    (tmp_path / "run").write_text(lines)
    said = []
    read_run(tmp_path / "run", said.append)
    assert len(said) == (queries is not None)
    assert queries is None or queries in said[0]


def line_by_line(text):
    """A run as its lines say, one after the other."""
    found = {}
    for line in text.removeprefix("\ufeff").split("\n"):
        if fields := line.encode().split():
            query, _, passage, _, score, _ = fields
            found.setdefault(query.decode(), []).append(ScoredPassage(passage.decode(), float(score)))
    return {query: rank(scored) for query, scored in found.items()}


gaps = st.text(st.sampled_from(" \t"), min_size=1, max_size=3)
ends = st.sampled_from(["\n", "\r\n", " \n", "\n\n", "\n \r\n"])


@given(
    lines=st.lists(
        st.tuples(st.sampled_from(["q1", "q2", "q", "é"]), ids, scores), min_size=1, unique_by=lambda line: line[:2]
    ),
    gap=gaps,
    end=ends,
    before=st.sampled_from(["", "\ufeff", "\n\n"]),
    block=st.integers(1, 40),
)
def test_blocks_of_any_size_are_read_as_lines(tmp_path_factory, lines, gap, end, before, block):
    text = before + "".join(gap.join([query, "Q0", id_, "1", repr(score), "t"]) + end for query, id_, score in lines)
    path = tmp_path_factory.mktemp("run") / "run"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_lines, "_BLOCK", block)
        found = read_run(path, lambda line: None)
    assert found == line_by_line(text)
    assert list(found) == list(line_by_line(text))


@given(
    st.integers(1, 30), st.integers(0, 11), st.sampled_from([b"q Q0 d", b"q Q0 d 1 x t", b"q Q0 \xff 1 1 t", b"a\0b"])
)
def test_a_fault_is_found_in_its_line_whatever_the_blocks(tmp_path_factory, block, line, fault):
    lines = [b"q Q0 d%d 1 1 t" % number for number in range(12)]
    lines[3] = b""
    lines[line] = fault
    if line == 0:
        lines.insert(0, b"q Q0 d 1 1 t")  # the first line says what all are like
    path = tmp_path_factory.mktemp("run") / "run"
    path.write_bytes(b"\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_lines, "_BLOCK", block)
        with pytest.raises(InputError) as error:
            read_run(path, lambda line: None)
    assert error.value.line == (line or 1) + 1


def test_only_ascii_whitespace_separates_columns(tmp_path):
    (tmp_path / "run").write_text("q\u00a01 Q0 d\u20281 1 2.5 x\n", encoding="utf-8")
    assert read_run(tmp_path / "run") == {"q\u00a01": [("d\u20281", 2.5)]}


GOOD = b"q1 Q0 d1 1 2.5 x\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD + b"q1 Q0 d2 2 1.5\n", ":2: found 5 columns, wanted six"),
        (GOOD + b"q1 0 d2 1\n", ":2: found 4 columns.*qrels"),
        (GOOD + b"\nq1 Q0 d2 2 1.5 my run\n", ":3: found 7 columns.*spaces"),
        (GOOD + b"q1 Q0 d2 2 high x\n", ":2: score 'high' is not a number"),
        (GOOD + b"q1 Q0 d2 2 NaN x\n", ":2: score 'NaN' is not a number"),
        (GOOD + b"q1 Q0 d2 2 1_0 x\n", ":2: score '1_0' is not a number"),
        (GOOD + b"q2 Q0 d1 1 1 x\nq1 Q0 d1 2 1 x\n", ":3: passage 'd1' is there twice for query 'q1'"),
        (GOOD + b"q1 Q0 d\xe9 2 1 x\n", ":2: byte 0xe9 is not UTF-8"),
        (LINES.encode("utf-16"), ":1: byte 0xff is not UTF-8"),
        (gzip.compress(GOOD, mtime=0)[:-9], "gzip data is broken"),
        (b"", ": this run is empty"),
        (b" \n\n", ": this run is empty"),
        (b"q1 d1 1\nq1 d2 two\n", ":2: rank 'two' is not a whole number"),
        (b"q1 d1 1\nq1 d2 1\n", ":2: rank 1 is there twice for query 'q1'.*judgements"),
        (b"q1 d1 1\nq1 d1 2\n", ":2: passage 'd1' is there twice"),
        (b"q1 d1 1\nq1 Q0 d2 2 1 t\n", ":2: found 6 columns, wanted three"),
        (b"q1 Q0 d1 1 2.5\n" + GOOD, ":2: found 6 columns, wanted five as in the first line"),
        (b"query-id\tcorpus-id\tscore\nq1\td1\t1\n", ":1: this is the header of judgements"),
        (GOOD + b"q1 Q0 d\x002 2 1 x\n", ":2: there is a NUL byte"),
        (b'{"q1": {"d1": 1}', ": not JSON"),
        (b'{"q1": {"d1": NaN}}', "found score nan for 'd1' of query 'q1'"),
        (b'{"q1": {"d1": true}}', "found score True for 'd1'"),
        (b'{"q1": ["d1"]}', r"found \['d1'\] for query 'q1'; wanted a run"),
        (b'{"q1": {"d1": 1, "d1": 2}}', "'d1' is there twice in one object"),
        (b'{"q1": {"d\\n1": 1}}', "with a line break"),
        (b'{"q1": {"d\xe9": 1}}', "byte 0xe9 is not UTF-8"),
        (b"{}", "this run is empty"),
    ],
)
def test_bad_input_is_one_sentence_with_file_and_line(tmp_path, content, message):
    path = tmp_path / "bad.trec"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"^{path}.*{message}"):
        read_run(path)


def test_a_missing_file_and_a_directory_are_said_to_be_so(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_run(tmp_path / "run.trec")
    with pytest.raises(InputError, match="a directory"):
        read_run(tmp_path)


def test_a_query_id_may_begin_with_a_brace(tmp_path):
    (tmp_path / "run").write_text("{q Q0 p1 1 0.5 tag\n", encoding="utf-8")
    assert read_run(tmp_path / "run") == {"{q": [("p1", 0.5)]}
