import pytest

from gnnretrieval.mining.candidates import open_texts
from gnnretrieval.mining.examples import Candidate, Example
from gnnretrieval.mining.judge import JudgeSettings
from gnnretrieval.mining.report import MiningReport
from gnnretrieval.mining.tally import Tally
from gnnretrieval.storage.places import scratch

A = Candidate("a", "label")


@pytest.fixture
def texts(dataset, tmp_path):
    scratch(tmp_path / "half").mkdir(parents=True)
    with open_texts(dataset, tmp_path / "half") as store:
        yield store


def test_by_hand_histogram_shares_and_quantiles(texts):
    tally = Tally("denoise", 3, JudgeSettings(cross_encoder="any"))
    for value in (0.0, 0.05, 0.1, 0.95, 1.0):
        tally.judged(value)
    tally.keep(Example("q1", (A,), tuple(Candidate(id_, "bm25", 1, s) for id_, s in zip("cdef", (1, 2, 3, 5)))))  # noqa: B905
    report = tally.report(texts)
    assert report.probabilities.histogram == [2, 1, 0, 0, 0, 0, 0, 0, 0, 2]
    assert report.probabilities.above.share == pytest.approx(0.4)
    assert report.probabilities.below.share == pytest.approx(0.4)
    assert report.scores == {"least": 1.0, "25%": 1.75, "median": 2.5, "75%": 3.5, "most": 5.0}
    assert report.labels is None


def test_three_examples_are_shown_from_the_first_to_the_last(texts):
    tally = Tally("denoise", 6, JudgeSettings(cross_encoder="any"))
    for query in ("q1", "q2", "q3", "u1", "u2"):
        found = (Candidate("c", "cross-encoder", 4, 1.0, 0.91), Candidate("d", "cross-encoder", 2, 2.0, 0.99))
        tally.keep(Example(query, (A, *found), (Candidate("e", "bm25", 7, 0.5),)))
    shown = tally.report(texts).as_json()["shown"]
    assert [one["query"] for one in shown["positives"]] == ["q1", "q3", "u2"]
    assert shown["positives"][0] == {
        "query": "q1",
        "text": "red apple",
        "passage": "d",
        "excerpt": "red apple pie recipe",
        "rank": 2,
        "score": 2.0,
        "probability": 0.99,
    }
    assert shown["negatives"][2]["passage"] == "e"


def test_the_text_says_what_was_kept_dropped_and_why(texts):
    tally = Tally("denoise", 2, JudgeSettings(cross_encoder="any"))
    tally.candidates = 1200
    tally.left_out["without a positive"] = 1
    tally.dropped["between the thresholds"] = 1198
    tally.dropped["never"] += 0
    for value in (0.01, 0.02, 0.95):
        tally.judged(value)
    tally.judged(0.7, label=True)
    tally.keep(
        Example("q1", (A, Candidate("d", "cross-encoder", 2, 2.0, 0.95)), (Candidate("c", "bm25", 1, 3.5, 0.01),))
    )
    lines = tally.report(texts).to_text().splitlines()
    for line in (
        "queries: 2, of which 1 are kept",
        "  left out: 1 without a positive",
        "candidates: 1,200, of which 1 are negatives",
        "  dropped: 1,198 between the thresholds",
        "positives: 1 by label, 1 by cross-encoder",
        "probabilities of 3 candidates: 33.3% above 0.9, 66.7% below 0.1",
        f"  0.0-0.1 {'#' * 40} 2",
        f"  0.9-1.0 {'#' * 20} 1",
        "probabilities of 1 labelled positives: 0.0% above 0.9, 0.0% below 0.1",
        "  red apple",
        "    d (rank 2, probability 0.950): red apple pie recipe",
        "    c (rank 1, probability 0.010): red brick wall",
    ):
        assert line in lines
    assert not any("never" in line for line in lines)


def test_of_nothing_there_is_a_report_as_well(texts):
    report = Tally("pseudo-label", 0, JudgeSettings(cross_encoder="any")).report(texts)
    assert report.scores is report.probabilities is None
    assert report.to_text().splitlines() == [
        "queries: 0, of which 0 are kept",
        "candidates: 0, of which 0 are negatives",
        "positives: none",
    ]


def test_a_report_is_read_as_it_was_written_and_a_newer_one_may_have_more(texts):
    tally = Tally("denoise", 3, JudgeSettings(cross_encoder="any"))
    tally.judged(0.5)
    tally.keep(Example("q1", (A,), (Candidate("c", "bm25", 1, 3.5),)))
    report = tally.report(texts)
    values = report.as_json()
    assert list(values["queries"]) == ["in", "kept", "left_out"]
    assert list(values["shown"]["negatives"][0]) == ["query", "text", "passage", "excerpt", "rank", "score"]
    newer = values | {"more": 1, "queries": values["queries"] | {"more": 2}}
    assert MiningReport.model_validate(newer) == report
