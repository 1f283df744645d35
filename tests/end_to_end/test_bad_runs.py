"""Run files, measures and baselines that cannot be evaluated."""

import pytest

LINE = "test-00 Q0 p00 1 0.5 tag\n"
WRONG_RUNS = {
    "nothing": ("", "", "this run is empty"),
    "one column": ("hello\n", ":1", "found 1 column, wanted six"),
    "qrels": (LINE + "test-00 0 p00 1\n", ":2", "Four columns are qrels"),
    "a passage twice": (LINE + LINE, ":2", "'p00' is there twice for query 'test-00'"),
    "a score in words": ("test-00 Q0 p00 1 high tag\n", ":1", "score 'high' is not a number"),
    "a score of NaN": (LINE + "test-00 Q0 p01 2 nan tag\n", ":2", "score 'nan' is not a number"),
}


@pytest.mark.parametrize("fault", WRONG_RUNS)
def test_a_wrong_run_names_its_line(fault, made, runs, refuses, tmp_path):
    content, line, message = WRONG_RUNS[fault]
    file = tmp_path / "wrong.run"
    file.write_text(content, encoding="utf-8")
    refuses("evaluate", file, "--data", made.data, says=(f"{file}{line}: ", message))
    refuses("compare", runs["bm25"], file, "--data", made.data, says=(f"{file}{line}: ", message))


def test_a_run_that_is_no_file(made, refuses, tmp_path):
    refuses("evaluate", tmp_path / "no.run", "--data", made.data, says=(tmp_path / "no.run", "no such file"))
    refuses("evaluate", tmp_path, "--data", made.data, says=(tmp_path, "this is a directory"))


def test_a_run_of_another_split(made, runs, refuses):
    says = ("no query of this run is in split 'dev'", "another split")
    refuses("evaluate", runs["bm25"], "--data", made.data, "--split", "dev", says=says)
    says = ("system 'bm25'", "no query in common", "split?")
    refuses("compare", runs["bm25"], "--data", made.data, "--split", "dev", says=says)
    says = ("no split 'tset'", "Did you mean 'test'?")
    refuses("evaluate", runs["bm25"], "--data", made.data, "--split", "tset", says=says)


@pytest.mark.parametrize(
    ("measures", "says"),
    [
        ("NDGC@10", ("unknown measure 'NDGC@10'", "Did you mean", "nDCG")),
        ("mmr@10", ("unknown measure 'mmr@10'", "Did you mean")),
        ("RR@0", ("'RR@0'", "cutoff")),
        ("R", ("'R' lacks its cutoff", "R@10")),
        ("", ("measure",)),
    ],
)
def test_a_measure_that_is_none(measures, says, made, runs, refuses):
    refuses("evaluate", runs["bm25"], "--data", made.data, "--measures", measures, says=says)
    refuses("compare", runs["bm25"], "--data", made.data, "--measures", measures, says=says)


def test_a_baseline_that_is_not_among_the_runs(made, runs, refuses):
    says = ("'gnn-encode' is not among the runs (bm25, gnn-encoder)", "Did you mean 'gnn-encoder'?")
    files = (runs["bm25"], runs["gnn-encoder"])
    refuses("compare", *files, "--data", made.data, "--baseline", "gnn-encode", says=says)


def test_two_runs_of_one_name(made, runs, refuses):
    refuses("compare", runs["bm25"], runs["bm25"], "--data", made.data, says=("both called 'bm25'",))


@pytest.mark.parametrize("option", [("--details",), ("--changed", "5")])
def test_a_csv_table_has_no_text_below_it(made, runs, refuses, option):
    command = ("compare", runs["bm25"], runs["gnn-encoder"], "--data", made.data, "--format", "csv")
    refuses(*command, *option, says=("leave them out with --format csv",))
