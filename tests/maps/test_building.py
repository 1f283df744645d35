"""What a map's points mean."""

import json
import shutil
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from gnnretrieval import Retriever
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.graph.store import open_graph
from gnnretrieval.maps.building import _vectors_of, build_map, embeddings_behind
from gnnretrieval.maps.passage_map import open_map
from gnnretrieval.maps.points import points_of
from gnnretrieval.maps.settings import MapSettings
from gnnretrieval.nn.label_messages import Heads, Messages, message_vectors
from gnnretrieval.training.gnn.embeddings import Embeddings
from gnnretrieval.training.gnn.ladder import message_graph
from gnnretrieval.training.gnn.messages import TrainedMessages


def prepared(embeddings):
    graph = open_graph(embeddings.made_from("graph"))
    prepare = graph.similarity.prepare_array
    return tuple(map(prepare, (graph.passage_features, embeddings.passages, graph.query_features)))


def test_one_projection_makes_all_points(built, embeddings):
    """Every point is the same linear function of its vector, and it is the one of most variance."""
    before, after, questions = prepared(embeddings)
    both = np.concatenate([before, after]).astype(np.float64)
    _, scales, axes = np.linalg.svd(both - both.mean(0), full_matrices=False)
    ours = np.concatenate([built.before, built.after, built.questions])
    wanted = (np.concatenate([both, questions]) - both.mean(0)) @ axes[:2].T
    signs = np.sign((ours * wanted).sum(0))
    np.testing.assert_allclose(ours, wanted * signs, atol=1e-5)
    assert built.meta["variance_kept"] == pytest.approx((scales[:2] ** 2).sum() / (scales**2).sum())
    lengths = [np.square(one).sum() for one in (built.after - built.before, after - before)]
    assert built.meta["displacement_kept"] == pytest.approx(lengths[0] / lengths[1], rel=1e-3)


def test_displacement_is_what_the_explanation_says(built, tiny_run):
    retriever = Retriever.open(tiny_run)
    for row, id_ in enumerate(built.texts().passage_ids()):
        assert 1 - built.displacement[row] == pytest.approx(retriever.explain(id_).shift, abs=1e-3)
    retriever.close()


def test_a_passage_that_keeps_its_vector_keeps_its_point(half_moved, tmp_path):
    made = build_map(half_moved, tmp_path / "map")
    assert (made.displacement[1::2] == 0).all()
    assert (made.before[1::2] == made.after[1::2]).all()
    assert (made.displacement[::2] > 0).any()
    assert made.meta["share_moved"] == pytest.approx((made.displacement > 0).mean())


def test_rows_are_those_of_the_embeddings(built, embeddings, tiny_graph):
    with built.texts() as texts:
        assert texts.passage_ids() == [f"p{row:02d}" for row in range(40)]
    assert (built.num_passages, built.num_questions) == (40, tiny_graph.num_queries)


def test_building_again_gives_the_same_bytes(built, embeddings, tmp_path):
    assert build_map(embeddings, tmp_path / "map").hash == built.hash
    sample = MapSettings(sample=10, seed=3)
    made = [build_map(embeddings, tmp_path / name, sample) for name in ("one", "other")]
    assert made[0].hash == made[1].hash != built.hash


def test_a_map_of_other_settings_is_replaced_only_when_asked(embeddings, tmp_path):
    build_map(embeddings, tmp_path / "map")
    with pytest.raises(ArtifactError, match="seed was 0 and is now 1"):
        build_map(embeddings, tmp_path / "map", MapSettings(seed=1))
    assert build_map(embeddings, tmp_path / "map", MapSettings(seed=1), overwrite=True).config["seed"] == 1


def test_it_is_found_behind_an_index_or_a_run(embeddings, tiny_run):
    assert embeddings_behind(tiny_run).hash == embeddings_behind(tiny_run / "index").hash == embeddings.hash
    with pytest.raises(ArtifactError, match="an index of dual-encoder, which has no graph"):
        embeddings_behind(tiny_run / "index-dual-encoder")


def test_embeddings_of_another_version_of_the_graph_are_refused(half_moved, tmp_path):
    meta = {**half_moved.meta, "inputs": {**half_moved.meta["inputs"], "graph": "another"}}
    with pytest.raises(ArtifactError, match="another version of"):
        build_map(Embeddings(half_moved.path, meta), tmp_path / "map")


def test_umap_is_an_extra(embeddings, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "umap", None)
    with pytest.raises(GnnRetrievalError, match=r"--method umap wants umap: pip install 'gnnretrieval\[umap\]'"):
        build_map(embeddings, tmp_path / "map", MapSettings(method="umap"))
    assert list(tmp_path.iterdir()) == []


def test_umap_over_a_small_sample_says_how_many_it_was_given(half_moved, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "umap", ModuleType("umap"))  # never asked for more
    with pytest.raises(InputError, match=r"more than 15 passages, and was given 10. Give a larger sample \(--sample\)"):
        build_map(half_moved, tmp_path / "map", MapSettings(method="umap", sample=10))


def test_umap_keeps_what_did_not_move(half_moved, tmp_path):
    pytest.importorskip("umap", reason="no umap-learn here: pip install '.[umap]'")
    made = [build_map(half_moved, tmp_path / name, MapSettings(method="umap")) for name in ("one", "other")]
    assert made[0].hash == made[1].hash
    assert (made[0].before[1::2] == made[0].after[1::2]).all()
    assert made[0].meta["variance_kept"] is None
    with pytest.raises(InputError, match="UMAP wants more than"):
        build_map(half_moved, tmp_path / "few", MapSettings(method="umap", sample=10))


@pytest.mark.parametrize("name", ["before", "questions"])
def test_a_damaged_map_is_refused(built, tmp_path, name):
    place = shutil.copytree(built.path, tmp_path / "map")
    array = np.load(place / f"{name}.npy")
    array[0] = np.nan
    np.save(place / f"{name}.npy", array)
    with pytest.raises(ArtifactError, match="a point is not finite"):
        points_of(open_map(place), 100)
    (place / f"{name}.npy").write_bytes(b"")
    with pytest.raises(ArtifactError, match="it was cut or changed"):
        open_map(place)


def test_texts_of_another_version_are_refused(built, embeddings, tmp_path):
    shutil.copytree(embeddings.path, tmp_path / "embeddings")
    place = shutil.copytree(built.path, tmp_path / "map")
    meta = json.loads((place / "meta.json").read_text())
    made = open_map(place)
    made.meta.update(inputs={**meta["inputs"], "embeddings": "another"}, made_from={"embeddings": "../embeddings"})
    with pytest.raises(ArtifactError, match="Make the map again"):
        made.texts()


class WithHead:
    """A GNN-encoder with separate heads and a label mean."""

    is_linear = True

    def load_messages(self):
        change = 0.3 * torch.randn(2, 32, 32, generator=torch.Generator().manual_seed(0))
        return TrainedMessages(Heads(*(torch.eye(32) + change)), Messages(steps=1, mean=0.4, sides="apart"))


def test_with_a_linear_head_vectors_are_those_that_rank(tiny_graph):
    """All are in the space of the head, where cosines rank as the embeddings do, and only the messages move."""
    vectors = _vectors_of(tiny_graph, WithHead(), SimpleNamespace(has_questions=False))
    assert vectors.after_head
    heads, messages = WithHead().load_messages()
    graph = message_graph(tiny_graph)
    lengths = (graph.queries @ heads.queries.T).norm(dim=1).numpy()
    ranks_by = (graph.queries @ message_vectors(graph, heads, messages).T).numpy()  # (n, m)
    np.testing.assert_allclose(lengths[:, None] * vectors.questions @ vectors.after.T, ranks_by, atol=1e-4)
    without = (graph.label_counts == 0).numpy()
    assert 0 < without.sum() < len(without)
    np.testing.assert_allclose(vectors.before[without], vectors.after[without], atol=1e-6)
    assert (np.abs(vectors.before - vectors.after)[~without].max(1) > 1e-3).all()


def test_without_a_head_vectors_are_the_stored_ones(tiny_graph, embeddings):
    class Plain:
        is_linear = True

        def load_messages(self):
            return TrainedMessages(None, Messages(mean=0.4))

    vectors = _vectors_of(tiny_graph, Plain(), embeddings)
    assert not vectors.after_head
    assert np.array_equal(vectors.before, tiny_graph.passage_features)
    assert np.array_equal(vectors.after, embeddings.passages)
