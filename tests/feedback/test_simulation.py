import json

import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.errors import InputError
from gnnretrieval.feedback import SimulationSettings, simulate_log
from gnnretrieval.feedback.cleaning import question_key


def simulated(dataset, path, **settings):
    report = simulate_log(dataset, path, SimulationSettings(impressions=400, shown=5, **settings))
    return report, [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def dataset(tiny_dataset):
    return Dataset.open(tiny_dataset)


def test_the_same_seed_gives_the_same_bytes(dataset, tmp_path):
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        simulated(dataset, tmp_path / name, seed=seed)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes() != (tmp_path / "other").read_bytes()


def test_the_report_is_the_truth(dataset, tmp_path):
    report, log = simulated(dataset, tmp_path / "log", wrong_clicks=0.3, seed=1)
    relevant = {}
    for split in dataset.splits:
        for query in dataset.queries_of(split):
            its = dataset.split(split)[query.id]
            relevant.setdefault(question_key(query.text), set()).update(p for p, value in its.items() if value > 0)
    clicks = [(question_key(one["query"]), passage) for one in log for passage in one["clicked"]]
    wrong = sum(passage not in relevant[question] for question, passage in clicks)
    assert (report.impressions, report.clicks, report.wrong_clicks) == (len(log), len(clicks), wrong)
    assert wrong / len(clicks) == pytest.approx(0.3, abs=0.08)
    assert report.propensities == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    assert len({one["session"] for one in log}) == report.sessions


def test_questions_come_in_the_time_of_their_split(dataset, tmp_path):
    report, log = simulated(dataset, tmp_path / "log")
    assert [one["time"] for one in log] == sorted(one["time"] for one in log)
    late = {question_key(query.text) for query in dataset.queries_of("test")}
    assert {question_key(one["query"]) in late for one in log if one["time"] >= report.test_from} == {True}
    assert {question_key(one["query"]) in late for one in log if one["time"] < report.test_from} == {False}


def test_with_wrong_clicks_alone_relevance_does_not_matter(dataset, tmp_path):
    report, _ = simulated(dataset, tmp_path / "log", wrong_clicks=1.0)
    assert report.attraction == report.wrong_attraction > 0


def test_a_ranking_may_be_given_and_no_variation_keeps_it(dataset, tmp_path):
    rankings = {query: ["p01", "p02", "p03"] for query in dataset.query_ids}
    simulate_log(dataset, tmp_path / "log", SimulationSettings(impressions=20, variation=0), rankings=rankings)
    lines = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert {tuple(json.loads(line)["shown"]) for line in lines} == {("p01", "p02", "p03")}


def test_more_wrong_clicks_than_there_are_passages_are_refused(dataset, tmp_path):
    with pytest.raises(InputError, match="too high"):
        simulate_log(dataset, tmp_path / "log", SimulationSettings(shown=2, wrong_clicks=0.98))
    with pytest.raises(InputError, match="no question"):
        simulate_log(dataset, tmp_path / "log", rankings={})
    assert not (tmp_path / "log").exists()
