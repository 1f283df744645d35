import json

import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.errors import InputError
from gnnretrieval.mining import pseudo_label
from gnnretrieval.mining.pseudo_label import PseudoLabelSettings


@pytest.fixture
def features(dataset, tiny_settings, tmp_path):
    return encode_dataset(dataset, tiny_settings, tmp_path / "features")


@pytest.fixture
def settings(tiny_cross_encoder) -> PseudoLabelSettings:
    return PseudoLabelSettings(cross_encoder=str(tiny_cross_encoder), top_k=6)


def test_by_hand_what_is_found_for_unjudged_queries_is_labelled(dataset, features, settings, told, tmp_path):
    judged = told({("apple pie", "red apple pie recipe"): 0.97, ("apple pie", "blue whale"): 0.4})
    made = pseudo_label(dataset, features, settings, tmp_path / "labels")
    (example,) = made.examples()  # u2 has no positive, u3 has the text of q2
    assert example.query == "u1"
    ((found, source, rank, score, probability),) = example.positives
    assert (found, source, probability) == ("d", "cross-encoder", 0.97)
    vectors = np.asarray(features.queries, np.float64)[3], np.asarray(features.passages, np.float64)
    expected = vectors[1] @ vectors[0] / np.linalg.norm(vectors[1], axis=1) / np.linalg.norm(vectors[0])
    assert score == pytest.approx(expected[3], abs=1e-5)
    assert rank == (expected > expected[3]).sum() + 1
    assert sorted(one.passage for one in example.negatives) == ["a", "b", "c", "f"]
    assert {(one.source, one.probability) for one in example.negatives} == {("dual-encoder", 0.05)}
    assert {query for block in judged.asked for query, _ in block} == {"apple pie", "brick wall"}
    report = made.report.as_json()
    assert report["queries"] == {
        "in": 3,
        "kept": 1,
        "left_out": {"with the text of a judged query": 1, "without a positive": 1},
    }
    assert report["candidates"] == {
        "in": 12,
        "positives": {"cross-encoder": 1},
        "negatives": 4,
        "dropped": {"between the thresholds": 1, "of a query without a positive": 6},
    }


def test_questions_imported_for_test_are_named_before_they_are_labelled(
    dataset, tiny_settings, settings, told, said, tmp_path
):
    told({})
    queries = dataset.path / "queries.jsonl"
    queries.write_text(queries.read_text().replace('"u1"', '"test-7"'))
    changed = Dataset.open(dataset.path)
    pseudo_label(changed, encode_dataset(changed, tiny_settings, tmp_path / "f"), settings, tmp_path / "labels")
    (line,) = [line for line in said if "by their ids" in line]
    assert "1, such as test-7, are test questions" in line


def test_a_query_without_a_negative_is_kept_and_counted(dataset, features, settings, told, tmp_path):
    told({("apple pie", "red apple pie recipe"): 0.97})
    one = settings.model_copy(update={"top_k": 6, "negative_threshold": 0.01})
    made = pseudo_label(dataset, features, one, tmp_path / "labels")
    (example,) = made.examples()
    assert example.negatives == ()
    assert made.report.noted == {"queries without a negative": 1}


def test_where_nothing_is_found_there_are_no_examples_and_a_report(dataset, features, settings, told, tmp_path):
    told({})
    made = pseudo_label(dataset, features, settings, tmp_path / "labels")
    assert list(made.examples()) == []
    assert made.report.queries.kept == 0


def test_by_a_real_cross_encoder_twice_the_bytes_are_equal(dataset, features, settings, tmp_path):
    both = settings.model_copy(update={"positive_threshold": 0.5, "negative_threshold": 0.4, "pair_tokens": 32})
    first, second = (pseudo_label(dataset, features, both, tmp_path / name) for name in ("one", "two"))
    assert first.meta["files"] == second.meta["files"]
    assert first.report.probabilities.count == 12
    assert first.meta["inputs"].keys() == {"dataset", "features", "cross-encoder"}


def test_where_every_query_is_judged_that_is_said(tiny_dataset, tiny_features, settings, tmp_path):
    with pytest.raises(InputError, match="every query is judged in some split"):
        pseudo_label(Dataset.open(tiny_dataset), tiny_features, settings, tmp_path / "labels")
    assert not (tmp_path / "labels").exists()


def test_a_query_that_is_only_judged_0_is_judged(dataset, features, settings, told, tmp_path):
    judged = told({})
    pseudo_label(dataset, features, settings, tmp_path / "labels")
    assert "green apple" not in {query for block in judged.asked for query, _ in block}
    assert json.loads((dataset.path / "queries.jsonl").read_text().splitlines()[2])["text"] == "green apple"
