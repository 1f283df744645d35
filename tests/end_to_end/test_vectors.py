"""Everything from vectors alone: no encoder is here, and none is looked for."""

import json

import numpy as np
import pytest

from gnnretrieval import Retriever
from gnnretrieval.data import Dataset
from gnnretrieval.data.runs.trec import read_run
from gnnretrieval.encoders import dual_encoder

NAME = ("--name", "an-api", "--similarity", "cosine")


@pytest.fixture(scope="module")
def no_encoder():
    """From here on, any use of an encoder fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dual_encoder.DualEncoder, "_load", None)
        yield


@pytest.fixture(scope="module")
def files(tiny_dataset, tiny_features, tmp_path_factory):
    """Vectors of the tiny dataset in files, as an API would have given them."""
    place = tmp_path_factory.mktemp("vectors")
    for name, vectors in (("passages", tiny_features.passages), ("queries", tiny_features.queries)):
        np.save(place / f"{name}.npy", vectors.astype(np.float32))
    (place / "ids.txt").write_text("\n".join(Dataset.open(tiny_dataset).query_ids))
    return place


@pytest.fixture(scope="module")
def chain(tiny_dataset, files, no_encoder, succeeds):
    """The way from vectors to two indexes."""
    vectors = ("--passages", files / "passages.npy", "--queries", files / "queries.npy")
    said = succeeds("encoder", "import", tiny_dataset, *vectors, *NAME, "--out", files / "features")
    assert said.out.strip() == f"{files / 'features'}: 40 passages and 80 queries, 32 dimensions, imported from an-api"
    succeeds("graph", "build", tiny_dataset, files / "features", "--out", files / "graph")
    succeeds("train", files / "graph", "--epochs", "2", "--batch-size", "8", "--out", files / "model")
    succeeds("embed", files / "model", "--out", files / "embeddings")
    succeeds("index", "build", files / "embeddings", "--out", files / "index")
    succeeds("index", "build", files / "features", "--out", files / "baseline")
    return files


def test_questions_as_vectors_are_ranked_as_the_encoder_would_have_them_ranked(
    chain, tiny_dataset, made, runs, succeeds, tmp_path
):
    succeeds("search", "--index", chain / "baseline", "--vectors", chain / "queries.npy", "--query-ids",
             chain / "ids.txt", "--run", tmp_path / "all.run")  # fmt: skip
    succeeds("search", "--index", chain / "baseline", "--data", tiny_dataset, "--features", chain / "features",
             "--run", tmp_path / "test.run")  # fmt: skip
    ours, test, encoded = (
        read_run(path) for path in (tmp_path / "all.run", tmp_path / "test.run", runs["dual-encoder"])
    )
    assert len(ours) == 80
    for query, ranking in encoded.items():
        scores = dict(ranking)
        assert [passage for passage, _ in ours[query]] == [passage for passage, _ in test[query]]
        for found in (ours, test):
            assert found[query][0].score == pytest.approx(ranking[0].score, abs=2e-3)
            assert all(scores[passage] == pytest.approx(score, abs=2e-3) for passage, score in found[query])


def test_the_gnn_encoders_index_takes_them_too_and_depth_cuts_the_run(chain, succeeds, tmp_path):
    out = succeeds("search", "--index", chain / "index", "--vectors", chain / "queries.npy", "--query-ids",
                   chain / "ids.txt", "--run", tmp_path / "all.run", "--depth", "3").out  # fmt: skip
    assert out.strip() == f"{tmp_path / 'all.run'}: 80 queries by gnn-encoder"
    assert {len(ranking) for ranking in read_run(tmp_path / "all.run").values()} == {3}


def test_stored_questions_can_be_asked_in_words_and_others_cannot(chain, tiny_dataset, refuses, succeeds, tmp_path):
    says = ("'what?' is none of the 80 stored questions", "the encoder (an-api) is not here", "search --vectors")
    refuses("search", "what?", "--index", chain / "index", says=says)
    (asked, *_) = Dataset.open(tiny_dataset).queries_of("test")
    found = json.loads(succeeds("search", f" {asked.text} ", "--index", chain / "index", "--explain", "--json").out)
    assert found["hits"][0]["why"]["neighbors"]
    split = ("--data", tiny_dataset, "--index", chain / "index", "--run")
    succeeds("search", *split, tmp_path / "words.run")
    succeeds("search", *split, tmp_path / "features.run", "--features", chain / "features")
    by_words, by_features = (read_run(tmp_path / f"{name}.run") for name in ("words", "features"))
    assert by_words == by_features
    assert [hit["id"] for hit in found["hits"]] == [one.passage_id for one in by_words[asked.id][:5]]


def test_a_server_over_vectors_alone_answers_stored_questions(chain, tiny_dataset):
    from fastapi.testclient import TestClient

    from gnnretrieval.serve.app import create_app
    from gnnretrieval.serve.running import _warm_up

    retriever = Retriever.open(chain / "index")
    _warm_up(retriever)
    (asked, *_) = Dataset.open(tiny_dataset).queries_of("test")
    with TestClient(create_app(retriever), base_url="http://localhost") as client:
        hits = client.post("/search", json={"question": asked.text, "k": 3}).json()["hits"]
        assert [hit["id"] for hit in hits] == [hit.id for hit in retriever.search(asked.text, 3)]
        assert client.post("/compare", json={"question": asked.text}).status_code == 200
        refused = client.post("/search", json={"question": "what?"})
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "unknown_question"


def test_vectors_are_no_checkpoint(tiny_dataset, refuses, tmp_path):
    says = ("vectors:an-api", "made outside of gnnretrieval", "search --vectors FILE")
    refuses("encoder", "encode", tiny_dataset, "--checkpoint", "vectors:an-api", "--out", tmp_path / "f", says=says)
    assert not list(tmp_path.iterdir())


def test_vectors_that_do_not_fit_the_index_are_refused(chain, refuses, tmp_path):
    run = ("--run", tmp_path / "x.run")
    index = ("search", "--index", chain / "index")
    np.save(tmp_path / "wide.npy", np.ones((2, 31)))
    np.save(tmp_path / "nan.npy", np.full((2, 32), np.nan))
    np.save(tmp_path / "zero.npy", np.stack([np.ones(32), np.zeros(32)]))
    (tmp_path / "ids").write_text("a\nb\n")
    ids = ("--query-ids", tmp_path / "ids")
    for name, says in (
        ("wide", ("vectors of 31 numbers", "indexes 32", "vectors:an-api")),
        ("nan", ("the vector of 'a'", "NaN")),
        ("zero", ("the vector of 'b' is zero",)),
    ):
        refuses(*index, "--vectors", tmp_path / f"{name}.npy", *ids, *run, says=says)
    refuses(*index, "--vectors", tmp_path / "wide.npy", *run, says=("--query-ids FILE",))
    refuses(*index, "--vectors", tmp_path / "wide.npy", says=("--run FILE",))
    (tmp_path / "ids").write_text("a b\nb\n")
    refuses(*index, "--vectors", tmp_path / "zero.npy", *ids, *run, says=("cannot go into a TREC file",))
    assert not (tmp_path / "x.run").exists()


def test_features_of_another_encoder_or_of_other_texts_are_refused(chain, made, dataset, refuses, tmp_path):
    run = ("--run", tmp_path / "x.run")
    index = ("search", "--index", chain / "index", "--data", made.data)
    refuses(*index, "--features", made.features, *run, says=(made.features, "wants those of vectors:an-api"))
    queries = dataset / "queries.jsonl"
    queries.write_text(queries.read_text().replace("?", "!"))
    index = ("search", "--index", chain / "index", "--data", dataset)
    refuses(*index, "--features", chain / "features", *run, says=("other texts",))
    assert not (tmp_path / "x.run").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("what?", "--features", "f"), "--features goes with --data"),
        (("what?", "--query-ids", "f"), "--query-ids goes with --vectors"),
        (("--vectors", "v.npy", "--run", "r", "--split", "dev"), "--split goes with --data"),
        (("--vectors", "v.npy", "--run", "r", "--explain"), "--explain goes with a QUESTION"),
        (("--vectors", "v.npy", "--run", "r", "--data", "d"), "exactly one of"),
        (("--data", "d", "--run", "r", "--bm25", "--features", "f"), "leave out --features"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(refuses, words, says):
    refuses("search", *words, says=(says,))


def test_bad_vectors_are_refused_with_nothing_made(tiny_dataset, files, refuses, tmp_path):
    command = ("encoder", "import", tiny_dataset, *NAME, "--out", tmp_path / "f", "--queries", files / "queries.npy")
    np.save(tmp_path / "short.npy", np.ones((39, 32)))
    out = tmp_path / "f"
    refuses(*command, "--passages", tmp_path / "short.npy", says=("39 vectors", "40 ids"), out=out)
    refuses(*command, "--passages", files / "queries.npy", says=("80 vectors", "40 ids"), out=out)
    refuses(*command, "--passages", tmp_path / "none.npy", says=("no such file",), out=out)
    refuses(*command, "--passages", files / "passages.npy", "--scale", "0", says=("scale", "greater than 0"), out=out)
    assert [path.name for path in tmp_path.iterdir()] == ["short.npy"]


def test_a_graph_is_exported_by_its_command(chain, succeeds, refuses, tmp_path):
    out = succeeds("graph", "export", chain / "graph", "--out", tmp_path / "edges.tsv").out
    assert out.strip() == f"{tmp_path / 'edges.tsv'}: 300 edges"
    succeeds("graph", "export", chain / "graph", "--k", "2", "--out", tmp_path / "two.csv.gz")
    refuses("graph", "export", chain / "graph", "--k", "6", "--out", tmp_path / "x.csv", says=("give a k from 1 to 5",))
    refuses("graph", "export", chain / "graph", "--out", tmp_path / "x.pt", says=(".parquet",))
    refuses("graph", "export", chain / "features", "--out", tmp_path / "x.csv", says=("not a graph",))
    assert {path.name for path in tmp_path.iterdir()} == {"edges.tsv", "two.csv.gz"}
