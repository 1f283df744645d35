"""Edge vectors: by a cross-encoder or of one's own, in every form."""

import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gnnretrieval.data import Dataset
from gnnretrieval.encoders import pair_shards as encoded_shards
from gnnretrieval.encoders.cross_encoder import CrossEncoder
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.graph import GraphSettings, build_graph, open_graph
from gnnretrieval.graph.edges import pair_shards
from gnnretrieval.graph.edges import pairs as pair_features
from gnnretrieval.graph.edges.arrays import quantize
from gnnretrieval.graph.growth.add import add_to_graph
from gnnretrieval.graph.growth.additions import read_additions
from gnnretrieval.shards import Sharding
from gnnretrieval.training import TrainSettings, embed_passages, train_gnn


@pytest.fixture(scope="module")
def dataset(tiny_dataset):
    return Dataset.open(tiny_dataset)


def crossed(tiny_cross_encoder, **more) -> GraphSettings:
    return GraphSettings(
        k=3, edge_vectors="cross-encoder", cross_encoder=str(tiny_cross_encoder), pair_tokens=64, **more
    )


@pytest.fixture(scope="module")
def crossed_graph(dataset, tiny_features, tiny_cross_encoder, tmp_path_factory):
    settings = crossed(tiny_cross_encoder, edge_features=("score", "probability"), self_loops="cross-encoder")
    return build_graph(dataset, tiny_features, settings, tmp_path_factory.mktemp("crossed") / "graph")


def all_edges(store) -> np.ndarray:
    return store.gather_edge_features(np.arange(store.num_queries * store.stride)).reshape(
        store.num_queries, store.stride, -1
    )


@pytest.mark.parametrize("form", [{}, {"edge_form": "int8"}, {"edge_dimensions": 8}])
def test_pairs_in_shards_are_those_of_one_process_byte_for_byte(
    dataset, tiny_features, tiny_cross_encoder, tmp_path, monkeypatch, form
):
    for module in (pair_features, pair_shards, encoded_shards):
        monkeypatch.setattr(module, "PAIRS", 16)  # of 180
    settings = crossed(tiny_cross_encoder, edge_features=("score", "probability"), **form)
    whole = build_graph(dataset, tiny_features, settings, tmp_path / "whole")
    made = build_graph(dataset, tiny_features, settings, tmp_path / "graph", sharding=Sharding(shards=5))
    assert made.meta["files"] == whole.meta["files"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph", "whole"]


def test_every_edge_carries_its_pair_s_vector_and_probability(crossed_graph, tiny_cross_encoder):
    encoder = CrossEncoder(crossed(tiny_cross_encoder).cross_encoder_settings)
    with crossed_graph.texts() as texts:
        queries, passages = [q.text for q in texts.queries()], [p.full_text for p in texts.passages()]
    pairs = np.array([(q, int(p)) for q in range(60) for p in crossed_graph.neighbors[q]])
    expected = encoder.encode_pairs(queries, passages, pairs)
    found = all_edges(crossed_graph)
    assert crossed_graph.edge_dim == 2 + 32
    np.testing.assert_allclose(found[:, :, 2:].reshape(180, 32), expected.vectors, atol=2e-2)
    np.testing.assert_allclose(found[:, :, 1].ravel(), expected.probabilities, atol=1e-2)
    np.testing.assert_allclose(found[:, :, 0], crossed_graph.scores, atol=1e-3)
    itself = encoder.encode_pairs(passages, passages, np.array([[4, 4]])).vectors
    np.testing.assert_allclose(crossed_graph.edge_arrays.passage_loops[4], itself[0], atol=2e-2)
    itself = encoder.encode_pairs(queries, queries, np.array([[7, 7]])).vectors
    np.testing.assert_allclose(crossed_graph.edge_arrays.query_loops[7], itself[0], atol=2e-2)


def test_int8_and_a_projection_are_near_to_the_vectors(
    crossed_graph, dataset, tiny_features, tiny_cross_encoder, tmp_path
):
    whole = all_edges(crossed_graph)[:, :, 2:].reshape(180, 32)
    settings = crossed(tiny_cross_encoder, edge_features=(), edge_form="int8")
    reduced = build_graph(dataset, tiny_features, settings, tmp_path / "int8")
    assert reduced.edge_arrays.vectors.dtype == np.int8
    steps = np.abs(whole).max(1, keepdims=True) / 127
    assert (np.abs(all_edges(reduced).reshape(180, 32) - whole) <= 0.51 * steps + 1e-2).all()
    settings = crossed(tiny_cross_encoder, edge_features=(), edge_dimensions=31)
    projected = build_graph(dataset, tiny_features, settings, tmp_path / "pca")
    found = all_edges(projected).reshape(180, 31)
    distances = np.linalg.norm(whole[:, None] - whole, axis=-1)
    np.testing.assert_allclose(np.linalg.norm(found[:, None] - found, axis=-1), distances, atol=0.1)
    np.testing.assert_allclose(found.mean(0), 0, atol=2e-2)
    small = build_graph(dataset, tiny_features, settings.model_copy(update={"edge_dimensions": 4}), tmp_path / "4")
    variance = np.sort(np.linalg.eigvalsh(np.cov(whole.T)))[::-1]
    np.testing.assert_allclose(all_edges(small).reshape(180, 4).var(0, ddof=1), variance[:4], rtol=0.1)


@given(vectors=arrays(np.float32, (4, 6), elements=st.floats(-100, 100, width=32)))
def test_int8_is_within_half_a_step(vectors):
    numbers, scales = quantize(vectors)
    assert (np.abs(numbers * scales[:, None] - vectors) <= scales[:, None] * 0.501 + 1e-30).all()


def test_one_that_was_cut_off_goes_on_and_gives_the_same_bytes(
    crossed_graph, dataset, tiny_features, tiny_cross_encoder, tmp_path, monkeypatch
):
    monkeypatch.setattr(pair_features, "PAIRS", 16)
    encode = CrossEncoder.encode_pairs
    calls: list[int] = []

    def cut_off(self, *args):
        calls.append(len(args[2]))
        if len(calls) == 5:
            raise KeyboardInterrupt
        return encode(self, *args)

    settings = GraphSettings.parse(crossed_graph.config)
    monkeypatch.setattr(CrossEncoder, "encode_pairs", cut_off)
    with pytest.raises(KeyboardInterrupt):
        build_graph(dataset, tiny_features, settings, tmp_path / "graph")
    count = len(calls)
    graph = build_graph(dataset, tiny_features, settings, tmp_path / "graph")
    assert len(calls) - count == (180 - 4 * 16 + 15) // 16 + -(-60 // 16) + -(-40 // 16)
    assert graph.meta["files"] == crossed_graph.meta["files"]  # a pair's vector does not depend on its batch


@pytest.mark.parametrize("form", ["float16", "int8"])
def test_additions_keep_the_old_pairs_vectors_and_encode_the_new_ones(
    dataset, tiny_features, tiny_cross_encoder, tmp_path, form
):
    settings = crossed(tiny_cross_encoder, edge_features=("probability",), self_loops="cross-encoder", edge_form=form)
    graph = build_graph(dataset, tiny_features, settings, tmp_path / "graph")
    before = {tuple(pair): row for pair, row in pair_rows(graph)}
    with graph.texts() as texts:
        wanted = texts.query(3).text
    (tmp_path / "corpus.jsonl").write_text(f'{{"_id": "new", "title": "", "text": "{wanted}"}}\n')
    (tmp_path / "queries.jsonl").write_text(f'{{"_id": "q", "text": "{wanted}"}}\n')
    additions = read_additions(graph, queries=tmp_path / "queries.jsonl", passages=tmp_path / "corpus.jsonl")
    grown = add_to_graph(graph.path, additions)
    assert grown.neighbors[3, 0] == 40
    after = dict(pair_rows(grown))
    kept = [pair for pair in after if pair in before]
    assert 0 < len(kept) < len(after)
    assert all(np.array_equal(after[pair], before[pair]) for pair in kept)
    encoder = CrossEncoder(settings.cross_encoder_settings)
    vector = encoder.encode_pairs([wanted], [wanted], np.array([[0, 0]])).vectors[0]
    np.testing.assert_allclose(after[3, 40][1:], vector, atol=5e-2)
    np.testing.assert_allclose(grown.edge_arrays.passage_loops[40], vector, atol=2e-2)
    assert np.array_equal(grown.edge_arrays.query_loops[:60], np.array(graph.edge_arrays.query_loops))


def pair_rows(store):
    features = all_edges(store)
    return [
        ((q, int(p)), features[q, rank]) for q in range(store.num_queries) for rank, p in enumerate(store.neighbors[q])
    ]


def test_a_model_trains_and_embeds_over_edge_vectors_and_stored_loops(crossed_graph, dataset, tiny_features, tmp_path):
    settings = TrainSettings(epochs=1, mask_ratio=0.3, batch_size=8)
    model = train_gnn(crossed_graph, dataset, tiny_features, settings, tmp_path / "model")
    assert embed_passages(model, crossed_graph, tmp_path / "embeddings").passages.shape == (40, 32)
    cheap = build_graph(dataset, tiny_features, GraphSettings(k=3, edge_features=("score",)), tmp_path / "cheap")
    with pytest.raises(ArtifactError, match="trained for features of 32 and edges of 34 dimensions"):
        embed_passages(model, cheap, tmp_path / "others")


def test_vectors_of_ones_own_are_stored_in_order(dataset, tiny_features, tmp_path):
    vectors = np.random.default_rng(0).normal(size=(60, 3, 7)).astype(np.float32)
    np.save(tmp_path / "edges.npy", vectors.reshape(180, 7))
    settings = GraphSettings(k=3, edge_features=("score",), edge_vectors="file")
    graph = build_graph(dataset, tiny_features, settings, tmp_path / "graph", edge_file=tmp_path / "edges.npy")
    np.testing.assert_allclose(all_edges(graph)[:, :, 1:], vectors, rtol=1e-3)
    (tmp_path / "q.jsonl").write_text('{"_id": "q", "text": "some"}\n')
    additions = read_additions(graph, queries=tmp_path / "q.jsonl")
    with pytest.raises(ArtifactError, match="its edge vectors come from your file"):
        add_to_graph(graph.path, additions)


def with_number(number):
    """Vectors of which one has this number."""
    vectors = np.ones((60, 3, 7), np.float32)
    vectors[5, 2, 3] = number
    return vectors


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((59, 3, 7), np.float32), r"found \(59, 3, 7\), wanted \(60, 3, width\) or \(180, width\)"),
        (np.ones((180, 7), np.int64), r"found int64 \(180, 7\), wanted floats"),
        (np.array(["a"], dtype=object), "this is not a .npy file of numbers"),
        (np.ones((60, 3, 0), np.float32), "vectors without a number"),
        (with_number(np.nan), "the vector of query 5's passage 2 .* not finite"),
        (with_number(-np.inf), "the vector of query 5's passage 2 .* not finite"),
        (with_number(1e5), "the vector of query 5's passage 2 .* beyond 65,504, the largest of float16"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(dataset, tiny_features, tmp_path, array, message):
    np.save(tmp_path / "edges.npy", array)
    settings = GraphSettings(k=3, edge_vectors="file")
    with pytest.raises(InputError, match=message):
        build_graph(dataset, tiny_features, settings, tmp_path / "graph", edge_file=tmp_path / "edges.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["edges.npy"]


def test_large_numbers_are_kept_with_a_scale(dataset, tiny_features, tmp_path):
    np.save(tmp_path / "edges.npy", with_number(1e5))
    settings = GraphSettings(k=3, edge_vectors="file", edge_form="int8")
    graph = build_graph(dataset, tiny_features, settings, tmp_path / "graph", edge_file=tmp_path / "edges.npy")
    assert all_edges(graph).max() == pytest.approx(1e5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"edge_vectors": "cross-encoder"}, "give cross_encoder"),
        ({"edge_features": ("probability",)}, "give cross_encoder"),
        ({"self_loops": "cross-encoder"}, "goes with edge_vectors = cross-encoder"),
        ({"edge_form": "int8"}, "edge_vectors is none"),
        ({"edges": "bm25", "search": "faiss"}, "goes with edges = dual-encoder"),
        ({"edge_features": ("score", "score")}, "named twice"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(values, message):
    with pytest.raises(InputError, match=message):
        GraphSettings.parse(values)


def test_a_run_and_its_setting_go_together(dataset, tiny_features, tmp_path):
    with pytest.raises(GnnRetrievalError, match="edges = run and a run file"):
        build_graph(dataset, tiny_features, GraphSettings(edges="run"), tmp_path / "graph")


def test_faiss_finds_what_exact_search_finds_when_it_looks_everywhere(
    dataset, tiny_features, tiny_graph, tmp_path, said
):
    settings = GraphSettings(k=5, search="faiss", probes=1.0)
    graph = build_graph(dataset, tiny_features, settings, tmp_path / "graph")
    assert graph.neighbors.tolist() == tiny_graph.neighbors.tolist()
    assert graph.scores.tobytes() == tiny_graph.scores.tobytes()
    assert any("recall of the exact top 5 100.0 %" in line for line in said)


def test_bm25_edges_are_bm25_s_best_filled_up_by_the_dual_encoder(dataset, tiny_features, tiny_graph, tmp_path):
    from gnnretrieval.encoders.bm25 import BM25

    graph = build_graph(dataset, tiny_features, GraphSettings(k=30, edges="bm25"), tmp_path / "graph")
    bm25 = BM25(passage.full_text for passage in dataset.passages())
    for row, query in enumerate(dataset.queries_of("train")[:10]):
        best, _ = bm25.top_k(query.text, 30)
        assert graph.neighbors[row, : len(best)].tolist() == best.tolist()
        assert len(set(graph.neighbors[row].tolist())) == 30
    assert graph.meta["filled"] > 0


def test_a_store_reopens_after_its_directory_is_copied(crossed_graph, tmp_path):
    shutil.copytree(crossed_graph.path, tmp_path / "copy")
    assert np.array_equal(all_edges(open_graph(tmp_path / "copy")), all_edges(crossed_graph))


def test_what_the_cross_encoder_cannot_do_is_said_before_anything_is_made(
    dataset, tiny_features, tiny_cross_encoder, tmp_path
):
    long = crossed(tiny_cross_encoder).model_copy(update={"pair_tokens": 9999})
    wide, out = crossed(tiny_cross_encoder, edge_dimensions=800), tmp_path / "graph"
    with pytest.raises(InputError, match=r"positions for \d+ tokens, and pair_tokens is 9999"):
        build_graph(dataset, tiny_features, long, out)
    with pytest.raises(GnnRetrievalError, match="edge_dimensions is 800, but edge vectors have 32"):
        build_graph(dataset, tiny_features, wide, out)
    assert list(tmp_path.iterdir()) == []
