import json

import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.data.records import Passage
from gnnretrieval.encoders.reader import Reading
from gnnretrieval.errors import InputError
from gnnretrieval.evaluation import answer_values, answered_queries, choose_weight
from gnnretrieval.index.answering import Answer, ReadPassages


def said(text):
    return Answer(text, "p", 1, 0, len(text), 1.0, 0.0)


def test_a_question_without_a_prediction_counts_zero():
    gold = {"q1": ["the oil"], "q2": ["oil", "war"], "q3": ["war"]}
    values = answer_values({"q1": said("Oil"), "q2": said("oil war"), "other": said("war")}, gold)
    assert values["EM"] == {"q1": 1.0, "q2": 0.0, "q3": 0.0}
    assert values["F1"] == pytest.approx({"q1": 1.0, "q2": 2 / 3, "q3": 0.0})
    assert answer_values({"q3": None}, {"q3": ["war"]})["EM"] == {"q3": 0.0}


def read(first, second, margin):
    """Two passages with these answers; the second one's span is more probable by ``margin``."""
    passages = [Passage(id_, "", text) for id_, text in (("p1", first), ("p2", second))]
    return ReadPassages(
        passages, [2.0, 1.0], [Reading(0, len(first), 0.0, 1, 1), Reading(0, len(second), margin, 1, 1)]
    )


def test_dev_chooses_the_smallest_of_the_best_weights():
    reads = {"q1": read("oil", "war", 0.7), "q2": read("war", "oil", 5.0)}
    gold = {"q1": ["oil"], "q2": ["oil"]}
    chosen = choose_weight(reads, gold)
    assert chosen.weight == 1.0  # 0.5 has q1 wrong, and 8 q2
    assert [chosen.measures[weight]["EM"] for weight in (0.0, 1.0, 2.0, 8.0)] == [0.5, 1.0, 1.0, 0.5]


def test_f1_decides_between_weights_of_equal_exact_match():
    assert choose_weight({"q": read("oil war", "peace", 0.7)}, {"q": ["oil"]}).weight == 1.0


def test_only_queries_with_answers_are_asked(answered_dataset, tiny_dataset, tmp_path):
    found = answered_queries(Dataset.open(answered_dataset), "test")
    queries = [json.loads(line) for line in (answered_dataset / "queries.jsonl").read_text().splitlines()]
    assert found == {one["_id"]: one["metadata"]["answers"] for one in queries if one["_id"].startswith("test")}
    with pytest.raises(InputError, match=r"no query of split 'dev' has answers, and exact match needs them"):
        answered_queries(Dataset.open(tiny_dataset), "dev")
