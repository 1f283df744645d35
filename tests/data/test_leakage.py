import pytest

from gnnretrieval.data import Dataset, Passage, Qrel, Query, inspect_dataset
from gnnretrieval.data.beir import write_passages, write_qrels, write_queries
from gnnretrieval.data.inspection.quantiles import Spread

LONG = "where did the old man with the grey beard go after he had sold the last of his three cows"


@pytest.fixture
def leaking(tmp_path) -> Dataset:
    queries = [
        Query("train-1", "who was it?"),
        Query("train-2", LONG),
        Query("dev-1", "Who was it"),
        Query("test-1", "WHO was it"),
        Query("test-2", LONG + " today"),
        Query("test-3", "a question that nobody else has asked before"),
        Query("both", "asked in dev and test"),
    ]
    write_passages(tmp_path / "corpus.jsonl", ((Passage(f"p{n}", "", f"passage number {n}"), {}) for n in range(6)))
    write_queries(tmp_path / "queries.jsonl", ((query, {}) for query in queries))
    splits = {
        "test": [("test-1", 0, 1), ("test-2", 1, 2), ("test-3", 5, 1), ("test-3", 4, 0), ("both", 3, 1)],
        "dev": [("dev-1", 2, -1), ("both", 3, 1), ("both", 2, 0)],
        "train": [("train-1", 0, 1), ("train-2", 1, 1), ("train-2", 0, 1)],
    }
    for name, judged in splits.items():
        write_qrels(tmp_path / "qrels" / f"{name}.tsv", [Qrel(q, f"p{p}", grade) for q, p, grade in judged])
    return Dataset.open(tmp_path)


def test_leakage_between_any_two_splits_by_hand(leaking):
    leakage = inspect_dataset(leaking).leakage
    names = ("split", "of", "queries", "same_id", "same_text", "near", "relevant_passages", "shared_passages", "share")
    assert [tuple(getattr(pair, name) for name in names) for pair in leakage] == [
        ("dev", "train", 2, 0, 1, 0, 1, 0, 0.0),
        ("test", "train", 4, 0, 1, 1, 4, 2, 0.5),
        ("test", "dev", 4, 1, 2, 0, 4, 1, 0.25),
    ]


def test_examples_name_both_questions_the_split_s_own_first(leaking):
    of_train, of_dev = inspect_dataset(leaking).leakage[1:]
    same, near = of_train.examples
    assert same.similarity == 1.0
    assert [(side.id, side.text) for side in same.pair] == [("test-1", "WHO was it"), ("train-1", "who was it?")]
    assert 0.85 <= near.similarity < 1
    assert [side.id for side in near.pair] == ["test-2", "train-2"]
    # A query that is in both is no example of two that ask the same.
    assert [[side.id for side in example.pair] for example in of_dev.examples] == [["test-1", "dev-1"]]
    assert all(not pair.examples for pair in inspect_dataset(leaking, most=0).leakage)


def test_leakage_is_warned_of_with_what_to_do(leaking):
    warnings = "\n".join(inspect_dataset(leaking).warnings)
    assert "Queries of test are near-duplicates of one of train (1 of 4): look" in warnings
    assert "Queries of test have the text of one of dev (2 of 4): remove them" in warnings
    assert "Judgements of dev are below 0 (1 of 3)" in warnings


def test_grades_and_judgements_of_a_split(leaking):
    splits = inspect_dataset(leaking).splits
    assert splits["dev"].grades == {"-1": 1, "0": 1, "1": 1}
    assert splits["test"].grades == {"0": 1, "1": 3, "2": 1}
    assert (splits["dev"].negative_grades, splits["dev"].queries_without_relevant) == (1, 1)
    judgements = splits["test"].judgements_a_query
    assert (judgements.median, judgements.p95, judgements.max) == (1, 2, 2)
    assert [bin_.as_json() for bin_ in judgements.histogram] == [
        {"from": 0, "to": 0, "count": 0},
        {"from": 1, "to": 1, "count": 3},
        {"from": 2, "to": 2, "count": 1},
    ]
    assert splits["train"].queries_a_relevant_passage == Spread(median=1, p95=2, max=2)


def test_questions_a_passage_are_counted_over_all_passages_and_splits(leaking):
    asked = inspect_dataset(leaking).queries_per_passage
    assert [(passage.id, passage.queries) for passage in asked.most_asked] == [("p0", 3), ("p1", 2), ("p3", 2)]
    assert asked.mean == pytest.approx(8 / 6)
    assert asked.share_without == pytest.approx(2 / 6)
    assert [bin_.count for bin_ in asked.histogram] == [2, 1, 2, 1]


def test_a_split_whose_judgements_are_all_0_has_no_share(tmp_path):
    write_passages(tmp_path / "corpus.jsonl", [(Passage("p", "", "x"), {})])
    write_queries(tmp_path / "queries.jsonl", [(Query("a", "x"), {}), (Query("b", "y"), {})])
    for name, query in (("train", "a"), ("test", "b")):
        write_qrels(tmp_path / "qrels" / f"{name}.tsv", [Qrel(query, "p", 0)])
    figures = inspect_dataset(Dataset.open(tmp_path))
    assert figures.leakage[0].share == 0.0
    assert figures.test_passages_in_train_share is None
    assert figures.splits["test"].queries_a_relevant_passage is None
