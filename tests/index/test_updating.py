"""Embeddings and index brought up to a graph that was added to; vectors replaced, added and removed in every kind."""

import json
import shutil

import faiss
import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.data.records import Passage
from gnnretrieval.data.text_store import TextStore, passage_rows
from gnnretrieval.encoders.encoded_texts import TEXTS
from gnnretrieval.encoders.features import open_features
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.graph import GraphSettings, build_graph, open_graph
from gnnretrieval.graph.growth.add import add_to_graph
from gnnretrieval.graph.growth.additions import read_additions
from gnnretrieval.index import build_index, open_index
from gnnretrieval.index.settings import IndexSettings
from gnnretrieval.index.updating import remove_passages, update_index
from gnnretrieval.storage.arrays import save_array
from gnnretrieval.storage.updating import own_copy, record_changes, rewrite, update_artifact
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


def test_up_to_date_they_are_left_alone(grown, said):
    place, model, graph = grown
    first = update_embeddings(model, graph, place / "embeddings")
    assert update_embeddings(model, graph, place / "embeddings").hash == first.hash
    index = update_index(first, place / "index")
    assert update_index(first, place / "index").hash == index.hash
    assert sum("already up to date" in line for line in said) == 2


def test_embed_with_the_same_graph_and_model_takes_the_updated_ones_as_made(grown):
    place, model, graph = grown
    updated = update_embeddings(model, graph, place / "embeddings")
    assert embed_passages(model, graph, place / "embeddings").hash == updated.hash


def test_of_another_graph_they_are_refused(grown, tiny_dataset, tiny_features):
    place, model, _ = grown
    settings = GraphSettings(k=5, edge_features=("score",))
    other = build_graph(Dataset.open(tiny_dataset), tiny_features, settings, place / "other")
    with pytest.raises(ArtifactError, match=r"not made from an earlier state of .*other"):
        update_embeddings(model, other, place / "embeddings")
    with pytest.raises(ArtifactError, match="made from other vectors than any earlier state"):
        update_index(tiny_features, place / "index")


KINDS = ("Flat", "SQ8", "PQ8", "IVF16,Flat", "IVF16,SQ8", "HNSW8", "PCA12,IVF16,SQ8", "PCA12,Flat", "IVF16,PQ8,RFlat")


@pytest.fixture
def built(make_features, tmp_path):
    """``built(factory)``: features of 600 vectors and their index, which looks at everything."""

    def build(factory, **settings):
        features = make_features(tmp_path / "features", 600)
        search = {"search": "nprobe=16"} if "IVF" in factory else {}
        return features, build_index(features, tmp_path / "index", IndexSettings(factory=factory, **search, **settings))

    return build


def changed_features(features, rows, count):
    """The features after an update: vectors of ``rows`` are turned round, and vectors are added up to ``count``."""

    def write(directory):
        vectors = np.array(features.passages)
        vectors[rows] *= -1
        more = np.random.default_rng(5).standard_normal((count - len(vectors), vectors.shape[1]))
        save_array(rewrite(directory, "passages.npy"), np.concatenate([vectors, more.astype(np.float16)]))
        with TextStore(own_copy(features, directory, TEXTS), extend=True) as texts:
            texts.add_passages(passage_rows([Passage(f"p{row}", "", "") for row in range(600, count)], 600))
        record_changes(directory, features, np.concatenate([rows, np.arange(600, count)]))
        return {"num_passages": count}

    update_artifact(features, "features", change={"rows": rows.tolist(), "count": count}, write=write)
    return open_features(features.path)


@pytest.mark.parametrize("factory", KINDS)
def test_changed_vectors_are_found_in_their_new_place_only_and_new_ones_are_found(factory, built):
    features, index = built(factory)
    rows = np.array([3, 100, 599])
    after = changed_features(features, rows, 650)
    index = update_index(after, index.path)
    assert index.meta["num_passages"] == 650
    found, scores = index.search(after.passages, 5)
    top = [line[: max(1, (own >= own[0] - 0.02).sum())] for line, own in zip(found, scores, strict=True)]
    assert np.mean([row in line for row, line in enumerate(top)]) > (0.9 if "P" in factory else 0.97)
    all_found, _ = index.search(after.passages[:4], 650)
    assert (np.sort(all_found, axis=1) == np.arange(650)).all(), "every row once"
    opened = open_index(index.path)
    assert np.array_equal(opened.search(after.passages, 5)[0], found)
    assert update_index(after, index.path).hash == opened.hash


@pytest.mark.parametrize("factory", KINDS)
def test_a_removed_passage_is_not_found_stays_removed_and_comes_back_when_built_anew(factory, built, said):
    features, index = built(factory)
    before, _ = index.search(features.queries, 3)
    gone = sorted({int(row) for row in before[:, 0]})
    index = remove_passages(index.path, [f"p{row}" for row in gone])
    assert index.meta["num_passages"] == 600 - len(gone)
    after, _ = index.search(features.queries, 3)
    assert not np.isin(after, gone).any()
    assert (after >= 0).all()
    if "PQ" not in factory and "HNSW" not in factory:
        for old, new in zip(before.tolist(), after.tolist(), strict=True):
            kept = [row for row in old if row not in gone]
            assert new[: len(kept)] == kept, "what was there before keeps its order"
    same = remove_passages(index.path, [f"p{gone[0]}"])
    assert same.hash == index.hash
    assert "removed before" in said[-1]
    updated = update_index(changed_features(features, np.array(gone), 610), index.path)
    assert not np.isin(updated.search(features.queries, 610)[0], gone).any()
    assert updated.meta["num_passages"] == 610 - len(gone)
    settings = IndexSettings(factory=factory, search="nprobe=16" if "IVF" in factory else None)
    with pytest.raises(ArtifactError, match="updated since it was made"):
        build_index(open_features(features.path), index.path, settings)
    anew = build_index(open_features(features.path), index.path, settings, overwrite=True)
    assert anew.meta["num_passages"] == 610
    assert np.isin(gone, anew.search(features.queries, 610)[0]).all()


def test_an_index_in_shards_is_updated_and_loses_passages(built, monkeypatch):
    monkeypatch.setattr("gnnretrieval.index.building._BLOCK", 100)
    for factory in ("Flat", "IVF16,SQ8"):
        features, index = built(factory, memory=33_000 / 2**30, training=300)
        assert index.meta["shards"] > 1
        index = remove_passages(index.path, ["p5", "p590"])
        after = changed_features(features, np.array([7, 300, 580]), 620)
        index = update_index(after, index.path)
        found, _ = index.search(after.passages[[7, 300, 580, 610]], 620)
        assert found[:, 0].tolist() == [7, 300, 580, 610]
        expected = np.setdiff1d(np.arange(620), [5, 590])
        for line in found:
            assert np.sort(line[line >= 0]).tolist() == expected.tolist()
        shutil.rmtree(index.path)
        shutil.rmtree(features.path)


def test_what_is_to_be_removed_and_is_not_there_is_said_and_nothing_is_removed(built):
    _, index = built("Flat")
    with pytest.raises(InputError, match=r"1 of 2 ids are of no passage of this index, such as 'p6000'\. Did you mean"):
        remove_passages(index.path, ["p1", "p6000"])
    with pytest.raises(InputError, match="nothing to remove"):
        remove_passages(index.path, [])
    assert open_index(index.path).hash == index.hash


def test_all_passages_removed_leaves_an_index_that_finds_nothing(built):
    features, index = built("IVF16,Flat")
    index = remove_passages(index.path, [f"p{row}" for row in range(600)])
    assert index.meta["num_passages"] == 0
    assert (index.search(features.queries, 3)[0] == -1).all()


def test_what_was_measured_says_how_many_updates_ago(built):
    _, index = built("Flat")
    assert "updates_since" not in index.meta["measured"]
    remove_passages(index.path, ["p1"])
    assert remove_passages(index.path, ["p2"]).meta["measured"]["updates_since"] == 2


def test_many_vectors_that_are_passed_over_are_said(built, said):
    _, index = built("Flat")
    remove_passages(index.path, [f"p{row}" for row in range(200)])
    (advice,) = (line for line in said if "33 % of the vectors are passed over" in line)
    assert "from vectors without the removed passages" in advice  # from these it would have them again
