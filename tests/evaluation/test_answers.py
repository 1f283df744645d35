import json

import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.errors import InputError
from gnnretrieval.evaluation import compare, find_answers, parse_measures, per_query

PASSAGES = {
    "p1": ("Irish Sea", "a sea between islands"),
    "p2": ("", "The Irish Sea, they say."),
    "p3": ("", "seven episodes"),
    "p4": ("", "born in LongIsland"),
}
QUERIES = {"sea": ["Irish Sea"], "episodes": ["7", "Seven"], "born": [r"long\s?island"], "unanswered": None}


@pytest.fixture
def dataset(tmp_path):
    with (tmp_path / "corpus.jsonl").open("w") as file:
        for id_, (title, text) in PASSAGES.items():
            file.write(json.dumps({"_id": id_, "title": title, "text": text}) + "\n")
    with (tmp_path / "queries.jsonl").open("w") as file:
        for id_, answers in QUERIES.items():
            data = {"metadata": {"answers": answers}} if answers else {}
            file.write(json.dumps({"_id": id_, "text": "?", **data}) + "\n")
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("".join(f"{query}\tp1\t1\n" for query in QUERIES))
    return Dataset.open(tmp_path)


def run(**rankings):
    return {query: [ScoredPassage(id_, -float(n)) for n, id_ in enumerate(ids)] for query, ids in rankings.items()}


FIRST = run(sea=["p1", "p3", "p2"], episodes=["p4", "p3"], born=["p4"], unanswered=["p1"])
SECOND = run(sea=["p2"], episodes=["p4"])


def test_the_share_of_questions_with_an_answer_among_the_first_passages(dataset):
    measures = parse_measures(["Answer@1", "Answer@2", "Answer@3", "R@1"])
    answers = find_answers(dataset, [FIRST], measures, list(QUERIES))
    values = per_query(dataset.split("test"), FIRST, measures, answers)
    # The title is no part of the text, as in DPR; a pattern is no string; a question without answers counts zero.
    assert values["Answer@1"] == {"sea": 0.0, "episodes": 0.0, "born": 0.0, "unanswered": 0.0}
    assert values["Answer@2"] == {"sea": 0.0, "episodes": 1.0, "born": 0.0, "unanswered": 0.0}
    assert values["Answer@3"] == {"sea": 1.0, "episodes": 1.0, "born": 0.0, "unanswered": 0.0}
    assert values["R@1"]["sea"] == 1.0


def test_answers_may_be_patterns(dataset):
    measures = parse_measures(["Answer(match='regex')@1", "Answer@3"])
    answers = find_answers(dataset, [FIRST], measures, list(QUERIES))
    values = per_query(dataset.split("test"), FIRST, measures, answers)
    assert values["Answer(match='regex')@1"]["born"] == 1.0
    assert values["Answer@3"]["born"] == 0.0


def test_systems_are_compared_by_it_like_by_any_measure(dataset):
    measures = parse_measures(["Answer@3", "RR@10"])
    runs = {"first": FIRST, "second": SECOND}
    answers = find_answers(dataset, runs.values(), measures, list(QUERIES))
    table = compare(dataset.split("test"), runs, "second", measures, "test", {}, answers=answers)
    means = {system.name: system.measures["Answer@3"] for system in table.systems}
    assert means == {"first": 0.5, "second": 0.25}
    test = table.test("first", "Answer@3")
    assert (test.wins, test.ties, test.losses, test.difference) == (1, 3, 0, 0.25)


def test_questions_without_judgements_are_measured_by_answers_alone(dataset):
    measures = parse_measures(["Answer@2"])
    unjudged = {query: {} for query in QUERIES}
    answers = find_answers(dataset, [FIRST], measures, list(QUERIES))
    assert sum(per_query(unjudged, FIRST, measures, answers)["Answer@2"].values()) == 1
    with pytest.raises(InputError, match="judge no query"):
        per_query(unjudged, FIRST, ["Answer@2", "RR@10"], answers)


def test_without_answers_it_cannot_be_measured(dataset):
    with pytest.raises(InputError, match="Answer@2 needs the answers and texts"):
        per_query(dataset.split("test"), FIRST, ["Answer@2"])
    with pytest.raises(InputError, match=r"queries.jsonl: none of these queries has answers"):
        find_answers(dataset, [FIRST], parse_measures(["Answer@2"]), ["unanswered"])
    assert find_answers(dataset, [FIRST], parse_measures(["RR"]), ["unanswered"]) == {}
