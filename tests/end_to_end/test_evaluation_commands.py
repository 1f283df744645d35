"""``evaluate`` and ``compare`` on runs of other tools, with answers, and with queries that are passages."""

import json
import shutil

import pytest

from gnnretrieval.data.runs.trec import read_run


def test_every_tools_run_gives_the_same_values(made, runs, succeeds, tmp_path):
    lines = [line.split() for line in runs["bm25"].read_text().splitlines()]
    as_json = {}
    for query, _, passage, _, score, _ in lines:
        as_json.setdefault(query, {})[passage] = float(score)
    (tmp_path / "ours.json").write_text(json.dumps(as_json))
    ranks = [f"{q}\t{one.passage_id}\t{n}\n" for q, of in read_run(runs["bm25"]).items() for n, one in enumerate(of, 1)]
    (tmp_path / "msmarco.tsv").write_text("".join(ranks))
    expected = succeeds("evaluate", runs["bm25"], "--data", made.data, "--json").json["measures"]
    for name in ("ours.json", "msmarco.tsv"):
        assert succeeds("evaluate", tmp_path / name, "--data", made.data, "--json").json["measures"] == expected
    both = succeeds("compare", tmp_path / "ours.json", tmp_path / "msmarco.tsv", "--data", made.data, "--json").json
    assert all(test["ties"] == 10 for test in both["tests"])


def test_the_next_command_compares_by_the_same_judgements(runs, made, succeeds, tmp_path):
    data = shutil.copytree(made.data, tmp_path / "my data")
    (data / "qrels").rename(data / "graded")
    said = succeeds("evaluate", runs["bm25"], "--data", data, "--qrels", "graded", "--split", "test").err
    assert f"compare OTHER.run {runs['bm25']} --data '{data}' --qrels graded --split test says" in said


def test_every_querys_values_are_printed_and_written(made, runs, succeeds, tmp_path):
    command = ("evaluate", runs["bm25"], "--data", made.data, "--measures", "mrr@10,P_1,AP(rel=1,judged_only=True)")
    told = succeeds(*command, "--per-query", "--out", tmp_path / "values.tsv")
    (header,) = (line for line in told.out.splitlines() if line.startswith("query"))
    assert header.split() == ["query", "RR@10", "P@1", "AP(judged_only=True)"]
    each = succeeds(*command, "--per-query", "--json").json
    assert each["queries"] == len(each["per_query"]["P@1"]) == 10
    written = [line.split("\t") for line in (tmp_path / "values.tsv").read_text().splitlines()]
    assert {(name, query): float(value) for name, query, value in written if query != "all"} == {
        (name, query): value for name, of in each["per_query"].items() for query, value in of.items()
    }
    assert {name: float(value) for name, query, value in written if query == "all"} == each["measures"]
    assert "per_query" not in succeeds(*command, "--json").json


def test_ranks_that_contradict_the_scores_are_said(made, succeeds, tmp_path):
    (tmp_path / "odd.run").write_text("test-00 Q0 p00 1 1.5 t\ntest-00 Q0 p01 2 2.5 t\n")
    said = succeeds("evaluate", tmp_path / "odd.run", "--data", made.data).err
    assert "the ranks are in another order than the scores for 1 of 1 queries" in said


def test_the_changed_queries_are_in_the_json_too(made, runs, succeeds):
    command = ("compare", runs["bm25"], runs["gnn-encoder"], "--data", made.data, "--changed", "3", "--json")
    changed = succeeds(*command).json["changed"]
    assert (changed["system"], changed["measure"]) == ("gnn-encoder", "RR@10")
    for one in changed["helped"] + changed["hurt"]:
        assert one["text"].endswith("?")
        assert one["before"] != one["after"]


@pytest.fixture
def questions(dataset):
    """The tiny dataset with answers, and with questions of DPR's kind, which judge no passage."""
    lines = [json.loads(line) for line in (dataset / "queries.jsonl").read_text().splitlines()]
    (first, *_) = [json.loads(line) for line in (dataset / "corpus.jsonl").read_text().splitlines()]
    answer = " ".join(first["text"].split()[2:4]).upper()
    lines[-1]["metadata"] = {"answers": [answer]}  # test-09
    lines += [{"_id": f"nq-{n}", "text": answer.lower(), "metadata": {"answers": [answer, "none"]}} for n in range(2)]
    (dataset / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return dataset


def test_dprs_questions_are_searched_and_measured_by_their_answers(questions, succeeds, refuses, tmp_path):
    run = tmp_path / "nq.run"
    assert "2 queries by bm25" in succeeds("search", "--bm25", "--data", questions, "--split", "nq", "--run", run).out
    run.write_text("nq-0 Q0 p01 1 2 t\nnq-0 Q0 p00 2 1 t\n")
    command = ("evaluate", run, "--data", questions, "--split", "nq", "--measures")
    assert succeeds(*command, "Answer@1,Answer@2", "--json").json["measures"] == {"Answer@1": 0.0, "Answer@2": 0.5}
    refuses(*command, "Answer@2,RR@10", says=("no split 'nq'",))
    test = ("--data", questions, "--measures", "Answer@5,RR@10")
    (tmp_path / "test.run").write_text("test-09 Q0 p00 1 2 t\n")
    assert succeeds("evaluate", tmp_path / "test.run", *test, "--json").json["measures"]["Answer@5"] == 0.1
    (tmp_path / "other.run").write_text("test-09 Q0 p01 1 2 t\n")
    table = succeeds("compare", tmp_path / "test.run", tmp_path / "other.run", *test, "--format", "markdown").out
    assert "| test | **10.0** |" in table


def test_a_dataset_without_answers_has_no_answer_recall(made, runs, refuses):
    says = (made.data / "queries.jsonl", "none of these queries has answers")
    refuses("evaluate", runs["bm25"], "--data", made.data, "--measures", "Answer@20", says=says)


@pytest.fixture
def passages_as_queries(dataset):
    """Each test query is a passage of its own too, of the same id and text."""
    queries = [json.loads(line) for line in (dataset / "queries.jsonl").read_text().splitlines()]
    with (dataset / "corpus.jsonl").open("a") as file:
        for query in queries:
            if query["_id"].startswith("test-"):
                file.write(json.dumps({"_id": query["_id"], "title": "", "text": query["text"]}) + "\n")
    return dataset


def test_a_query_does_not_find_itself_unless_it_is_wanted(passages_as_queries, succeeds, tmp_path):
    run = tmp_path / "bm25.run"
    succeeds("search", "--bm25", "--data", passages_as_queries, "--run", run)
    command = ("evaluate", run, "--data", passages_as_queries, "--measures", "R@1")
    without = succeeds(*command)
    assert "left out: the passage that is the query (its id and text), for 10 of 10 queries; --keep-self" in without.err
    by_id, with_it = succeeds(*command, "--exclude-self", "--json"), succeeds(*command, "--keep-self", "--json")
    assert (by_id.json["self_excluded"], with_it.json["self_excluded"]) == (10, 0)
    assert by_id.json["measures"]["R@1"] > with_it.json["measures"]["R@1"] == 0.0
    assert f"{100 * by_id.json['measures']['R@1']:.1f}" in without.out
    other = run.rename(tmp_path / "one.run")
    run.write_text(other.read_text())
    table = succeeds("compare", run, other, "--data", passages_as_queries, "--json").json
    assert table["provenance"]["self_excluded"] == 10
    assert table["systems"][0]["measures"]["R@1"] == by_id.json["measures"]["R@1"]
