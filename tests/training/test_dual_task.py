import numpy as np
import pytest
import torch

from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.mining.examples import Candidate, Example
from gnnretrieval.training.encoder.dual_task import DualEncoderTask
from gnnretrieval.training.encoder.pair_data import Texts
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings
from gnnretrieval.training.encoder.towers import Item

TEXTS = Texts({"q1": "one", "q2": "two"}, {"a": "A", "b": "B", "n": "N", "twin": "a."})
SIMILARITY = Similarity(normalize=True, scale=3.0)


class Words:
    """Stands for a tower: a text is its length in tokens."""

    def items(self, tower, texts):
        return [Item(tower, (1,) * len(text)) for text in texts]


def task(loss="contrastive", probability=None, negatives=("n",), **settings):
    examples = [
        Example(
            query,
            (Candidate(positive, "label", probability=probability),),
            tuple(Candidate(one, "bm25", probability=None if probability is None else 0.2) for one in negatives),
        )
        for query, positive in (("q1", "a"), ("q2", "b"))
    ]
    towers = {"query": Words(), "passage": Words()}
    parsed = DualEncoderTrainSettings(loss=loss, **settings)
    return DualEncoderTask(examples, TEXTS, towers, SIMILARITY, parsed, None)


def rows(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(5, 4, generator=generator), dim=-1).requires_grad_()


def in_order(made, batch):
    """The batch's queries and passages, by what its loss was given."""
    return [one.query for one in batch.loss.drawn], batch.loss.passages


def test_a_batch_is_its_queries_and_each_of_its_passages_once():
    batch = task().batch(0, 0)
    queries, passages = in_order(task(), batch)
    assert sorted(queries) == ["q1", "q2"]
    assert sorted(passages) == ["a", "b", "n"]  # n is a negative of both
    assert [item.tower for item in batch.items] == ["query"] * 2 + ["passage"] * 3


def test_the_contrastive_loss_of_a_batch_by_hand():
    batch = task().batch(0, 0)
    vectors = rows().detach().double()
    queries, passages = in_order(None, batch)
    positive = {"q1": "a", "q2": "b"}
    expected = 0.0
    for number, query in enumerate(queries):
        scores = (3.0 * vectors[2:] @ vectors[number]).numpy()
        expected -= scores[passages.index(positive[query])] - np.log(np.exp(scores).sum())
    assert float(batch.loss(rows()).detach()) == pytest.approx(expected / 2, rel=1e-5)


def test_the_text_of_a_positive_under_another_id_is_left_out():
    batch = task(negatives=("twin",), hard_negatives=1).batch(0, 0)
    queries, passages = in_order(None, batch)
    relevant = dict(zip(queries, batch.loss.relevant.tolist(), strict=True))
    assert relevant["q1"][passages.index("twin")]
    assert not relevant["q2"][passages.index("twin")]


def test_pairs_loss_by_hand():
    batch = task(loss="pair", alpha=0.3).batch(0, 0)
    vectors = rows().detach().double().numpy()
    queries, passages = in_order(None, batch)
    positive = {"q1": "a", "q2": "b"}
    expected = 0.0
    for number, query in enumerate(queries):
        column = passages.index(positive[query])
        to_query, between = 3 * vectors[2:] @ vectors[number], 3 * vectors[2:] @ vectors[2 + column]
        others = [place for place in range(3) if place != column]
        own = np.exp(to_query[column])
        query_centric = -np.log(own / (own + np.exp(to_query[others]).sum()))
        passage_centric = -np.log(own / (own + np.exp(between[others]).sum()))
        expected += 0.7 * query_centric + 0.3 * passage_centric
    assert float(batch.loss(rows()).detach()) == pytest.approx(expected / 2, rel=1e-5)


def test_distillation_compares_a_querys_own_passages_with_the_cross_encoder():
    batch = task(loss="margin-mse", probability=0.9).batch(0, 0)
    vectors = rows().detach().double().numpy()
    queries, passages = in_order(None, batch)
    margin = np.log(0.9 / 0.1) - np.log(0.2 / 0.8)
    expected = []
    for number, query in enumerate(queries):
        own, negative = passages.index({"q1": "a", "q2": "b"}[query]), passages.index("n")
        student = 3 * (vectors[2 + own] - vectors[2 + negative]) @ vectors[number]
        expected.append((student - margin) ** 2)
    assert float(batch.loss(rows()).detach()) == pytest.approx(np.mean(expected), rel=1e-4)
    teacher = np.array([np.log(9), np.log(0.25)])
    wanted = np.exp(teacher) / np.exp(teacher).sum()
    by_kl = task(loss="kl", probability=0.9).batch(0, 0)
    queries, passages = in_order(None, by_kl)
    divergences = []
    for number, query in enumerate(queries):
        places = [passages.index({"q1": "a", "q2": "b"}[query]), passages.index("n")]
        scores = 3 * vectors[[2 + place for place in places]] @ vectors[number]
        student = np.exp(scores) / np.exp(scores).sum()
        divergences.append((wanted * np.log(wanted / student)).sum())
    assert float(by_kl.loss(rows()).detach()) == pytest.approx(np.mean(divergences), rel=1e-4)


def test_distillation_without_probabilities_says_what_makes_them():
    with pytest.raises(GnnRetrievalError, match="query 'q1' has none for passage 'a': give examples made by"):
        task(loss="kl")
    with pytest.raises(InputError, match="give at least 1 in hard_negatives"):
        DualEncoderTrainSettings.parse({"loss": "kl", "hard_negatives": 0})


def test_nothing_to_learn_from_is_said():
    with pytest.raises(GnnRetrievalError, match="no query has a positive passage"):
        DualEncoderTask([], TEXTS, {}, SIMILARITY, DualEncoderTrainSettings(), None)
