"""Known texts keep their vectors, and only new ones are encoded."""

import json
import shutil

import numpy as np

from gnnretrieval.data import Dataset
from gnnretrieval.encoders import known_vectors
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.encoders.known_vectors import KnownVectors


def test_only_new_texts_are_encoded_and_the_others_keep_their_bits(tiny_dataset, tiny_features, tmp_path, monkeypatch):
    shutil.copytree(tiny_dataset, tmp_path / "data")
    for name, text in (
        ("corpus", {"_id": "new", "title": "", "text": "zu zu"}),
        ("queries", {"_id": "n", "text": "ba"}),
    ):
        with (tmp_path / "data" / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(text) + "\n")
    dataset, encoder = Dataset.open(tmp_path / "data"), KnownVectors([tiny_features])
    made = encode_dataset(dataset, encoder, tmp_path / "features")
    assert encoder.encoded == {"passage": 1, "query": 1}
    assert np.array_equal(made.passages[:-1], tiny_features.passages)
    assert np.array_equal(made.queries[:-1], tiny_features.queries)
    assert made.meta["inputs"]["encoder"] == tiny_features.meta["inputs"]["encoder"]
    assert made.similarity == tiny_features.similarity
    monkeypatch.setattr(known_vectors, "encoder_of", None)  # not opened without new texts
    again = encode_dataset(dataset, KnownVectors([tiny_features, made]), tmp_path / "again")
    assert again.hash == made.hash


def test_a_side_that_is_not_looked_up_is_encoded(tiny_dataset, tiny_features, tmp_path):
    encoder = KnownVectors([tiny_features], sides=("passage",))
    made = encode_dataset(Dataset.open(tiny_dataset), encoder, tmp_path / "features")
    assert encoder.encoded == {"passage": 0, "query": len(tiny_features.queries)}
    assert made.hash == tiny_features.hash
