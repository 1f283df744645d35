import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import ArtifactError
from gnnretrieval.index.engines import FaissEngine, TorchEngine

DOT = Similarity(normalize=False, scale=1.0)


def vectors(count, seed=0):
    return np.random.default_rng(seed).standard_normal((count, 8)).astype(np.float32)


def index_of(stored, factory="Flat"):
    index = faiss.index_factory(8, factory, faiss.METRIC_INNER_PRODUCT)
    index.train(stored)
    index.add(stored)
    return index


@given(st.integers(1, 40), st.sets(st.integers(0, 29)), st.integers(0, 5))
def test_dead_vectors_are_never_found_and_all_others_are_in_order(k, dead, seed):
    stored, asked = vectors(30, seed), vectors(3, 99)
    rows = np.arange(30) + 100
    rows[sorted(dead)] = -1
    found, scores = FaissEngine(index_of(stored), rows=rows).search(asked, k)
    for line, own, question in zip(found, scores, asked, strict=True):
        alive = [row for row in np.argsort(-(stored @ question), kind="stable").tolist() if row not in dead]
        expected = [row + 100 for row in alive][:k]
        assert line.tolist() == expected + [-1] * (k - len(expected))
        np.testing.assert_allclose(own[: len(expected)], (stored @ question)[alive[:k]], rtol=1e-5, atol=1e-6)
    torch_rows, _ = TorchEngine(stored, DOT, np.array(sorted(dead), dtype=np.int64)).search(asked, k)
    assert np.where(torch_rows < 0, -1, torch_rows + 100).tolist() == found.tolist()


@pytest.mark.parametrize(
    ("factory", "search"),
    [
        ("HNSW4,Flat", "efSearch=16"),
        ("HNSW4,RFlat", "efSearch=16"),
        ("PCA8,HNSW4,Flat", "efSearch=16"),
        ("IVF8,Flat", "nprobe=2"),
        ("IVF8_HNSW4,Flat", "quantizer_efSearch=64"),
    ],
)
def test_where_lists_or_links_lead_to_too_few_every_vector_is_looked_at(factory, search):
    stored, asked = vectors(200), vectors(5, 9)
    engine = FaissEngine(index_of(stored, factory), search)
    before = getattr(engine.index, "nprobe", None)
    rows, _ = engine.search(asked, 200)
    assert (np.sort(rows, axis=1) == np.arange(200)).all()
    few, _ = engine.search(asked, 5)
    assert (few >= 0).all()
    assert getattr(engine.index, "nprobe", None) == before, "the setting is put back"


def test_an_index_with_a_number_twice_is_damaged():
    stored = vectors(30)
    index = faiss.IndexIDMap(faiss.IndexFlatIP(8))
    index.add_with_ids(stored, np.zeros(30, dtype=np.int64))
    with pytest.raises(ArtifactError, match="finds a vector twice"):
        FaissEngine(index).search(vectors(2, 9), 5)


def test_nothing_asked_and_nothing_there():
    engine = FaissEngine(index_of(vectors(3)), rows=np.full(3, -1))
    assert engine.search(vectors(2), 4)[0].tolist() == [[-1] * 4] * 2
    assert engine.search(vectors(0), 4)[0].shape == (0, 4)
    everything = TorchEngine(vectors(3), DOT, np.arange(3))
    assert everything.search(vectors(2), 4)[0].tolist() == [[-1] * 4] * 2


@pytest.mark.skipif(hasattr(faiss, "StandardGpuResources"), reason="this FAISS has a GPU")
def test_a_faiss_without_a_gpu_searches_on_the_cpu_whatever_questions_are_encoded_on():
    stored = vectors(30)
    on_gpu, on_cpu = (FaissEngine(index_of(stored), device=device).search(stored, 3)[0] for device in ("cuda", "cpu"))
    assert np.array_equal(on_gpu, on_cpu)
