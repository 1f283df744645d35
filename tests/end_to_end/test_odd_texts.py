"""Texts that are allowed and odd: nothing may fail on them."""

import json
from pathlib import Path

import pytest

ODD = {
    "punctuation": "…?!",
    "stop words": "Is it the?",
    "another script": "何ですか",
    "one letter": "x",
    "long": "of " * 500,
}


@pytest.fixture
def with_odd_questions(dataset: Path) -> Path:
    """The tiny dataset with an odd question of each kind in train and in test."""
    for split in ("train", "test"):
        with (dataset / "queries.jsonl").open("a", encoding="utf-8") as queries:
            for number, text in enumerate(ODD.values()):
                queries.write(json.dumps({"_id": f"odd-{split}-{number}", "text": text}) + "\n")
        with (dataset / "qrels" / f"{split}.tsv").open("a", encoding="utf-8") as judgements:
            judgements.writelines(f"odd-{split}-{number}\tp00\t1\n" for number in range(len(ODD)))
    return dataset


def test_bm25_finds_nothing_for_a_question_without_words(with_odd_questions, succeeds, tmp_path):
    run = tmp_path / "bm25.run"
    assert "15 queries by bm25" in succeeds("search", "--bm25", "--data", with_odd_questions, "--run", run).out
    assert "odd-test-0 " not in run.read_text(encoding="utf-8")
    assert succeeds("evaluate", run, "--data", with_odd_questions, "--json").json["queries"] == 15


def test_a_graph_holds_questions_without_words(with_odd_questions, tiny_checkpoint, succeeds, tmp_path):
    encoder = ("--checkpoint", tiny_checkpoint, "--precision", "float32")
    succeeds("encoder", "encode", with_odd_questions, *encoder, "--out", tmp_path / "features")
    succeeds("graph", "build", with_odd_questions, tmp_path / "features", "--out", tmp_path / "graph")
    found = succeeds("graph", "neighbors", tmp_path / "graph", "odd-train-0", "--query", "--json").json
    assert len(found["neighbors"]) == 5


@pytest.mark.parametrize("kind", ODD)
def test_any_question_is_answered(kind, made, succeeds):
    found = succeeds("search", ODD[kind], "--index", made.index, "--explain", "--json").json
    assert len(found["hits"]) == 5


def test_a_passage_of_a_title_only_and_one_of_control_characters(dataset, tiny_checkpoint, succeeds, tmp_path):
    with (dataset / "corpus.jsonl").open("a", encoding="utf-8") as corpus:
        corpus.write(json.dumps({"_id": "titled", "title": "only a title", "text": ""}) + "\n")
        corpus.write(json.dumps({"_id": "odd", "text": "\u2028 nul \u0000 and\nlines \ufeff"}) + "\n")
    encoder = ("--checkpoint", tiny_checkpoint, "--precision", "float32")
    succeeds("encoder", "encode", dataset, *encoder, "--out", tmp_path / "features")
    succeeds("graph", "build", dataset, tmp_path / "features", "--out", tmp_path / "graph")
    neighbors = succeeds("graph", "neighbors", tmp_path / "graph", "odd", "--json").json
    assert neighbors["node"]["text"] == "\u2028 nul \u0000 and\nlines \ufeff"
