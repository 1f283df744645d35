"""A graph that grows: what a user adds is found by the next search, and what cannot be added is said."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def grown(made, succeeds, tmp_path):
    """Copies of the made artifacts, brought up to two new passages and three new questions by their commands."""
    place = tmp_path / "mine"
    for name in ("features", "graph", "model", "embeddings", "index"):
        shutil.copytree(getattr(made, name), place / name)
    records = {
        "corpus.jsonl": [
            {"_id": f"new-{n}", "title": "", "text": text} for n, text in enumerate(("zu zu zu", "ba bu"))
        ],
        "queries.jsonl": [{"_id": f"click-{n}", "text": text} for n, text in enumerate(["zu", "zu zu", "ba"])],
    }
    for name, rows in records.items():
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "clicked.tsv").write_text("query-id\tcorpus-id\tscore\nclick-0\tnew-0\t1\nclick-1\tp00\t1\n")
    add = ("graph", "add", place / "graph", "--queries", tmp_path / "queries.jsonl")
    add += ("--passages", tmp_path / "corpus.jsonl", "--qrels", tmp_path / "clicked.tsv", "--split", "clicks")
    said = {
        "add": succeeds(*add),
        "again": succeeds(*add),
        "embed": succeeds(
            *("embed", place / "model", "--graph", place / "graph", "--out", place / "embeddings", "--changed")
        ),
        "index": succeeds("index", "build", place / "embeddings", "--out", place / "index", "--changed"),
    }
    return place, said


def test_what_was_added_is_found(grown, succeeds):
    place, said = grown
    assert said["add"].out.strip() == (
        f"{place / 'graph'}: 3 queries and 2 passages added; now 42 passages, 63 queries, 315 edges"
    )
    assert "these were added before, nothing to do" in said["again"].out
    assert "42 passages" in said["embed"].out
    found = succeeds("search", "zu zu zu", "--index", place / "index", "--json", "--k", 3).json
    assert "new-0" in [hit["id"] for hit in found["hits"]]
    neighbors = succeeds("graph", "neighbors", place / "graph", "click-0", "--query", "--json").json
    assert len(neighbors["neighbors"]) == 5
    figures = succeeds("graph", "inspect", place / "graph", "--json").json
    assert (figures["passages"], figures["queries"]) == (42, 63)


def test_a_graph_that_grew_is_trained_over_and_embedded_anew(grown, made, succeeds):
    place, _ = grown
    inputs = ("--data", made.data, "--features", made.features)
    succeeds("train", place / "graph", *inputs, "--epochs", 1, "--out", place / "model-2")
    succeeds("embed", place / "model-2", "--graph", place / "graph", "--out", place / "embeddings-2")
    assert np.load(place / "embeddings-2" / "passages.npy").shape == (42, 32)


def test_building_it_again_from_the_old_dataset_is_refused(grown, made, refuses):
    place, _ = grown
    refuses(
        *("graph", "build", made.data, made.features, "--out", place / "graph"),
        says=("it was updated since it was made", "--overwrite"),
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "there is nothing to add: give queries, passages, or both (--queries FILE, --passages FILE)."),
        (("--queries", "none.jsonl"), "none.jsonl"),
        (("--queries", "known.jsonl"), "1 of 1 queries are in the graph already, such as 'train-00': leave them out."),
        (
            ("--queries", "new.jsonl", "--query-vectors", "wide.npy"),
            "the vectors have 3 dimensions, but the graph's have 32",
        ),
        (("--queries", "new.jsonl", "--query-vectors", "many.npy"), "many.npy"),
        (
            ("--queries", "new.jsonl", "--run", "a.run"),
            "its edges (dual-encoder) do not come from a run: leave out the run (--run).",
        ),
        (("--queries", "new.jsonl", "--qrels", "bad.tsv"), "there is no passage 'nowhere'"),
    ],
)
def test_what_cannot_be_added_is_said_and_leaves_the_graph_as_it_was(made, refuses, tmp_path, words, says):
    (tmp_path / "known.jsonl").write_text('{"_id": "train-00", "text": "a"}\n')
    (tmp_path / "new.jsonl").write_text('{"_id": "new", "text": "a"}\n')
    (tmp_path / "bad.tsv").write_text("query-id\tcorpus-id\tscore\nnew\tnowhere\t1\n")
    np.save(tmp_path / "wide.npy", np.ones((1, 3), np.float32))
    np.save(tmp_path / "many.npy", np.ones((2, 32), np.float32))
    before = (made.graph / "meta.json").read_bytes()
    words = [tmp_path / word if "." in word else word for word in words]
    refuses("graph", "add", made.graph, *words, says=(says,))
    assert (made.graph / "meta.json").read_bytes() == before
    assert [path.name for path in made.graph.parent.iterdir()] == ["graph"]


def test_of_the_wrong_model_or_graph_embed_changed_says_what_to_do(made, refuses, tmp_path):
    refuses("embed", made.model, "--out", tmp_path / "none", "--changed", says=("no such directory",))
    shutil.copytree(made.embeddings, tmp_path / "embeddings")
    meta: Path = tmp_path / "embeddings" / "meta.json"
    meta.write_text(meta.read_text().replace('"graph": "', '"graph": "other'))
    refuses(
        "embed", made.model, "--out", tmp_path / "embeddings", "--changed", says=("Embed again, without --changed",)
    )
