import shutil

import numpy as np
import pytest
import torch

from gnnretrieval.data import Dataset
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.training.encoder.dev import RetrievalDev, dev_queries, measures_of


def test_the_rank_is_of_the_best_relevant_passage_and_a_tie_counts_against_it():
    scores = torch.tensor([[0.1, 0.9, 0.5, 0.5], [0.3, 0.2, 0.2, 0.1]])
    assert RetrievalDev.ranks(scores, [[2, 0], [1, 3]]).tolist() == [3, 3]


def test_a_diverged_encoder_measures_nothing():
    ranks = RetrievalDev.ranks(torch.full((2, 30), float("nan")), [[0], [1, 2]])
    assert measures_of(ranks)["RR@10"] == 0


def test_measures_by_hand():
    measured = measures_of(np.array([1, 2, 10, 11, 30]))
    assert measured["RR@10"] == pytest.approx((1 + 0.5 + 0.1) / 5)
    assert [measured[f"Success@{cutoff}"] for cutoff in (1, 5, 20)] == [0.2, 0.4, 0.8]


def test_the_dev_split_is_chosen_by_and_its_queries_are_hidden_where_they_are_in_train_too(tiny_dataset, tmp_path):
    place = tmp_path / "dataset"
    shutil.copytree(tiny_dataset, place)
    with (place / "qrels" / "dev.tsv").open("a") as file:
        file.write("train-07\tp07\t1\n")
    found = dev_queries(Dataset.open(place), "train", 0)
    assert (found.name, len(found.relevant), found.hidden) == ("dev", 11, frozenset({"train-07"}))


def test_without_one_all_queries_of_some_passages_are_held_out(tiny_dataset, tmp_path):
    place = tmp_path / "dataset"
    shutil.copytree(tiny_dataset, place)
    (place / "qrels" / "dev.tsv").unlink()
    dataset = Dataset.open(place)
    found = dev_queries(dataset, "train", 0)
    assert found.hidden == frozenset(found.relevant)
    passages = {passages[0] for passages in found.relevant.values()}
    assert len(passages) == 2  # a tenth of 20
    of_passages = {query for query, judged in dataset.split("train").items() if passages & judged.keys()}
    assert of_passages == found.hidden


def test_a_query_whose_second_passage_is_held_out_is_held_out_too(tmp_path):
    """Query i has the passages i and i + 1: every passage has two queries."""
    passages, queries = ({f"{kind}{row}": f"{kind} {row}" for row in range(24)} for kind in "pq")
    train = {f"q{row}": {f"p{row}": 1, f"p{(row + 1) % 24}": 1} for row in range(24)}
    dataset = Dataset.from_records(passages, queries, train, tmp_path / "data")
    found = dev_queries(dataset, "train", 0)
    assert len(found.hidden) == 2  # as many as name one of the two chosen passages first
    first, second = sorted(found.hidden, key=lambda query: int(query[1:]))
    assert set(train[first]) & set(train[second])


def test_too_few_queries_to_hold_some_out_are_refused(tiny_dataset, tmp_path):
    place = tmp_path / "dataset"
    shutil.copytree(tiny_dataset, place)
    (place / "qrels" / "dev.tsv").unlink()
    (place / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\ntrain-00\tp00\t1\n")
    with pytest.raises(GnnRetrievalError, match="add a dev split"):
        dev_queries(Dataset.open(place), "train", 0)
