"""A graph that is built again from an earlier one's lists has the bytes of a build from nothing."""

import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.features import Features
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.growth import known_neighbors
from gnnretrieval.graph.settings import GraphSettings

RNG = np.random.default_rng(0)
PASSAGES = RNG.normal(size=(40, 8)).round(1)  # rounded: some scores are equal
QUERIES = RNG.normal(size=(30, 8)).round(1)


def graph_of(place, passages, queries, labels, known=None, **settings):
    """The graph over some rows of the vectors; a row given as (id, row) takes the vector of another row."""
    rows = {
        name: {
            f"{name}{one[0] if isinstance(one, tuple) else one}": one[-1] if isinstance(one, tuple) else one
            for one in its
        }
        for name, its in (("p", passages), ("q", queries))
    }
    texts = {name: {id_: f"text {row}" for id_, row in its.items()} for name, its in rows.items()}
    judged = {f"q{query}": {f"p{passage}": 1} for query, passage in labels}
    dataset = Dataset.from_records(texts["p"], texts["q"], judged, place / "data")
    vectors = PASSAGES[[*rows["p"].values()]], QUERIES[[*rows["q"].values()]]
    features = Features.from_vectors(dataset, *vectors, place / "features")
    return build_graph(dataset, features, GraphSettings(k=4, **settings), place / "graph", known=known)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    labels = [(query, query) for query in range(20)]
    return graph_of(tmp_path_factory.mktemp("earlier"), range(30), range(20), labels)


@pytest.mark.parametrize(
    ("passages", "queries"),
    [
        (range(30), range(20)),
        (range(40), range(30)),
        ([*range(3), *range(10, 40)], [*range(5, 25)]),
        ([*range(30), 39], [*range(10, 20), *range(10)]),
        ([*range(29), (29, 38)], [*range(19), (19, 28)]),
        ([*range(29, -1, -1)], range(20)),
    ],
    ids=["nothing", "more", "fewer and more", "another order of questions", "changed texts", "another order"],
)
def test_the_bytes_are_those_of_a_build_from_nothing(earlier, tmp_path, passages, queries):
    labels = [(10, 29), (12, 2), (15, 15)]
    for name in ("whole", "again"):
        (tmp_path / name).mkdir()
    whole = graph_of(tmp_path / "whole", passages, queries, labels)
    again = graph_of(tmp_path / "again", passages, queries, labels, known=earlier)
    assert again.hash == whole.hash


@pytest.mark.parametrize("settings", [{"edges": "bm25"}, {"search": "faiss", "probes": 0.01}])
def test_lists_of_another_search_are_not_kept(tmp_path, settings):
    labels = [(query, query) for query in range(20)]
    for name in ("earlier", "whole", "again"):
        (tmp_path / name).mkdir()
    earlier = graph_of(tmp_path / "earlier", range(30), range(20), labels, **settings)
    whole = graph_of(tmp_path / "whole", range(30), range(20), labels)
    again = graph_of(tmp_path / "again", range(30), range(20), labels, known=earlier)
    assert again.hash == whole.hash


def test_only_what_changed_is_searched(earlier, tmp_path, monkeypatch):
    searched = []
    real = known_neighbors.exact_top_k

    def counted(queries, passages, *rest, **how):
        searched.append((len(queries), len(passages)))
        return real(queries, passages, *rest, **how)

    monkeypatch.setattr(known_neighbors, "exact_top_k", counted)
    labels = [(query, query) for query in range(22)]
    graph_of(tmp_path, range(31), range(22), labels, known=earlier)
    assert searched == [(20, 1), (2, 31)]
