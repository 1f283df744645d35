"""Texts, titles and ids of a dataset do not command the terminal they are printed on."""

import json
import shutil

import pytest

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m"


@pytest.fixture(scope="module")
def index(tiny_dataset, tiny_checkpoint, succeeds, tmp_path_factory):
    """A dual-encoder's index of a dataset that is full of escapes, and the dataset."""
    place = tmp_path_factory.mktemp("evil")
    data = shutil.copytree(tiny_dataset, place / "data")
    passages = [json.loads(line) for line in (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    for passage in passages:
        passage.update(title=f"title {EVIL}", text=f"{EVIL} {passage['text']}")
    lines = "".join(json.dumps(passage) + "\n" for passage in passages)
    (data / "corpus.jsonl").write_text(lines, encoding="utf-8")
    encode = ("--checkpoint", tiny_checkpoint, "--precision", "float32")
    succeeds("encoder", "encode", data, *encode, "--out", place / "features")
    succeeds("index", "build", place / "features", "--out", place / "index")
    return place / "index", data


def obeyed(text):
    return {character for character in text if character in "\x1b\x07\x9b"}


def test_hits_are_printed_without_escapes(index, succeeds):
    said = succeeds("search", "a question", "--index", index[0], "--k", "3")
    assert "\\u001b[2J" in said.out
    assert obeyed(said.out + said.err) == set()


def test_json_has_the_very_text_without_escapes(index, succeeds):
    said = succeeds("search", "a question", "--index", index[0], "--k", "3", "--json")
    assert obeyed(said.out) == set()
    assert all(EVIL in hit["text"] for hit in said.json["hits"])


def test_an_inspection_and_an_error_are_printed_without_escapes(index, succeeds, refuses):
    said = succeeds("data", "inspect", index[1])
    assert obeyed(said.out + said.err) == set()
    refused = refuses("index", "remove", index[0], f"p{EVIL}", says=["\\x1b]0;owned"])
    assert obeyed(refused.err) == set()
