"""Features with a vector a sentence."""

import shutil

import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.encoders import DualEncoder, encode_dataset, open_features
from gnnretrieval.encoders.features import Features
from gnnretrieval.errors import ArtifactError
from gnnretrieval.shards import Sharding


@pytest.fixture(scope="module")
def dataset(tiny_dataset, tmp_path_factory) -> Dataset:
    """The tiny dataset, two thirds of whose passages have two sentences, and one more sentences than fit."""
    directory = tmp_path_factory.mktemp("dataset") / "long"
    shutil.copytree(tiny_dataset, directory)
    corpus = directory / "corpus.jsonl"
    lines = corpus.read_text().splitlines()
    lines[7] = lines[7].replace('."}', ". " + "A b c d e f g h. " * 12 + '"}')
    corpus.write_text("\n".join(lines) + "\n")
    return Dataset.open(directory)


@pytest.fixture(scope="module")
def settings(tiny_settings):
    return tiny_settings.model_copy(update={"sentences": "mean", "window": 16})


@pytest.fixture(scope="module")
def features(dataset, settings, tmp_path_factory) -> Features:
    return encode_dataset(dataset, settings, tmp_path_factory.mktemp("made") / "features")


def test_rows_are_the_sentences_vectors_passage_by_passage(features, dataset, settings):
    texts = [passage.full_text for passage in dataset.passages()]
    made = DualEncoder(settings).encode_sentences(texts)
    starts = features.sentence_starts
    assert (starts.shape, starts.dtype, features.sentences.dtype) == ((41,), np.int64, np.float16)
    assert starts.tolist() == [0, *np.cumsum(made.counts).tolist()]
    assert np.array_equal(features.sentences, made.vectors.astype(np.float16))
    assert np.array_equal(features.passages, DualEncoder(settings).encode(texts, "passage").astype(np.float16))
    assert starts[1] == 1  # p00 has no title
    assert starts[2] - starts[1] == 2  # p01's title is a sentence


def test_a_sentence_beyond_float16_is_refused_though_its_passage_is_not(dataset, settings, tmp_path, monkeypatch):
    encode = DualEncoder.encode_sentences

    def long(self, texts):
        made = encode(self, texts)
        made.vectors[0] *= 1e6
        return made

    monkeypatch.setattr(DualEncoder, "encode_sentences", long)
    with pytest.raises(ArtifactError, match="float16, which ends at 65,504"):
        encode_dataset(dataset, settings, tmp_path / "features")


def test_the_artifact_says_how_many_sentences_there_are_and_how_many_were_cut(
    features, dataset, settings, tmp_path, said
):
    count = len(features.sentences)
    assert features.has_sentences
    assert features.meta["num_sentences"] == count
    assert features.meta["sentences_per_passage"] == count / 40
    assert features.meta["sentences_cut"] == 6  # 62 tokens: 14 of the first two, 5 times 9, and a part of a sixth
    assert features.config["sentences"] == "mean"
    encode_dataset(dataset, settings, tmp_path / "features")
    assert f"{count} sentences, {count / 40:.1f} a passage; 6 more were beyond the limit of tokens" in said


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_sentences_in_shards_are_those_of_one_process_byte_for_byte(features, dataset, settings, tmp_path, shards):
    made = encode_dataset(dataset, settings, tmp_path / "features", sharding=Sharding(shards=shards))
    assert made.meta["files"] == features.meta["files"]
    counts = ("num_sentences", "sentences_cut", "sentences_per_passage")
    assert {name: made.meta[name] for name in counts} == {name: features.meta[name] for name in counts}


@pytest.mark.parametrize("fail_at", [0, 1, 2])
def test_interrupted_encoding_goes_on_to_the_same_bytes(features, dataset, settings, tmp_path, monkeypatch, fail_at):
    encode, asked = DualEncoder.encode_sentences, []

    def failing(encoder, texts):
        if len(asked) == fail_at:
            raise KeyboardInterrupt
        asked.append(len(texts))
        return encode(encoder, texts)

    with monkeypatch.context() as patch:
        patch.setattr(DualEncoder, "encode_sentences", failing)
        with pytest.raises(KeyboardInterrupt):
            encode_dataset(dataset, settings, tmp_path / "broken")
    resumed = encode_dataset(dataset, settings, tmp_path / "broken")
    assert asked == [16, 16, 8][:fail_at]
    assert resumed.meta["files"] == features.meta["files"]
    assert resumed.meta["sentences_cut"] == features.meta["sentences_cut"]


def test_the_window_does_not_make_other_features(features, dataset, settings, tmp_path):
    other = encode_dataset(dataset, settings.model_copy(update={"window": 7}), tmp_path / "features")
    assert other.meta["files"] == features.meta["files"]


def test_features_of_whole_passages_are_configured_as_before_there_was_a_choice(tiny_features):
    assert "sentences" not in tiny_features.config
    assert sorted(tiny_features.meta["files"]) == ["passages.npy", "queries.npy", "texts.sqlite"]
    assert not tiny_features.has_sentences


def test_features_of_whole_passages_have_no_sentences(tiny_features):
    for name in ("sentences", "sentence_starts"):
        with pytest.raises(ArtifactError, match=r"read whole.*--sentences token"):
            getattr(tiny_features, name)


def test_another_way_of_reading_in_their_place_is_an_error_that_names_it(features, dataset, tiny_settings):
    with pytest.raises(ArtifactError, match="sentences was 'mean' and is now None"):
        encode_dataset(dataset, tiny_settings, features.path)


def test_damaged_starts_are_an_error(features, tmp_path):
    shutil.copytree(features.path, tmp_path / "features")
    np.save(tmp_path / "features" / "sentence_starts.npy", np.arange(5))
    with pytest.raises(ArtifactError, match="damaged"):
        _ = open_features(tmp_path / "features").sentence_starts
