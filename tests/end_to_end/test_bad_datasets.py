"""Datasets that are wrong: file, line, what was found, what to do; nothing is made."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def _line(name: str, number: int, text: str) -> Callable[[Path], None]:
    """Replaces a line of a file of the dataset."""

    def spoil(dataset: Path) -> None:
        lines = (dataset / name).read_text(encoding="utf-8").splitlines()
        lines[number - 1] = text
        (dataset / name).write_text("\n".join(lines) + "\n", encoding="utf-8")

    return spoil


@pytest.fixture
def lists(gnnretrieval):
    """``data inspect`` of a directory that cannot be opened: its problems, then an error, and exit code 1."""

    def inspect(dataset: Path, *options: object, says: tuple[object, ...]) -> str:
        outcome = gnnretrieval("data", "inspect", dataset, *options)
        assert outcome.code == 1, outcome.err
        assert "Traceback" not in outcome.err
        error = outcome.err.splitlines()[-1]
        assert error.startswith("Error: ")
        for fragment in says:
            assert str(fragment) in error
        return outcome.out

    return inspect


def _content(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda dataset: (dataset / name).write_bytes(content) and None


WRONG_LINES = {
    "broken JSON": ("corpus.jsonl", '{"_id": "p06", "text": "a"', "not JSON"),
    "a trailing comma": ("queries.jsonl", '{"_id": "a", "text": "a",}', "not JSON"),
    "an array": ("corpus.jsonl", '["p06", "a"]', "wanted a passage as a JSON object"),
    "an id that is there": ("corpus.jsonl", '{"_id": "p01", "text": "a"}', "'p01' is already on line 2"),
    "a query id that is there": (
        "queries.jsonl",
        '{"_id": "train-01", "text": "a"}',
        "'train-01' is already on line 2",
    ),
    "an id that is a number": ("corpus.jsonl", '{"_id": 6, "text": "a"}', "'_id' 6, wanted a string"),
    "no id": ("queries.jsonl", '{"id": "a", "text": "a"}', "no '_id'"),
    "neither title nor text": ("corpus.jsonl", '{"_id": "p06", "text": " "}', "'p06' has neither title nor text"),
    "a query without text": ("queries.jsonl", '{"_id": "train-06", "text": ""}', "'train-06' has an empty text"),
    "a judgement of an unknown query": ("qrels/train.tsv", "nobody\tp01\t1", "there is no query 'nobody'"),
    "a judgement of an unknown passage": ("qrels/dev.tsv", "dev-05\tp99\t1", "there is no passage 'p99'"),
    "spaces for tabs": ("qrels/test.tsv", "test-05 p01 1", "Are they separated by spaces?"),
    "a score in words": ("qrels/test.tsv", "test-05\tp01\tyes", "found score 'yes', wanted an integer"),
}


@pytest.mark.parametrize("fault", WRONG_LINES)
def test_a_wrong_line_is_named(fault, dataset, tiny_checkpoint, refuses, lists, tmp_path):
    file, text, message = WRONG_LINES[fault]
    _line(file, 7, text)(dataset)
    where = f"{dataset / file}:7: "
    out = tmp_path / "features"
    refuses("encoder", "encode", dataset, "--checkpoint", tiny_checkpoint, "--out", out, says=(where, message), out=out)
    listed = lists(dataset, says=(where, message))
    assert f"{file}:7: " in listed
    assert message in listed
    assert {path.name for path in tmp_path.iterdir()} == {"dataset"}


WRONG_FILES = {
    "an empty split": ("qrels/dev.tsv", b"query-id\tcorpus-id\tscore\n", "this split has no judgements"),
    "an empty corpus": ("corpus.jsonl", b"", "this file is empty"),
    "Latin-1": ("corpus.jsonl", '{"_id": "p", "text": "é"}\n'.encode("latin-1"), "not UTF-8"),
    "UTF-16": ("queries.jsonl", '{"_id": "p", "text": "a"}\n'.encode("utf-16"), "it looks like UTF-16"),
}


@pytest.mark.parametrize("fault", WRONG_FILES)
def test_a_wrong_file_is_named(fault, dataset, lists):
    file, content, message = WRONG_FILES[fault]
    _content(file, content)(dataset)
    assert message in lists(dataset, says=(dataset / file, message))


def test_all_problems_of_a_dataset_are_listed_at_once(dataset, lists, tmp_path):
    for file, text in (("corpus.jsonl", "{"), ("queries.jsonl", "[]"), ("qrels/test.tsv", "test-05 p01 1")):
        _line(file, 7, text)(dataset)
    page = tmp_path / "page.html"
    listed = json.loads(lists(dataset, "--json", "--html", page, says=("corpus.jsonl:7",)))
    assert listed["name"] == "dataset"
    found = {(problem["kind"], problem["file"]): problem["lines"][0] for problem in listed["problems"]}
    for key in (("not JSON", "corpus.jsonl"), ("not JSON", "queries.jsonl"), ("wrong columns", "qrels/test.tsv")):
        assert found[key]["line"] == 7
    assert found["wrong columns", "qrels/test.tsv"]["says"].endswith("Are they separated by spaces?")
    assert "qrels/test.tsv:7" in page.read_text(encoding="utf-8")


def test_a_directory_that_is_no_dataset(dataset, made, refuses, lists, tmp_path):
    refuses("data", "inspect", tmp_path / "nowhere", says=(tmp_path / "nowhere", "no such directory"))
    refuses("data", "inspect", dataset / "corpus.jsonl", says=("this is a file; wanted a dataset directory",))
    refuses("data", "inspect", made.graph, says=("holds a graph, not a dataset",))
    (dataset / "qrels").rename(dataset / "qrel")
    lists(dataset, says=("no folder qrels/", "Did you mean 'qrel'?"))
    (dataset / "corpus.jsonl").rename(dataset / "corpus.json")
    listed = lists(dataset, says=("no such file", "Did you mean 'corpus.json'?"))
    assert "no such file in corpus.jsonl" in listed
    assert "no judgements in qrels/" in listed


def test_a_missing_corpus_is_not_taken_for_a_misspelt_queries_file(dataset, lists):
    (dataset / "corpus.jsonl").unlink()
    assert "Did you mean" not in lists(dataset, says=(dataset / "corpus.jsonl", "no such file"))


def test_a_filter_that_leaves_nothing(made, refuses):
    refuses("data", "inspect", made.data, "--where", "domain=squad", says=("no passage has metadata 'domain'",))
    refuses("data", "inspect", made.data, "--where", "domain", says=("write KEY=VALUE",))


def test_features_and_graph_want_the_dataset_that_they_are_of(made, dataset, refuses, tmp_path):
    lines = (dataset / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    record = json.loads(lines[0]) | {"text": "Other words."}
    (dataset / "corpus.jsonl").write_text("\n".join([json.dumps(record), *lines[1:]]) + "\n", encoding="utf-8")
    out = tmp_path / "graph"
    message = ("these features were made from other texts", "Encode this dataset")
    refuses("graph", "build", dataset, made.features, "--out", out, says=message, out=out)


def test_a_graph_needs_its_split(made, dataset, refuses, tmp_path):
    out = tmp_path / "graph"
    says = ("no split 'trian'", "Did you mean 'train'?")
    refuses("graph", "build", made.data, made.features, "--split", "trian", "--out", out, says=says, out=out)
    (dataset / "qrels" / "train.tsv").unlink()
    refuses("graph", "build", dataset, made.features, "--out", out, says=("no split 'train'",), out=out)


def test_training_without_a_dev_split_says_what_it_chose_by(made, dataset, succeeds, tmp_path):
    (dataset / "qrels" / "dev.tsv").unlink()
    succeeds("graph", "build", dataset, made.features, "--out", tmp_path / "graph")
    outcome = succeeds("train", tmp_path / "graph", "--epochs", 1, "--out", tmp_path / "model")
    assert "no dev split" in outcome.err


def test_a_dev_split_without_a_relevant_passage_cannot_be_chosen_by(made, dataset, refuses, succeeds, tmp_path):
    (dataset / "qrels" / "dev.tsv").write_text("dev-00\tp00\t0\n", encoding="utf-8")
    succeeds("graph", "build", dataset, made.features, "--out", tmp_path / "graph")
    out = tmp_path / "model"
    refuses("train", tmp_path / "graph", "--out", out, says=("'dev'", "relevant passage"), out=out)


def test_training_notices_a_dataset_that_changed_since_the_graph_was_built(made, dataset, refuses, succeeds, tmp_path):
    # The same passages in another order: every id is known, and every row is another passage's.
    succeeds("graph", "build", dataset, made.features, "--out", tmp_path / "graph")
    lines = (dataset / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    (dataset / "corpus.jsonl").write_text("\n".join(reversed(lines)) + "\n", encoding="utf-8")
    out = tmp_path / "model"
    refuses("train", tmp_path / "graph", "--epochs", 1, "--out", out, says=(dataset,), out=out)


def test_a_run_over_an_index_of_another_dataset_is_refused(made, dataset, refuses, tmp_path):
    lines = (dataset / "corpus.jsonl").read_text(encoding="utf-8").replace('"_id": "p', '"_id": "other-')
    (dataset / "corpus.jsonl").write_text(lines, encoding="utf-8")
    for split in ("train", "dev", "test"):
        file = dataset / "qrels" / f"{split}.tsv"
        file.write_text(file.read_text(encoding="utf-8").replace("\tp", "\tother-"), encoding="utf-8")
    out = tmp_path / "a.run"
    refuses("search", "--index", made.index, "--data", dataset, "--run", out, says=(dataset,), out=out)


def test_a_dataset_that_is_gone_is_asked_for(made, dataset, refuses, succeeds, tmp_path):
    succeeds("graph", "build", dataset, made.features, "--out", tmp_path / "graph")
    shutil.rmtree(dataset)
    out = tmp_path / "model"
    refuses("train", tmp_path / "graph", "--out", out, says=(dataset, "no such directory"), out=out)
    succeeds("train", tmp_path / "graph", "--data", made.data, "--epochs", 1, "--out", out)
