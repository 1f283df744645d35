import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.trec import rank, rank_rows, read_run, write_run
from gnnretrieval.errors import InputError

RUN = {"q1": [ScoredPassage("d1", 1.5), ScoredPassage("d2", 2.5)], "q2": [ScoredPassage("d1", -3.0)]}
LINES = "q1 Q0 d2 1 2.5 bm25\nq1 Q0 d1 2 1.5 bm25\nq2 Q0 d1 1 -3 bm25\n"
READ = {"q1": [ScoredPassage("d2", 2.5), ScoredPassage("d1", 1.5)], "q2": [ScoredPassage("d1", -3.0)]}

characters = st.characters(codec="utf-8", exclude_characters="\x00\ufeff").filter(lambda c: not c.isspace())
ids = st.text(characters, min_size=1, max_size=4)
scores = st.one_of(st.floats(allow_nan=False), st.floats(allow_nan=False, width=32), st.sampled_from([0.0, -0.0, 1.0]))
rankings = st.dictionaries(ids, scores, min_size=1, max_size=8).map(
    lambda scored: [ScoredPassage(*item) for item in scored.items()]
)


def passages(ranking):
    return [passage.passage_id for passage in ranking]


def test_highest_score_comes_first_and_ties_by_id_descending():
    scored = [ScoredPassage("a", 1.0), ScoredPassage("b", 2.0), ScoredPassage("c", 1.0), ScoredPassage("B", 1.0)]
    assert passages(rank(scored)) == ["b", "c", "a", "B"]


def test_ties_compare_ids_byte_by_byte_in_utf8():
    names = ["z", "é", "10", "9", "€", "𝄞", "\uffff"]
    ranked = passages(rank([ScoredPassage(name, 1.0) for name in names]))
    assert ranked == sorted(names, key=str.encode, reverse=True)


def test_scores_that_differ_beyond_float32_are_ties():
    assert rank([ScoredPassage("a", 1.0 + 1e-9), ScoredPassage("b", 1.0)]) == [("b", 1.0), ("a", 1.0)]
    assert passages(rank([ScoredPassage("a", 1e300), ScoredPassage("b", 1e39)])) == ["b", "a"]


@pytest.mark.parametrize(
    ("scored", "message"),
    [
        ([ScoredPassage("d7", float("nan"))], "'d7' has score NaN"),
        ([ScoredPassage("d7", 1.0), ScoredPassage("d8", 1.0), ScoredPassage("d7", 2.0)], "'d7' is twice"),
    ],
)
def test_a_ranking_with_nan_or_a_passage_twice_is_refused(scored, message, tmp_path):
    with pytest.raises(InputError, match=message):
        rank(scored)
    with pytest.raises(InputError, match=f"run.trec: query 'q1': .*{message}"):
        write_run(tmp_path / "run.trec", {"q1": scored}, "tag")
    assert list(tmp_path.iterdir()) == []


@given(rankings)
def test_ranking_is_repeatable_whatever_the_input_order(scored):
    ranked = rank(scored)
    assert rank(ranked) == ranked == rank(reversed(scored))


def test_rows_are_ranked_like_records_and_missing_ones_left_out():
    rows = np.array([[2, 0, 1], [1, -1, -1], [-1, -1, -1]])
    scores = np.array([[1.0, 1.0, 3.0], [0.5, -9.0, -9.0], [0.0, 0.0, 0.0]], dtype=np.float32)
    assert rank_rows(rows, scores, ["a", "b", "c"]) == [[("b", 3.0), ("c", 1.0), ("a", 1.0)], [("b", 0.5)], []]


def test_a_written_run_has_six_columns_in_rank_order(tmp_path):
    write_run(tmp_path / "new" / "run.trec", RUN, "bm25")
    assert (tmp_path / "new" / "run.trec").read_text() == LINES
    assert read_run(tmp_path / "new" / "run.trec") == READ


@given(run=st.dictionaries(ids, rankings, min_size=1, max_size=4), suffix=st.sampled_from(["", ".gz"]))
def test_what_is_written_is_read_back_in_the_same_order_with_the_same_float32(tmp_path_factory, run, suffix):
    path = tmp_path_factory.mktemp("run") / f"run.trec{suffix}"
    write_run(path, run, "tag")
    assert read_run(path) == {query_id: rank(scored) for query_id, scored in run.items()}


def test_a_run_without_results_is_written_and_read_only_where_that_is_expected(tmp_path):
    empty = {"q1": [], "q2": []}
    with pytest.raises(InputError, match="nothing to write: none of the 2 queries"):
        write_run(tmp_path / "run", empty, "bm25")
    write_run(tmp_path / "run", empty, "bm25", may_be_empty=True)
    assert read_run(tmp_path / "run", may_be_empty=True) == {}
    with pytest.raises(InputError, match="empty"):
        read_run(tmp_path / "run")


def test_a_gzipped_run_is_the_same_bytes_every_time(tmp_path):
    write_run(tmp_path / "a.gz", RUN, "bm25")
    write_run(tmp_path / "b.gz", RUN, "bm25")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()).decode() == LINES


@pytest.mark.parametrize(
    ("query_id", "passage_id", "tag"),
    [
        ("q 1", "d", "t"),
        ("q", "d\t1", "t"),
        ("q", "d", "my run"),
        ("", "d", "t"),
        ("q", "d\u00a01", "t"),
        ("q", "\ud800", "t"),
    ],
)
def test_ids_with_whitespace_are_refused_and_the_old_file_stays(tmp_path, query_id, passage_id, tag):
    path = tmp_path / "run.trec"
    write_run(path, RUN, "bm25")
    with pytest.raises(InputError, match="whitespace"):
        write_run(path, {"first": RUN["q1"], query_id: [ScoredPassage(passage_id, 1.0)]}, tag)
    assert path.read_text() == LINES
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_without_results_is_not_written(tmp_path):
    with pytest.raises(InputError, match="none of the 1 queries"):
        write_run(tmp_path / "run.trec", {"q1": []}, "bm25")
    assert list(tmp_path.iterdir()) == []
