import json

import numpy as np
import pytest

from gnnretrieval.data import Dataset, Passage, Qrel, Query, inspect_dataset
from gnnretrieval.data.beir import write_passages, write_qrels, write_queries
from gnnretrieval.data.inspection.near_copies import QueryVectors, copy_cosine, copy_figures, copy_similarity
from gnnretrieval.data.inspection.report import DatasetReport
from gnnretrieval.errors import InputError

QUERIES = {
    "t-cat": "Where does the cat sleep?",
    "t-cat-again": "the cat's bed",
    "t-dog": "who feeds the dog",
    "t-zero": "who walks the dog",
    "again": "asked twice",
    "copy": "where does THE cat sleep at night",
    "two": "where does the dog sleep",
    "elsewhere": "who feeds the dog",
    "irrelevant": "who feeds the dog!",
    "unlike": "feline nap location",
    "d-copy": "THE cat, where does it sleep",
}
TRAIN = [("t-cat", "cat", 1), ("t-cat-again", "cat", 1), ("t-dog", "dog", 2), ("t-zero", "cow", 0), ("again", "dog", 1)]
TEST = [
    ("copy", "cat", 1),
    ("two", "dog", 1),
    ("two", "cat", 1),
    ("elsewhere", "cow", 1),
    ("irrelevant", "dog", 0),
    ("unlike", "cat", 1),
    ("again", "dog", 1),
]


@pytest.fixture
def dataset(tmp_path) -> Dataset:
    write_passages(tmp_path / "corpus.jsonl", ((Passage(id_, "", f"the {id_}"), {}) for id_ in ("cat", "dog", "cow")))
    write_queries(tmp_path / "queries.jsonl", ((Query(id_, text), {}) for id_, text in QUERIES.items()))
    for split, rows in (("train", TRAIN), ("test", TEST), ("dev", [("d-copy", "cat", 1)])):
        write_qrels(tmp_path / "qrels" / f"{split}.tsv", [Qrel(*row) for row in rows])
    return Dataset.open(tmp_path)


def test_similarity_is_the_largest_word_overlap_with_a_training_question_of_the_same_passage(dataset):
    assert copy_similarity(dataset, "test") == {
        "copy": 5 / 7,  # where does the cat sleep, of these and at night
        "two": 4 / 6,  # of its two passages: where does the sleep, of these and dog and cat
        "elsewhere": 0.0,  # the same words as t-dog, and no training question of its passage
        "irrelevant": 0.0,  # the dog's passage is not relevant to it
        "unlike": 0.0,
        "again": 1.0,  # it is a training question
    }


def test_queries_keep_the_order_of_their_split(dataset):
    assert list(copy_similarity(dataset, "test")) == list(dataset.split("test"))
    assert list(copy_similarity(dataset, "dev")) == ["d-copy"]


def test_another_split_can_take_the_place_of_train(dataset):
    found = copy_similarity(dataset, "test", of="dev")
    assert found["copy"] == 5 / 8
    assert found["two"] == 4 / 7
    assert found["again"] == 0.0


def test_an_unknown_split_is_refused(dataset):
    for split, of in (("tset", "train"), ("test", "trian")):
        with pytest.raises(InputError, match="Did you mean"):
            copy_similarity(dataset, split, of)


def test_texts_are_read_once_and_not_at_all_where_no_passage_is_shared(dataset, monkeypatch):
    read: list[str] = []
    queries = Dataset.queries
    monkeypatch.setattr(Dataset, "queries", lambda self: read.append(self.name) or queries(self))
    copy_similarity(dataset, "test")
    assert len(read) == 1
    copy_similarity(dataset, "dev", of="test")
    assert len(read) == 2
    write_qrels(dataset.path / "qrels" / "dev.tsv", [Qrel("d-copy", "cow", 1)])
    assert copy_similarity(Dataset.open(dataset.path), "dev") == {"d-copy": 0.0}
    assert len(read) == 2


def vectors_of(dataset: Dataset, **given: tuple[float, float]) -> QueryVectors:
    """Vectors in another order than the dataset's; those not given are (0, 1)."""
    ids = sorted(dataset.query_ids)
    vectors = np.array([given.get(id_.replace("-", "_"), (0, 1)) for id_ in ids], dtype=np.float16)
    return QueryVectors("hand-made", {id_: row for row, id_ in enumerate(ids)}, vectors)


def test_cosine_is_the_largest_whatever_the_lengths_of_vectors(dataset):
    vectors = vectors_of(
        dataset, t_cat=(3, 4), t_cat_again=(-2, 0), copy=(6, 8), two=(5, 0), unlike=(0, 0), t_dog=(2, 0), again=(0, -7)
    )
    found = copy_cosine(dataset, "test", vectors)
    assert found == pytest.approx(
        {"copy": 1.0, "two": 1.0, "elsewhere": 0.0, "irrelevant": 0.0, "unlike": 0.0, "again": 1.0}
    )
    assert copy_cosine(dataset, "dev", vectors) == pytest.approx({"d-copy": 0.8})
    behind = vectors_of(dataset, t_cat=(0, 1), t_cat_again=(0, 2), d_copy=(0, -1))
    assert copy_cosine(dataset, "dev", behind) == {"d-copy": 0.0}


def test_cosines_are_the_same_in_blocks(dataset, monkeypatch):
    rng = np.random.default_rng(0)
    rows = {id_: row for row, id_ in enumerate(dataset.query_ids)}
    vectors = QueryVectors("random", rows, rng.standard_normal((len(rows), 4)))
    whole = copy_cosine(dataset, "test", vectors)
    monkeypatch.setattr("gnnretrieval.data.inspection.near_copies._BLOCK", 1)
    assert copy_cosine(dataset, "test", vectors) == pytest.approx(whole)


def test_a_question_without_a_vector_is_refused(dataset):
    rows = {id_: row for row, id_ in enumerate(dataset.query_ids) if id_ != "copy"}
    with pytest.raises(InputError, match="query 'copy' has no vector"):
        copy_cosine(dataset, "test", QueryVectors("hand-made", rows, np.ones((len(QUERIES), 2))))


def test_figures_are_shares_of_each_split_beside_train(dataset):
    judged = {name: dataset.split(name) for name in dataset.splits}
    vectors = vectors_of(dataset, t_cat=(3, 4), d_copy=(1, 0), t_cat_again=(-1, 0), t_dog=(1, 0), two=(10, 5))
    dev, test = copy_figures(dataset, judged, vectors)
    assert test.as_json() == {
        "split": "test",
        "of": "train",
        "queries": 6,
        "with_shared_passage": 4 / 6,
        "by_words": {"at_least": {"0.5": 3 / 6, "0.85": 1 / 6}, "below": {"0.1": 3 / 6}},
        # again is itself; two is at 0.894 with t-dog; copy and unlike are at 0.8 with t-cat.
        "by_vectors": {"encoder": "hand-made", "at_least": {"0.8": 4 / 6, "0.9": 1 / 6}},
    }
    assert (dev.split, dev.queries, dev.with_shared_passage) == ("dev", 1, 1.0)
    assert dev.by_words.as_json() == {"at_least": {"0.5": 1.0, "0.85": 0.0}, "below": {"0.1": 0.0}}
    assert dev.by_vectors.at_least == {"0.8": 0.0, "0.9": 0.0}
    assert copy_figures(dataset, {name: judged[name] for name in ("dev", "test")}) == []


def test_inspect_shows_near_copies_and_warns_of_many(dataset):
    figures = inspect_dataset(dataset)
    assert figures.near_copies[1].by_words.at_least["0.5"] == 0.5
    assert figures.near_copies[1].by_vectors is None
    assert DatasetReport.model_validate_json(json.dumps(figures.as_json())) == figures
    text = figures.to_text()
    (row,) = [line.split() for line in text.partition("Near copies: ")[2].splitlines() if line.startswith("  test ")]
    assert row == ["test", "train", "6", "66.7%", "50.0%", "16.7%", "50.0%"]
    warnings = [warning for warning in figures.warnings if "half of their words" in warning]
    assert [warning.partition(",")[0] for warning in warnings] == ["Of the queries of dev", "Of the queries of test"]
    assert all("report gains with and without them" in warning for warning in warnings)


def test_a_fifth_of_near_copies_is_no_warning_and_thresholds_count_as_reached(tmp_path):
    half, tenth = "train 0 and more", "train of nine words a b c d e"
    texts = [half, tenth, "five six", "seven eight", "nine ten"]
    queries = {f"t{n}": f"train {n}" for n in range(5)} | {f"q{n}": text for n, text in enumerate(texts)}
    write_passages(tmp_path / "corpus.jsonl", ((Passage(f"p{n}", "", f"passage {n}"), {}) for n in range(5)))
    write_queries(tmp_path / "queries.jsonl", ((Query(id_, text), {}) for id_, text in queries.items()))
    for split, letter in (("train", "t"), ("test", "q")):
        write_qrels(tmp_path / "qrels" / f"{split}.tsv", [Qrel(f"{letter}{n}", f"p{n}", 1) for n in range(5)])
    figures = inspect_dataset(Dataset.open(tmp_path))
    assert copy_similarity(Dataset.open(tmp_path), "test") == {"q0": 0.5, "q1": 0.1, "q2": 0.0, "q3": 0.0, "q4": 0.0}
    assert figures.near_copies[0].by_words.as_json() == {"at_least": {"0.5": 0.2, "0.85": 0.0}, "below": {"0.1": 0.6}}
    assert not any("half of their words" in warning for warning in figures.warnings)


def test_without_train_there_are_no_near_copies(tmp_path):
    write_passages(tmp_path / "corpus.jsonl", [(Passage("p", "", "x"), {})])
    write_queries(tmp_path / "queries.jsonl", [(Query("q", "x"), {})])
    write_qrels(tmp_path / "qrels" / "test.tsv", [Qrel("q", "p", 1)])
    figures = inspect_dataset(Dataset.open(tmp_path))
    assert figures.near_copies == []
    assert "Near copies" not in figures.to_text()
