"""The linear head, and the choice on dev that climbs from the dual-encoder."""

from itertools import product
from threading import Event

import numpy as np
import pytest
import torch
from few_steps import shorten
from rotated_graph import rotated_graph
from torch.nn import functional as F

from gnnretrieval.baselines.dense import CHOICES
from gnnretrieval.nn.label_messages import MessageGraph, Messages
from gnnretrieval.nn.relevant_passages import RelevantPassages
from gnnretrieval.training import TrainSettings
from gnnretrieval.training.gnn import head, ladder
from gnnretrieval.training.gnn.head import HeadTraining, train_each, train_heads
from gnnretrieval.training.gnn.judged import Judged
from gnnretrieval.training.gnn.ladder import (
    PASSES,
    UPDATE_SIZES,
    climb,
    first_ranks,
    head_steps,
    log_ranks,
    reciprocal,
    reciprocal_ranks,
    steps_over,
    together,
)


@pytest.fixture(scope="module", autouse=True)
def all_steps(few_steps):
    """As many steps as users have: these tests are about their numbers."""
    few_steps.undo()
    yield
    shorten(few_steps.setattr, few_steps.setitem)


def test_a_trained_head_ranks_what_the_identity_could_not():
    graph = rotated_graph()
    trained = train_heads(graph, 300).queries
    wanted = [[row] for row in range(len(graph.queries))]
    before = reciprocal_ranks(graph.passages, graph.queries, wanted).mean()
    folded = F.normalize(graph.passages @ trained.T, dim=1) @ trained
    assert reciprocal_ranks(folded, graph.queries, wanted).mean() > before + 0.1


def test_a_step_s_candidates_are_labelled_passages_beyond_its_batch_and_no_others(monkeypatch):
    graph = rotated_graph()
    few = graph._replace(labels=graph.labels[:10])
    monkeypatch.setattr(head, "BATCH", 1)  # whose passage alone would leave nothing to learn
    trained = train_heads(few, 5)
    assert not trained.queries.equal(torch.eye(8))
    labelled = few.labels[:, 1]
    moved = graph.passages.clone()
    moved[[row for row in range(len(moved)) if row not in labelled.tolist()]] *= -1
    assert train_heads(few._replace(passages=moved), 5).queries.equal(trained.queries)
    monkeypatch.setattr(head, "OTHERS", 0)
    assert train_heads(few, 5).queries.equal(torch.eye(8))


def test_the_same_seed_trains_the_same_head():
    graph = rotated_graph()
    first, second = (train_heads(graph, 5, sides="apart", mean=0.2, seed=3) for _ in range(2))
    assert all(map(torch.equal, first, second))


def test_several_heads_are_those_trained_alone_on_any_number_of_threads():
    graph, done, threads = rotated_graph(300, 96), list[int](), torch.get_num_threads()
    trainings = [HeadTraining(3, "apart", 0.2), HeadTraining(5), HeadTraining(4, "queries")]
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            for one, found in zip(trainings, train_each(graph, trainings, seed=2, advance=done.append), strict=True):
                expected = train_heads(graph, one.steps, sides=one.sides, mean=one.mean, seed=2)
                assert all(map(torch.equal, found, expected))
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(threads)
    assert done == [3, 5, 4] * 2


def test_a_training_that_is_told_to_stop_ends():
    stop = Event()
    stop.set()
    assert train_heads(rotated_graph(), 100, stop=stop).queries.equal(torch.eye(8))


def test_a_head_learns_from_taught_queries_alone():
    graph = rotated_graph()
    assert train_heads(graph, 5, taught=torch.zeros(40, dtype=torch.bool)).queries.equal(torch.eye(8))


def test_what_is_relevant_to_a_query_is_looked_up_among_a_step_s_passages():
    graph = rotated_graph()._replace(labels=torch.tensor([[2, 1], [0, 3], [2, 5], [1, 3], [2, 0]]))
    found = RelevantPassages(graph).among(torch.tensor([2, 3, 0]), torch.tensor([0, 3, 5]))
    assert found.tolist() == [[True, False, True], [False, False, False], [False, True, False]]


def test_a_step_masks_its_own_question():
    """A passage's only question is masked in its step, so the mean's weight is without effect."""
    graph = rotated_graph()
    for sides in ("both", "apart"):
        found, expected = train_heads(graph, 5, sides=sides, mean=0.4), train_heads(graph, 5, sides=sides)
        torch.testing.assert_close(tuple(found), tuple(expected))


def test_a_step_masks_copies_of_its_own_question():
    """They would give its answer away: beside copies that are not trained on, heads are those without them."""
    graph = rotated_graph()
    labels = torch.cat([graph.labels, torch.stack([graph.labels[:, 0].roll(1), graph.labels[:, 1]], dim=1)])
    graph = graph._replace(labels=labels)  # two questions for each passage
    n = len(graph.queries)
    copied = graph._replace(
        queries=graph.queries.repeat(2, 1),
        neighbors=graph.neighbors.repeat(2, 1),
        visible=graph.visible.repeat(2),
        labels=torch.cat([labels, labels + torch.tensor([n, 0])]),
    )
    found = train_heads(copied, 5, mean=0.4, taught=torch.arange(2 * n) < n)
    torch.testing.assert_close(tuple(found), tuple(train_heads(graph, 5, mean=0.4)))


def test_a_pair_that_a_batch_has_twice_is_masked_once(monkeypatch):
    """Where a batch goes on into the next epoch, the mean is still that of the questions that are not in it."""
    monkeypatch.setattr(head, "BATCH", 3)
    monkeypatch.setattr(head, "RATE", 0.0)  # heads stay the identity
    graph = rotated_graph()
    graph = graph._replace(labels=torch.stack([torch.arange(4), torch.zeros(4, dtype=torch.int64)], dim=1))
    real, twice = MessageGraph.prepare, 0
    for seed in range(8):
        seen: list[torch.Tensor] = []
        monkeypatch.setattr(MessageGraph, "prepare", lambda self, vectors, seen=seen: seen.append(vectors) or vectors)
        train_heads(graph, 2, mean=1.0, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        order = torch.cat([torch.randperm(4, generator=generator) for _ in range(2)])
        batch = set(order[3:6].tolist())
        twice += len(batch) < 3
        others = [row for row in range(4) if row not in batch]
        torch.testing.assert_close(seen[2][0], graph.queries[others].mean(0))
    monkeypatch.setattr(MessageGraph, "prepare", real)
    assert twice


def test_reciprocal_rank_counts_a_tie_against_the_query_and_cuts_at_ten():
    vectors = torch.tensor([[1.0], [1.0], [0.5]])
    assert reciprocal_ranks(vectors, torch.ones(2, 1), [[0], [0, 1]]).tolist() == [0.5, 1.0]
    assert reciprocal_ranks(torch.full((11, 1), torch.nan), torch.ones(1, 1), [[0]]).tolist() == [0.0]
    many = torch.arange(20.0)[:, None]
    assert reciprocal_ranks(many, torch.ones(2, 1), [[10], [9]]).tolist() == [0.1, 0.0]


def test_measuring_without_messages_is_the_dual_encoder():
    graph = rotated_graph()
    wanted = [[row] for row in range(40)]
    measured = Judged.of(graph, {}, graph.queries.numpy(), wanted).measure(Messages())
    assert measured.tolist() == reciprocal_ranks(graph.passages, graph.queries, wanted).tolist()


def test_a_rung_is_kept_where_it_gains_more_than_one_standard_error():
    noise = np.random.default_rng(0).normal(0, 0.1, 400)

    def measure(messages: Messages) -> np.ndarray:
        return 0.5 + 0.2 * (messages.mean == 0.3) + noise * (messages.mean > 0)

    found = climb(measure)
    assert found.messages == Messages(mean=0.3)
    assert found.p < 1e-3
    assert [rung.name for rung in found.rungs if rung.kept] == ["label mean"]


@pytest.mark.parametrize("gain", [0.5, 1 / 3, 0.1, 0.7])
def test_a_gain_of_one_question_keeps_no_rung(gain):
    """It equals its standard error; rounding must not decide."""

    def measure(messages: Messages) -> np.ndarray:
        return np.where(np.arange(50) == 7, 0.3 + gain * (messages.mean == 0.2), 0.3)

    assert not any(rung.kept for rung in climb(measure).rungs)


def test_what_harms_a_kind_of_question_is_not_kept_however_much_others_gain():
    """Of two weights of the mean the larger gains more, but the questions of a small kind lose by it."""
    kinds = np.repeat([0, 1], [200, 50])
    noise = np.random.default_rng(0).normal(0, 0.02, 250)

    def measure(messages: Messages) -> np.ndarray:
        others, small = {0.1: (0.05, 0.02), 0.2: (0.20, -0.10)}.get(messages.mean, (0.0, 0.0))
        return 0.5 + np.where(kinds == 0, others, small) + noise * bool(messages.mean)

    assert climb(measure, steps=(), parts=kinds).messages.mean == 0.1
    assert climb(measure, steps=()).messages.mean == 0.2

    def harmful(messages: Messages) -> np.ndarray:
        return 0.5 + np.where(kinds == 0, 0.2, -0.1) * bool(messages.mean) + noise * bool(messages.mean)

    found = climb(harmful, steps=(), parts=kinds)
    assert found.messages == Messages()
    assert not found.rungs[0].kept


def test_equal_measurements_keep_the_dual_encoder():
    found = climb(lambda messages: np.linspace(0, 1, 50))
    assert found.messages == Messages()
    assert found.p == 1.0


def test_gains_by_chance_are_seldom_significant():
    """Signs drawn at random: no setting is better than the dual-encoder in truth."""
    ps = []
    for seed in range(200):
        seen: dict[Messages, np.ndarray] = {Messages(): np.full(200, 0.5)}
        rng = np.random.default_rng(seed)

        def measure(messages: Messages, seen=seen, rng=rng) -> np.ndarray:
            return seen.setdefault(messages, 0.5 + rng.choice([-0.3, 0.0, 0.3], 200))

        ps.append(climb(measure).p)
    for level in (0.05, TrainSettings().evidence):
        assert np.mean(np.array(ps) <= level) <= level, level


def test_it_tries_what_the_baselines_of_the_same_form_try():
    tried = set()
    climb(lambda messages: tried.add(messages) or np.full(200, 0.5 + 0.1 * len(tried)))  # every rung is kept
    of_heads = [*CHOICES["linear-head"], *CHOICES["linear-heads-apart"][1:]]
    heads = [Messages(setting.steps, sides=setting.sides) for setting in of_heads]
    means = [Messages(mean=setting.mean) for setting in CHOICES["label-mean"] if setting.mean <= 0.5]
    both = [
        Messages(setting.steps, setting.mean, sides=setting.sides)
        for name in ("linear-head+label-mean", "linear-heads-apart+label-mean")
        for setting in CHOICES[name]
        if setting.mean <= 0.5 and setting.steps
    ]
    scalings = [Messages(scaling=setting.scaling) for setting in CHOICES["local-scaling"]]
    assert tried >= {*heads, *means, *both}
    assert {one.scaling for one in tried} == {one.scaling for one in scalings}
    assert {one.prior for one in tried} == {setting.prior for setting in CHOICES["label-prior"]}
    assert len(tried) <= ladder.MOST_SETTINGS


def test_a_prior_is_chosen_by_devs_own_questions_alone():
    """The first 100 gain by a lower prior; 300 cross-validated ones lose more."""
    noise = np.random.default_rng(0).normal(0, 0.1, 400)
    sign = np.where(np.arange(400) < 100, 1, -1)

    def measure(messages: Messages) -> np.ndarray:
        return 0.5 + 0.05 * sign * (messages.prior == -0.1) + noise * (messages != Messages())

    kept = [rung for rung in climb(measure, of_dev=100).rungs if rung.kept]
    assert [(rung.name, rung.messages.prior) for rung in kept] == [("prior", -0.1)]
    assert kept[0].gain > 0.03
    assert not any(rung.kept for rung in climb(measure).rungs)


def test_a_prior_comes_before_updates_and_is_chosen_again_after_them():
    noise = np.random.default_rng(0).normal(0, 0.1, 400)

    def of(prior: float, with_updates: float):
        def measure(messages: Messages) -> np.ndarray:
            gain = 0.06 * (messages.prior == prior) + with_updates * (messages.passes > 0) * (messages.prior != -0.3)
            return 0.5 + gain + noise * (messages != Messages())

        return [(rung.name, rung.messages.prior) for rung in climb(measure).rungs if rung.kept]

    # updates gain 0.05 where the prior does not do their work already
    assert of(-0.3, 0.05) == [("prior", -0.3)]
    assert of(-0.1, 0.05) == [("prior", -0.1), ("passage updates", -0.1)]

    def after(messages: Messages) -> np.ndarray:
        gain = 0.05 * (messages.passes > 0) + 0.05 * (messages.prior == 0.03) * (messages.passes > 0)
        return 0.5 + gain + noise * (messages != Messages())

    assert [(rung.name, rung.messages.prior) for rung in climb(after).rungs if rung.kept] == [
        ("passage updates", 0.0),
        ("prior, again", 0.03),
    ]


def test_local_scaling_is_kept_where_it_gains():
    noise = np.random.default_rng(0).normal(0, 0.1, 400)
    found = climb(lambda messages: 0.5 + 0.1 * (messages.scaling == 0.3) + noise * (messages != Messages()))
    assert found.messages == Messages(scaling=0.3)
    assert [rung.name for rung in found.rungs if rung.kept] == ["local scaling"]


@pytest.mark.parametrize("queries", [1, 2])
def test_very_few_questions_choose_without_an_error(queries: int):
    assert climb(lambda messages: np.full(queries, 0.5)).messages == Messages()


def test_heads_over_few_labels_take_fewer_steps(monkeypatch):
    assert [steps_over(labels, 300) for labels in (1, 164, 1024, 4096, 10**6)] == [5, 60, 150, 300, 300]
    assert steps_over(4, 0) == 0
    monkeypatch.setattr(ladder, "ENOUGH", 160)
    taught = torch.arange(40) < 10  # a label each
    assert head_steps(rotated_graph(), taught) == [25, 75, 225]


def test_updates_start_from_what_is_kept_and_from_its_head_alone_and_are_not_searched_around():
    tried = set()

    def measure(messages):
        tried.add(messages)
        gain = 0.2 * (messages.mean == 0.2) + 0.3 * (messages.passes == 4 and messages.update_size == 0.05)
        return np.full(200, 0.3) + gain + np.tile([0.01, -0.01], 100)

    found = climb(measure)
    assert (found.messages.mean, found.messages.passes, found.messages.update_size) == (0.2, 4, 0.05)
    updates = {messages for messages in tried if messages.passes}
    starts = {messages._replace(passes=0, update_size=0.0) for messages in updates if not messages.prior}
    assert {(start.mean, start.scaling) for start in starts if not start.scaling} == {(0.2, 0.0), (0.0, 0.0)}
    assert {(messages.passes, messages.update_size) for messages in updates} == {*product(PASSES, UPDATE_SIZES)}
    names = [rung.name for rung in found.rungs]
    assert "label mean, again" not in names
    assert names[-1] == "local scaling, again"
    none = climb(measure, update_sizes=())
    assert not none.messages.passes
    assert "label mean, again" in [rung.name for rung in none.rungs]


def test_a_gain_in_log_rank_or_in_rr_keeps_a_rung_unless_the_other_loses():
    noise = np.random.default_rng(0).normal(0, 0.1, 400)

    def kept(reciprocal: float, rank: float) -> bool:
        found = climb(
            lambda messages: 0.5 + noise * (messages.mean > 0) + reciprocal * (messages.mean == 0.2),
            steps=(),
            priors=(0.0,),
            scalings=(0.0,),
            by_rank=lambda messages: -3 + 10 * noise[::-1] * (messages.mean > 0) + rank * (messages.mean == 0.2),
        )
        assert found.rungs[0].messages.mean == 0.2 or not found.rungs[0].kept
        return found.rungs[0].kept

    assert kept(0.1, 0.0)
    assert kept(0.0, 1.0)
    assert not kept(0.0, 0.0)
    assert not kept(-0.1, 1.0)
    assert not kept(0.1, -1.0)


def test_half_the_rank_is_a_gain_of_one():
    assert log_ranks(np.array([1, 2, 8, 4])).tolist() == [0, -1, -3, -2]
    assert reciprocal(np.array([1, 2, 10, 11])).tolist() == [1, 0.5, 0.1, 0]
    vectors, queries = torch.arange(20.0)[:, None], torch.ones(2, 1)
    assert first_ranks(vectors, queries, [[10, 3], [19]]).tolist() == [10, 1]
    assert first_ranks(vectors, queries, [[10], [5]], [[10, 12, 3], None]).tolist() == [2, 15]


def test_the_best_setting_is_that_of_both_together_each_in_its_spread():
    add = together(np.array([0.0, 1.0]), np.array([-8.0, 0.0]))
    assert add(np.array([0.5]), np.array([-4.0])).tolist() == [0.5 / 0.5 - 4.0 / 4.0]
    assert together(np.zeros(2), np.zeros(2))(np.ones(2), np.ones(2)).tolist() == [2, 2]
