import math

import numpy as np
import pytest
import torch

from gnnretrieval.data.records import Passage
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.mining.examples import Candidate, Example
from gnnretrieval.training.encoder.reader_task import ReaderTask, ReaderTexts, ReaderTower, SpanLoss
from gnnretrieval.training.encoder.settings import ReaderTrainSettings

LONG = " ".join(["namu", "rili", "ruga", "rada", "buse", "tuto"] * 12) + " tasu make."
TEXTS = ReaderTexts(
    {"q1": "who is make?", "q2": "who is teva?", "q3": "who?"},
    {
        "a": Passage("a", "rada", "Tasu rada ruga, and tasu."),
        "b": Passage("b", "", LONG),
        "n": Passage("n", "", "tuto tasu rili."),
    },
    {"q1": ["tasu", "rada ruga"], "q2": ["tasu make"], "q3": ["nowhere"]},
)


def example(query, positive):
    return Example(query, (Candidate(positive, "label"),), (Candidate("n", "bm25", 1),))


EXAMPLES = [example("q1", "a"), example("q2", "b"), example("q3", "a")]
SETTINGS = ReaderTrainSettings(max_tokens=32, negatives=1, batch_size=2, dev_passages=2)


@pytest.fixture(scope="module")
def tower(tiny_checkpoint):
    torch.manual_seed(0)
    return ReaderTower(find_checkpoint(str(tiny_checkpoint)), torch.device("cpu"), 32, 0.0)


def test_the_loss_is_that_of_the_answers_among_all_spans_of_a_query_by_hand():
    logits = torch.tensor([[0.3, -1.0], [2.0, 0.5], [1.5, 0.0], [0.1, 0.2]])
    loss = SpanLoss(torch.tensor([0, 0, 0, 1]), torch.tensor([[0, 1, 1], [0, 0, 2], [1, 3, 3]]))
    first = sum(math.exp(logits[i, 0]) * math.exp(logits[j, 1]) for i, j in ((1, 1), (0, 2))) / (
        sum(map(math.exp, logits[:3, 0])) * sum(map(math.exp, logits[:3, 1]))
    )
    assert float(loss(logits)) == pytest.approx((-math.log(first) - math.log(1.0)) / 2, rel=1e-5)


def test_a_batch_without_a_span_has_no_gradient():
    rows = torch.randn(4, 2, requires_grad=True)
    SpanLoss(torch.zeros(4, dtype=torch.long), torch.zeros(0, 3, dtype=torch.long))(rows).backward()
    assert not rows.grad.any()


def test_a_batch_marks_the_answers_in_the_positive_and_none_in_a_negative(tower):
    task = ReaderTask(EXAMPLES, EXAMPLES[:1], TEXTS, tower, SETTINGS)
    batch = task.batch(0, 0)
    rows = [(item.ids[place], item.ids[place : place + 2]) for item in batch.items for place, _ in item.spans]
    assert len(rows) == len(batch.loss.owners)
    words = tower.tokenizer.convert_ids_to_tokens
    said = {
        (int(query), " ".join(words([rows[row][0] for row in range(first, last + 1)])))
        for query, first, last in batch.loss.spans
    }
    assert {text for _, text in said} == {"tasu", "rada ruga", "tasu make"}
    of_first = [query for query, text in said if text == "rada ruga"]
    assert {query for query, text in said if text == "tasu"} == set(of_first)  # and not the negative's of q2
    assert sum(int(query) == of_first[0] for query, _, _ in batch.loss.spans) == 3  # tasu twice, and rada ruga


def test_an_answer_that_no_window_holds_whole_is_none_of_it(tower):
    task = ReaderTask(EXAMPLES, EXAMPLES[:1], TEXTS, tower, SETTINGS)
    windows = task._windows([("q2", "b")])
    found = [task._token_spans(window, "q2", "b") for window in windows]
    assert len(windows) > 2
    for window, spans in zip(windows, found, strict=True):
        inside = window.characters[0, 0] <= LONG.index("tasu make") < window.characters[-1, 1]
        assert bool(spans) == bool(inside and window.characters[-1, 1] >= len(LONG) - 1)


def test_queries_without_an_answer_in_a_relevant_passage_are_left_out(tower):
    task = ReaderTask(EXAMPLES, EXAMPLES[:1], TEXTS, tower, SETTINGS)
    assert [one.query for one in task.examples] == ["q1", "q2"]
    assert task.without_answer == 1
    with pytest.raises(GnnRetrievalError, match=r"no training query has an answer .* in the text of a rel"):
        ReaderTask(EXAMPLES[2:], EXAMPLES[:1], TEXTS, tower, SETTINGS)
    with pytest.raises(GnnRetrievalError, match="no dev query has answers"):
        ReaderTask(EXAMPLES, EXAMPLES[:1], TEXTS._replace(answers={"q2": ["tasu make"]}), tower, SETTINGS)


def test_dev_measures_what_the_reader_says_of_the_passages(tower, monkeypatch):
    task = ReaderTask(EXAMPLES, EXAMPLES[:2], TEXTS, tower, SETTINGS)
    wanted = set(tower.tokenizer.convert_tokens_to_ids(["rada", "ruga"]))

    def rows(items):
        """A reader that is sure of the words rada and ruga in this order."""
        found = []
        for item in items:
            ids = [item.ids[place] for place, _ in item.spans]
            first, last = tower.tokenizer.convert_tokens_to_ids(["rada", "ruga"])
            is_answer = {*ids} >= wanted and len(ids) < 12
            found += [[9.0 * (one == first and is_answer), 9.0 * (one == last and is_answer)] for one in ids]
        return torch.tensor(found)

    monkeypatch.setattr(tower, "rows", rows)
    measures = task.measure({})
    assert measures["EM"] == 0.5
    assert list(measures) == ["EM", "F1"]


def test_rows_are_the_model_s_logits_of_the_text(tower):
    windows = tower.tokens.windows([TEXTS.queries["q1"]] * 2, [TEXTS.passages["a"], TEXTS.passages["n"]])
    items = tower.items(windows)
    tower.module.eval()
    with torch.no_grad():
        together = tower.rows(items)
        made = [tower.module(torch.tensor([item.ids]), token_type_ids=torch.tensor([item.types])) for item in items]
    alone = torch.cat(
        [
            torch.stack([one.start_logits[0], one.end_logits[0]], -1)[[place for place, _ in item.spans]]
            for item, one in zip(items, made, strict=True)
        ]
    )
    np.testing.assert_allclose(together.numpy(), alone.numpy(), atol=1e-5)
