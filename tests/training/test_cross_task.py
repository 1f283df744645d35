import math

import pytest
import torch

from gnnretrieval.mining.examples import Candidate, Example
from gnnretrieval.training.encoder.cross_task import CrossEncoderTask
from gnnretrieval.training.encoder.pair_data import Texts
from gnnretrieval.training.encoder.settings import CrossEncoderTrainSettings
from gnnretrieval.training.encoder.towers import Item

TEXTS = Texts({"q1": "one", "q2": "two"}, {"a": "A", "b": "B", "n": "N", "m": "M"})
EXAMPLES = [
    Example("q1", (Candidate("a", "label"),), (Candidate("n", "bm25"), Candidate("m", "bm25"))),
    Example("q2", (Candidate("b", "label"),), (Candidate("n", "bm25"),)),
    Example("q2", (Candidate("b", "label"),), ()),
]


class Pairs:
    """Stands for a tower: remembers the pairs it was asked for."""

    def items(self, queries, passages):
        self.asked = list(zip(queries, passages, strict=True))
        return [Item("pair", (1,)) for _ in queries]


def task(loss):
    return CrossEncoderTask(EXAMPLES, EXAMPLES[:1], TEXTS, Pairs(), CrossEncoderTrainSettings(loss=loss, negatives=2))


def test_a_query_without_a_negative_is_not_learned_from():
    assert len(task("binary").examples) == 2


def test_the_binary_loss_by_hand():
    made = task("binary")
    batch = made.batch(0, 0)
    labels = [(query, passage) in {("one", "A"), ("two", "B")} for query, passage in made.tower.asked]
    assert sum(labels) == 2
    logits = torch.arange(5.0)[:, None] - 2
    expected = [
        math.log1p(math.exp(-logit if label else logit))
        for logit, label in zip(logits[:, 0].tolist(), labels, strict=True)
    ]
    assert float(batch.loss(logits)) == pytest.approx(sum(expected) / 5, rel=1e-5)


def test_the_listwise_loss_by_hand():
    made = task("listwise")
    batch = made.batch(0, 0)
    logits = [0.3, -1.0, 2.0, 0.5, 1.5]
    queries = [query for query, _ in made.tower.asked]
    losses, start = [], 0
    for query in dict.fromkeys(queries):
        own = logits[start : start + queries.count(query)]
        losses.append(-own[0] + math.log(sum(map(math.exp, own))))
        start += len(own)
    assert float(batch.loss(torch.tensor(logits)[:, None])) == pytest.approx(sum(losses) / 2, rel=1e-5)
