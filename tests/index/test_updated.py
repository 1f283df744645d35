"""Embeddings and index brought up to a graph that was added to."""

import json
import shutil

import faiss
import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.errors import ArtifactError
from gnnretrieval.graph import GraphSettings, build_graph, open_graph
from gnnretrieval.graph.add import add_to_graph
from gnnretrieval.graph.additions import read_additions
from gnnretrieval.index import build_index
from gnnretrieval.index.updating import update_index
from gnnretrieval.training import TrainSettings, embed_passages, train_gnn, update_embeddings


@pytest.fixture(scope="module")
def made(tiny_dataset, tiny_features, tmp_path_factory):
    """A graph without cheap features of the whole corpus, a model trained over it, embeddings and an index."""
    place = tmp_path_factory.mktemp("made")
    dataset = Dataset.open(tiny_dataset)
    graph = build_graph(dataset, tiny_features, GraphSettings(k=4, edge_features=("score",)), place / "graph")
    settings = TrainSettings(epochs=2, k=3, mask_ratio=0.3, context_scales=(1.0,), learning_rate=0.01, evidence=1.0)
    model = train_gnn(graph, dataset, tiny_features, settings, place / "model")
    build_index(embed_passages(model, graph, place / "embeddings"), place / "index")
    return place, model


@pytest.fixture
def grown(made, tmp_path):
    """Copies of them, and the graph after three new passages and two new queries."""
    place, model = made
    for name in ("graph", "embeddings", "index"):
        shutil.copytree(place / name, tmp_path / name)
    records = {
        "queries": [{"_id": f"new-{n}", "text": text} for n, text in enumerate(["one", "two three"])],
        "corpus": [{"_id": f"extra-{n}", "title": "", "text": f"extra text {n}"} for n in range(3)],
    }
    for name, rows in records.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    additions = read_additions(
        open_graph(tmp_path / "graph"), queries=tmp_path / "queries.jsonl", passages=tmp_path / "corpus.jsonl"
    )
    return tmp_path, model, add_to_graph(tmp_path / "graph", additions)


def test_what_is_brought_up_to_date_is_what_is_made_anew(grown):
    place, model, graph = grown
    old = np.array(np.load(place / "embeddings" / "passages.npy"))
    updated = update_embeddings(model, graph, place / "embeddings")
    anew = embed_passages(model, graph, place / "anew")
    assert updated.passages.shape == anew.passages.shape == (43, 32)
    np.testing.assert_allclose(updated.passages, anew.passages, atol=1e-3)
    unchanged = (updated.passages[:40] == old).all(axis=1)
    assert 0 < unchanged.sum() < 40
    index = update_index(updated, place / "index")
    fresh = build_index(updated, place / "fresh")
    assert index.faiss.ntotal == 43
    vectors = [faiss.rev_swig_ptr(one.faiss.get_xb(), 43 * 32) for one in (index, fresh)]
    assert np.array_equal(*vectors)
    assert index.texts.passage_ids()[40:] == ["extra-0", "extra-1", "extra-2"]
    assert index.texts.passage_ids()[:40] == [f"p{row:02d}" for row in range(40)]


def test_up_to_date_they_are_left_alone(grown):
    place, model, graph = grown
    first = update_embeddings(model, graph, place / "embeddings")
    lines: list[str] = []
    assert update_embeddings(model, graph, place / "embeddings", say=lines.append).hash == first.hash
    index = update_index(first, place / "index")
    assert update_index(first, place / "index", say=lines.append).hash == index.hash
    assert all("already up to date" in line for line in lines)
    assert len(lines) == 2


def test_embed_with_the_same_graph_and_model_takes_the_updated_ones_as_made(grown):
    place, model, graph = grown
    updated = update_embeddings(model, graph, place / "embeddings")
    assert embed_passages(model, graph, place / "embeddings").hash == updated.hash


def test_of_another_graph_they_are_refused(grown, tiny_dataset, tiny_features):
    place, model, _ = grown
    settings = GraphSettings(k=5, edge_features=("score",))
    other = build_graph(Dataset.open(tiny_dataset), tiny_features, settings, place / "other")
    with pytest.raises(ArtifactError, match=r"made from another graph than any earlier state of .*other"):
        update_embeddings(model, other, place / "embeddings")
    with pytest.raises(ArtifactError, match="made from other vectors than any earlier state"):
        update_index(tiny_features, place / "index")
