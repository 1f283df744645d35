import numpy as np
import pytest
import torch
from scipy import stats

from gnnretrieval.data import ScoredPassage
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.evaluation import mean, per_query
from gnnretrieval.feedback.clicked_questions import ClickedQuestions
from gnnretrieval.nn import GNNEncoder
from gnnretrieval.training.gnn import embedding
from gnnretrieval.training.gnn.dev import DevSet, DevWindow, choose_scale
from gnnretrieval.training.gnn.embedding import gated_contexts
from gnnretrieval.training.gnn.ladder import reciprocal_ranks

SCALES = (0.0, 0.25, 1.0, 1.5)


@pytest.fixture
def model(tiny_graph) -> GNNEncoder:
    encoder = GNNEncoder(tiny_graph.dimension, tiny_graph.edge_dim)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.4 * torch.randn(parameter.shape, generator=generator))
    return encoder


def questions(store, count=24, seed=0) -> tuple[np.ndarray, list[list[int]]]:
    """Query features near some passages, each with one to three relevant passages."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(store.num_passages, size=count)
    queries = store.passage_features[rows].astype(np.float32) + rng.normal(0, 0.6, (count, store.dimension))
    relevant = [
        sorted({int(row), *rng.integers(store.num_passages, size=number % 3).tolist()})
        for number, row in enumerate(rows)
    ]
    return queries, relevant


def by_full_ranking(model, store, similarity, queries, relevant, scale, visible) -> float:
    """RR@10 as it is reported: every passage ranked, measured by ir-measures."""
    blocks = [passages + scale * context for _, passages, context in gated_contexts(model, store, "cpu", visible)]
    vectors = similarity.prepare(torch.cat(blocks)).numpy()
    scores = similarity.prepare_array(queries) @ vectors.T
    run = {
        f"q{number}": [ScoredPassage(f"p{row}", float(score)) for row, score in enumerate(of_query)]
        for number, of_query in enumerate(scores)
    }
    qrels = {f"q{number}": {f"p{row}": 1 for row in rows} for number, rows in enumerate(relevant)}
    return mean(per_query(qrels, run, ["RR@10"]))["RR@10"]


def means(measured: dict[float, np.ndarray]) -> dict[float, float]:
    return {scale: float(values.mean()) for scale, values in measured.items()}


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("block", [7, 8192])
def test_measure_equals_rr_at_10_of_the_full_ranking_for_every_scale(
    tiny_graph, model, monkeypatch, normalize, mask, block
):
    monkeypatch.setattr(embedding, "_BLOCK", block)
    similarity = Similarity(normalize=normalize, scale=20.0)
    visible = np.arange(tiny_graph.num_queries) % 3 > 0 if mask else None
    queries, relevant = questions(tiny_graph)
    measured = means(DevSet(queries, relevant, similarity).measure(model, tiny_graph, SCALES, visible))
    expected = {
        scale: by_full_ranking(model, tiny_graph, similarity, queries, relevant, scale, visible) for scale in SCALES
    }
    assert measured == pytest.approx(expected)
    assert len({round(value, 6) for value in measured.values()}) > 1


def test_scale_zero_measures_the_dual_encoder(tiny_graph, model):
    queries, relevant = questions(tiny_graph)
    similarity = tiny_graph.similarity
    measured = DevSet(queries, relevant, similarity).measure(model, tiny_graph, [0.0])
    scores = similarity.prepare_array(queries) @ similarity.prepare_array(tiny_graph.passage_features).T
    reciprocal = []
    for of_query, rows in zip(scores, relevant, strict=True):
        rank = 1 + int((of_query > of_query[rows].max()).sum())
        reciprocal.append(1 / rank if rank <= 10 else 0)
    assert measured[0.0] == pytest.approx(reciprocal)


def test_measuring_leaves_the_model_in_its_mode_and_does_not_depend_on_it(tiny_graph, model):
    queries, relevant = questions(tiny_graph)
    dev = DevSet(queries, relevant, tiny_graph.similarity)
    model.queries_to_passages.dropout = 0.5
    model.train()
    in_training = dev.measure(model, tiny_graph, SCALES)
    assert model.training
    model.eval()
    again = dev.measure(model, tiny_graph, SCALES)
    assert all(np.array_equal(again[scale], in_training[scale]) for scale in SCALES)
    assert not model.training


def test_a_scorer_that_gives_every_passage_the_same_score_measures_zero(tiny_graph, model):
    queries = np.zeros((3, tiny_graph.dimension))
    dev = DevSet(queries, [[0], [1, 2], [39]], tiny_graph.similarity)
    assert means(dev.measure(model, tiny_graph, SCALES)) == dict.fromkeys(SCALES, 0.0)


def test_a_model_that_diverged_to_nan_measures_zero(tiny_graph, model):
    with torch.no_grad():
        model.filter_gate.lin.bias.fill_(float("nan"))
    queries, relevant = questions(tiny_graph)
    measured = DevSet(queries, relevant, tiny_graph.similarity).measure(model, tiny_graph, [0.5, 1.0])
    assert means(measured) == {0.5: 0.0, 1.0: 0.0}


def test_measured_among_some_passages_the_others_do_not_count(tiny_graph, model):
    queries, relevant = questions(tiny_graph)
    dev = DevSet(queries, relevant, tiny_graph.similarity)
    everything = np.arange(tiny_graph.num_passages)
    whole, same = (dev.measure(model, tiny_graph, SCALES, among=rows) for rows in (None, everything))
    assert all(np.array_equal(whole[scale], same[scale]) for scale in SCALES)
    alone = dev.measure(model, tiny_graph, SCALES, among=dev.relevant_rows)
    assert all((alone[scale] >= whole[scale]).all() for scale in SCALES)
    assert sum(alone[1.0]) > sum(whole[1.0])


def chosen(measured: dict[float, list[float]], parts: list[int] | None = None):
    values = {scale: np.array(value) for scale, value in measured.items()}
    return choose_scale(values, values[0.0], np.array(parts or [0] * len(values[0.0])))


def test_of_equal_measures_the_scale_nearest_to_the_dual_encoder_is_chosen():
    assert chosen({1.0: [0.5, 0.5], 0.5: [0.5, 0.5], 0.25: [0.4, 0.4], 0.0: [0.1, 0.1]}).scale == 0.5
    assert chosen({1.5: [0.6, 0.5], 0.0: [0.5, 0.5]}).scale == 1.5
    assert chosen({0.0: [0.5, 0.4], 0.5: [0.5, 0.4]}).scale == 0.0


def test_a_choice_has_its_gain_and_the_p_value_of_a_paired_test():
    base, gained = [0.1, 0.5, 0.2, 0.3, 1.0], [0.2, 0.5, 0.5, 0.3, 0.9]
    found = chosen({0.0: base, 1.0: gained})
    assert found.gain == pytest.approx(np.mean(gained) - np.mean(base))
    assert found.p == pytest.approx(stats.ttest_rel(gained, base, alternative="greater").pvalue)
    assert chosen({0.0: base, 1.0: [0.0] * 5}).p == 1.0


@pytest.mark.parametrize("questions", [1, 2, 5, 40])
def test_equal_gains_are_as_certain_as_so_many_tosses_of_one_side(questions):
    found = chosen({0.0: [0.0] * questions, 1.0: [0.5] * questions})
    assert found.p == 0.5**questions
    assert chosen({0.0: [0.5] * questions, 1.0: [0.0] * questions}).p == 1.0


def test_a_window_is_the_mean_of_the_last_measurements():
    window = DevWindow(2, [0.0, 1.0], 3)
    measurements = [{0.0: np.full(3, 0.5), 1.0: np.array([0.1, 0.2, 0.3]) * time} for time in (1, 2, 5)]
    means = [window.with_this(measured) for measured in measurements]
    assert all(found[0.0].tolist() == [0.5] * 3 for found in means)
    for found, times in zip(means, (1, 1.5, 3.5), strict=True):
        np.testing.assert_allclose(found[1.0], np.array([0.1, 0.2, 0.3]) * times)
    alone = DevWindow(1, [0.0, 1.0], 3)
    assert all(np.array_equal(alone.with_this(one)[1.0], one[1.0]) for one in measurements)


def test_a_window_of_equal_measurements_gains_nothing():
    base = np.array([1 / rank for rank in range(1, 11)])
    window = DevWindow(7, [0.0, 1.0], len(base))
    for _ in range(7):
        found = window.with_this({0.0: base, 1.0: base})
    assert not np.array_equal(found[0.0], base), "the mean is of other bits, or there is nothing to test here"
    assert choose_scale(found, base, np.zeros(len(base), dtype=int)) == (0.0, 0.0, 1.0)


def test_a_scale_that_harms_a_kind_of_question_is_not_chosen():
    parts = [0, 0, 0, 0, 1, 1]
    measured = {0.0: [0.0] * 4 + [0.5, 0.5], 0.5: [0.2] * 4 + [0.6, 0.5], 1.0: [0.9] * 4 + [0.1, 0.2]}
    found = chosen(measured, parts)
    assert (found.scale, found.gain) == (0.5, pytest.approx(0.15))
    gains = [0.2] * 4 + [0.1, 0.0]
    assert found.p == pytest.approx(stats.ttest_1samp(gains, 0, alternative="greater").pvalue)
    assert chosen(measured).scale == 1.0
    assert chosen({0.0: measured[0.0], 1.0: measured[1.0]}, parts) == (0.0, 0.0, 1.0)


def test_by_clicks_only_passages_that_were_shown_are_ranked_and_questions_count_by_their_weights(tiny_graph, model):
    queries, relevant = questions(tiny_graph)
    similarity = tiny_graph.similarity
    rng = np.random.default_rng(0)
    shown: list[list[int] | None] = [
        sorted({*rows, *rng.permutation(tiny_graph.num_passages)[:12].tolist()}) for rows in relevant
    ]
    shown[0] = None  # the log does not say
    clicked = ClickedQuestions([list(rows) for rows in relevant], shown, np.linspace(1, 3, len(relevant)))
    dev = DevSet(queries, relevant, similarity, clicked=clicked)
    measured = dev.measure(model, tiny_graph, [0.0])[0.0]
    vectors = torch.from_numpy(similarity.prepare_array(tiny_graph.passage_features))
    asked = torch.from_numpy(similarity.prepare_array(queries))
    np.testing.assert_allclose(measured, clicked.shares * reciprocal_ranks(vectors, asked, relevant, shown))
    alike = DevSet(queries, relevant, similarity).measure(model, tiny_graph, [0.0])[0.0]
    assert measured.mean() != pytest.approx(alike.mean())
    among = dev.measure(model, tiny_graph, SCALES, among=dev.judged_rows)
    whole = dev.measure(model, tiny_graph, SCALES)
    assert all(np.array_equal(among[scale][1:], whole[scale][1:]) for scale in SCALES)
    assert np.array_equal(dev.with_queries(queries).measure(model, tiny_graph, [0.0])[0.0], measured)
