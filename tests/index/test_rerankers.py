import numpy as np
import pytest

from gnnretrieval.encoders.maxsim import maxsim_of
from gnnretrieval.errors import ArtifactError, GnnRetrievalError
from gnnretrieval.index import build_index
from gnnretrieval.index.hybrid import Ranker, RankingSettings
from gnnretrieval.index.passage_neighbors import PassageNeighbors
from gnnretrieval.index.search import index_run
from gnnretrieval.index.updating import remove_passages


@pytest.fixture(scope="module")
def index(tiny_features, tmp_path_factory):
    return build_index(tiny_features, tmp_path_factory.mktemp("made") / "index")


@pytest.fixture(scope="module")
def asked(index, tiny_features):
    texts = {query.id: query.text for query in index.texts.queries() if query.id.startswith("test")}
    return texts, tiny_features.queries[tiny_features.rows_of(texts)]


def test_maxsim_orders_the_first_passages_and_the_others_follow(index, tiny_late, asked):
    texts, vectors = asked
    found = Ranker(index, RankingSettings(rerank=str(tiny_late.path), rerank_depth=6)).run(texts, vectors, 10)
    plain, ids = index_run(index, list(texts), vectors, 10), index.texts.passage_ids()
    for query, row in zip(texts, tiny_late.rows_of(texts), strict=True):
        first = [one.passage_id for one in plain[query][:6]]
        rows = np.array([ids.index(id_) for id_ in first])
        scores = maxsim_of(tiny_late.query_tokens[row], tiny_late.tokens, tiny_late.token_starts, rows)
        expected = [first[place] for place in np.argsort(-scores, kind="stable")]
        assert [one.passage_id for one in found[query][:6]] == expected
        assert [one.passage_id for one in found[query][6:]] == [one.passage_id for one in plain[query][6:]]


@pytest.mark.parametrize("method", ["gar", "ladr"])
def test_adaptive_retrieval_finds_passages_that_the_first_stage_missed(index, tiny_late, asked, tiny_graph, method):
    texts, vectors = asked
    settings = RankingSettings(
        rerank=str(tiny_late.path), rerank_depth=8, adaptive=method, adaptive_batch=2, neighbors=4
    )
    found = Ranker(index, settings, graph=tiny_graph).run(texts, vectors, 8)
    plain = index_run(index, list(texts), vectors, 8)
    missed = sum(len({p.passage_id for p in found[q]} - {p.passage_id for p in plain[q]}) for q in texts)
    assert missed > 0
    assert settings.suffix == f"+{method}+rerank"


def test_neighbours_by_questions_share_training_questions(index, tiny_graph):
    ids = index.texts.passage_ids()
    near = PassageNeighbors(index, tiny_graph, 5, "questions")
    for row, neighbors in enumerate(near(ids)):
        own = {q for q, passages in enumerate(tiny_graph.neighbors.tolist()) if row in passages}
        weights = {}
        for query in own:
            for rank, passage in enumerate(tiny_graph.neighbors[query].tolist(), 1):
                weights[passage] = weights.get(passage, 0) + 1 / rank
        weights.pop(row, None)
        assert [ids.index(id_) for id_ in neighbors] == sorted(weights, key=lambda p: (-weights[p], p))[:5]


def test_neighbours_by_vectors_are_the_nearest_that_are_left(index, tiny_features, tmp_path):
    ids = index.texts.passage_ids()
    near = PassageNeighbors(index, None, 3)([ids[4]])[0]
    rows, _ = index.search(np.asarray(index.vectors[4:5], dtype=np.float32), 4)
    assert near == [ids[row] for row in rows[0].tolist() if row != 4][:3]
    place = build_index(tiny_features, tmp_path / "index").path
    left = PassageNeighbors(remove_passages(place, near[:1]), None, 3)([ids[4]])[0]
    assert near[0] not in left
    assert left[:2] == near[1:]


def test_what_cannot_rerank_is_said(index, tiny_late_encoder, tiny_features, tmp_path):
    with pytest.raises(GnnRetrievalError, match="Give the features of gnnretrieval"):
        Ranker(index, RankingSettings(rerank=str(tiny_late_encoder.path)))
    with pytest.raises(ArtifactError, match="have one vector each"):
        Ranker(index, RankingSettings(rerank=str(tiny_features.path)))
