import shutil

import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders import DualEncoder, encode_dataset, open_features
from gnnretrieval.errors import ArtifactError


def test_rows_are_the_encoded_texts_in_the_order_of_the_ids(tiny_features, tiny_dataset, tiny_settings):
    dataset = Dataset.open(tiny_dataset)
    encoder = DualEncoder(tiny_settings)
    with TextStore(tiny_features.path / "texts.sqlite") as texts:
        assert texts.passage_ids() == dataset.passage_ids
    assert list(tiny_features.query_rows()) == dataset.query_ids
    assert tiny_features.passages.shape == (40, 32)
    assert tiny_features.passages.dtype == tiny_features.queries.dtype == np.float16
    expected = encoder.encode([passage.full_text for passage in dataset.passages()], "passage")
    np.testing.assert_allclose(tiny_features.passages, expected, atol=1e-3)
    expected = encoder.encode([query.text for query in dataset.queries()], "query")
    np.testing.assert_allclose(tiny_features.queries, expected, atol=1e-3)


def test_rows_of_queries_come_in_the_order_asked(tiny_features):
    assert tiny_features.rows_of(["test-00", "train-00", "train-01"]).tolist() == [70, 0, 1]
    with pytest.raises(ArtifactError, match="no features of query 'nobody'"):
        tiny_features.rows_of(["train-00", "nobody"])


def test_encoded_twice_the_bytes_are_equal(tiny_features, tiny_dataset, tiny_settings, tmp_path):
    again = encode_dataset(Dataset.open(tiny_dataset), tiny_settings, tmp_path / "features")
    assert again.meta["files"] == tiny_features.meta["files"]


class Counting:
    """Stands for ``DualEncoder.encode``: notes what is asked, and fails at one of its calls."""

    def __init__(self, encode, fail_at: int | None = None) -> None:
        self.encode, self.fail_at = encode, fail_at
        self.asked: list[tuple[str, int]] = []

    def __get__(self, encoder, owner):
        def encode(texts, side):
            if len(self.asked) == self.fail_at:
                raise KeyboardInterrupt
            self.asked.append((side, len(texts)))
            return self.encode(encoder, texts, side)

        return encode


@pytest.mark.parametrize("fail_at", [0, 1, 2, 3, 5])
def test_interrupted_encoding_goes_on_after_its_last_window_to_the_same_bytes(
    tiny_dataset, tiny_settings, tmp_path, monkeypatch, fail_at
):
    dataset = Dataset.open(tiny_dataset)
    settings = tiny_settings.model_copy(update={"window": 16})
    whole = encode_dataset(dataset, settings, tmp_path / "whole")
    windows = [("passage", 16), ("passage", 16), ("passage", 8)] + [("query", 16)] * 5
    encode = DualEncoder.encode
    first = Counting(encode, fail_at)
    with monkeypatch.context() as patch:
        patch.setattr(DualEncoder, "encode", first)
        with pytest.raises(KeyboardInterrupt):
            encode_dataset(dataset, settings, tmp_path / "broken")
    assert not (tmp_path / "broken").exists()
    with pytest.raises(ArtifactError, match="half-made"):
        open_features(tmp_path / "broken")
    second = Counting(encode)
    with monkeypatch.context() as patch:
        patch.setattr(DualEncoder, "encode", second)
        resumed = encode_dataset(dataset, settings, tmp_path / "broken")
    assert first.asked == windows[:fail_at]
    assert second.asked == windows[fail_at:]
    assert resumed.meta["files"] == whole.meta["files"]


def test_features_made_before_are_reused_without_an_encoder(
    tiny_features, tiny_dataset, tiny_settings, monkeypatch, said
):
    from gnnretrieval.encoders import features

    monkeypatch.setattr(features, "open_encoder", None)
    again = encode_dataset(Dataset.open(tiny_dataset), tiny_settings, tiny_features.path)
    assert again.meta == tiny_features.meta
    assert "already made" in said[0]


def test_window_and_token_budget_do_not_make_other_features(tiny_features, tiny_dataset, tiny_settings):
    settings = tiny_settings.model_copy(update={"window": 7, "token_budget": 99})
    assert encode_dataset(Dataset.open(tiny_dataset), settings, tiny_features.path).hash == tiny_features.hash


def test_another_dataset_or_setting_in_its_place_is_an_error_that_names_the_change(
    tiny_features, tiny_dataset, tiny_settings, tmp_path
):
    shutil.copytree(tiny_features.path, tmp_path / "features")
    shutil.copytree(tiny_dataset, tmp_path / "dataset")
    queries = tmp_path / "dataset" / "queries.jsonl"
    queries.write_text(queries.read_text().replace("?", "!"))
    with pytest.raises(ArtifactError, match="its texts changed"):
        encode_dataset(Dataset.open(tmp_path / "dataset"), tiny_settings, tmp_path / "features")
    settings = tiny_settings.model_copy(update={"max_tokens": 9})
    with pytest.raises(ArtifactError, match="max_tokens was None and is now 9"):
        encode_dataset(Dataset.open(tiny_dataset), settings, tmp_path / "features")
    assert open_features(tmp_path / "features").hash == tiny_features.hash


def test_the_artifact_says_how_its_vectors_were_made_and_are_compared(tiny_features, tiny_settings, tiny_checkpoint):
    assert tiny_features.meta["encoder"] == tiny_settings.model_dump()
    assert tiny_features.similarity.normalize
    assert tiny_features.meta["source"] == "directory"
    assert tiny_features.config["precision"] == "float32"
    assert (tiny_features.meta["num_passages"], tiny_features.meta["num_queries"]) == (40, 80)
