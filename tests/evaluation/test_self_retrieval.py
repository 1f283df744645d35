import json

import pytest

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.evaluation import leave_out_self
from gnnretrieval.evaluation.self_retrieval import queries_that_are_passages, queries_with_own_id, without_self

ARGUMENT = "Vegetarianism helps the environment, for farming it needs less land."
RUN = {
    "arg-1": [ScoredPassage("arg-1", 2.0), ScoredPassage("arg-2", 1.0)],
    "17": [ScoredPassage("17", 3.0), ScoredPassage("170", 2.0)],
    "18": [ScoredPassage("170", 1.0), ScoredPassage("180", 1.0)],
}


@pytest.fixture
def directory(tmp_path):
    passages = {"arg-1": ARGUMENT.upper() + " ", "17": "Numbered alike by chance.", "170": "what is it", "18": "x"}
    queries = {"arg-1": ARGUMENT, "17": "what is it", "18": "x"}
    for name, texts in (("corpus", passages), ("queries", queries)):
        lines = [json.dumps({"_id": id_, "title": "debate", "text": text}) + "\n" for id_, text in texts.items()]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    return tmp_path


def test_a_query_is_a_passage_where_id_and_text_are_the_same(directory):
    found = queries_with_own_id([RUN], RUN)
    assert found == {"arg-1", "17"}
    assert queries_that_are_passages(directory, found, len(RUN)) == {"arg-1"}


def test_a_passage_that_only_mentions_the_query_is_another(directory):
    (directory / "corpus.jsonl").write_text(json.dumps({"_id": "17", "text": "what is it " * 9}) + "\n")
    assert queries_that_are_passages(directory, {"17"}, 1) == set()


def test_of_all_runs_the_same_queries_are_left_out(directory):
    runs = {"one": RUN, "other": {"arg-1": RUN["arg-1"][::-1]}, "third": {"17": RUN["17"]}}
    left, count = leave_out_self(runs, directory, list(RUN))
    assert count == 1
    assert left["one"]["arg-1"] == left["other"]["arg-1"] == [("arg-2", 1.0)]
    assert left["one"]["17"] == left["third"]["17"] == RUN["17"]
    left, count = leave_out_self(runs, directory, list(RUN), by_id=True)
    assert count == 2
    assert left["third"]["17"] == [("170", 2.0)]


def test_few_coincidences_are_not_looked_at(directory):
    assert queries_that_are_passages(directory, {"arg-1"}, 100) == set()
    assert queries_that_are_passages(directory, {"arg-1"}, 99) == {"arg-1"}


def test_the_query_is_left_out_of_its_own_ranking_alone():
    left = without_self(RUN, ["arg-1", "18", "absent"])
    assert left["arg-1"] == [("arg-2", 1.0)]
    assert left["17"] == RUN["17"]
    assert left["18"] == RUN["18"]
    assert len(RUN["arg-1"]) == 2
