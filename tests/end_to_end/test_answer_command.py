import json

import pytest
from click.testing import CliRunner

from gnnretrieval.cli import cli
from gnnretrieval.data import Dataset
from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.trec import write_run
from gnnretrieval.errors import GnnRetrievalError


def invoke(*words):
    return CliRunner().invoke(cli, ["answer", *map(str, words)])


@pytest.fixture(scope="module")
def runs(answered_dataset, tmp_path_factory):
    """Runs of dev and test with each question's relevant passage first of three."""
    place, dataset = tmp_path_factory.mktemp("runs"), Dataset.open(answered_dataset)
    for split in ("dev", "test"):
        made = {
            query: [ScoredPassage(id_, 9.0 - rank) for rank, id_ in enumerate(dict.fromkeys([*judged, "p38", "p39"]))]
            for query, judged in dataset.split(split).items()
        }
        write_run(place / f"{split}.run", made, "perfect")
    return place


def test_a_question_is_answered_in_its_passage(tiny_run, tiny_reader):
    words = ("ruga tasu", "--index", tiny_run / "index", "--reader", tiny_reader, "--max-tokens", 48)
    found = json.loads(invoke(*words, "--passages", 2, "--json").output)
    assert found["answer"] == found["text"][found["start"] : found["end"]] != ""
    assert found["rank"] in (1, 2)
    lines = invoke(*words, "--passages", 2).output.splitlines()
    assert lines[0] == found["answer"]
    assert f"[{found['answer']}]" in lines[2]
    assert lines[3].startswith("read 2 of 40 passages in ")


def test_a_split_is_answered_and_measured(runs, answered_dataset, tiny_reader, tmp_path):
    words = ("--run", runs / "test.run", "--data", answered_dataset, "--reader", tiny_reader, "--max-tokens", 48)
    out = tmp_path / "predictions.jsonl"
    figures = json.loads(invoke(*words, "--dev-run", runs / "dev.run", "--out", out, "--json").output)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == figures["questions"] == figures["answered"] == 10
    for name in ("EM", "F1"):
        assert figures["measures"][name] == pytest.approx(sum(row[name] for row in rows) / 10)
    assert set(figures["dev"]) == {"EM", "F1"}
    texts = {passage.id: passage.text for passage in Dataset.open(answered_dataset).passages()}
    assert all(row["answer"] == texts[row["passage"]][row["start"] : row["end"]] for row in rows)
    said = invoke(*words, "--weight", 1000).output
    assert "10 questions of test with answers" in said
    assert "weight of the retrieval score 1000" in said


def test_a_heavy_weight_takes_the_first_passage(runs, answered_dataset, tiny_reader, tmp_path):
    words = ("--run", runs / "test.run", "--data", answered_dataset, "--reader", tiny_reader, "--max-tokens", 48)
    invoke(*words, "--weight", 1e6, "--out", tmp_path / "out")
    assert {json.loads(line)["rank"] for line in (tmp_path / "out").read_text().splitlines()} == {1}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give a QUESTION, or --run FILE"),
        (("who?",), "give a reader: --reader NAME"),
        (("who?", "--reader", "r", "--split", "dev"), "--split goes with --run"),
        (("--run", "a.run", "--reader", "r", "--hybrid"), "--hybrid goes with a QUESTION"),
        (("--run", "a.run", "--reader", "r"), "give --data DATASET"),
        (("--run", "a", "--data", "d", "--reader", "r", "--weight", 1, "--dev-run", "b"), "give one of them"),
    ],
)
def test_options_without_an_effect_are_usage_errors(words, message):
    done = invoke(*words)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_a_dataset_without_answers_is_an_error(runs, tiny_dataset, tiny_reader):
    done = invoke("--run", runs / "test.run", "--data", tiny_dataset, "--reader", tiny_reader)
    assert isinstance(done.exception, GnnRetrievalError)
    assert "no query of split 'test' has answers" in str(done.exception)


def test_another_artifact_is_no_reader(runs, answered_dataset, tiny_run):
    done = invoke("--run", runs / "test.run", "--data", answered_dataset, "--reader", tiny_run / "index")
    assert "this directory holds an index, not a reader" in str(done.exception)
