from dataclasses import replace

import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.data.sentences import make_sentence_dataset
from gnnretrieval.encoders.encoding_shards import EncodingShards
from gnnretrieval.encoders.features import encode_dataset, encode_shard
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.shards import Shard, Sharding


@pytest.fixture
def settings(tiny_settings):
    return tiny_settings.model_copy(update={"window": 16})


@pytest.fixture
def files_of_one_process(tiny_dataset, settings, tmp_path):
    return encode_dataset(Dataset.open(tiny_dataset), settings, tmp_path / "whole").meta["files"]


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_features_in_shards_are_those_of_one_process_byte_for_byte(
    tiny_dataset, settings, files_of_one_process, tmp_path, shards
):
    dataset = Dataset.open(tiny_dataset)
    made = encode_dataset(dataset, settings, tmp_path / "features", sharding=Sharding(shards=shards))
    assert made.meta["files"] == files_of_one_process
    assert sorted(path.name for path in tmp_path.iterdir()) == ["features", "whole"]  # nothing is left beside it


def test_shards_that_were_made_one_by_one_are_joined_and_not_made_again(
    tiny_dataset, settings, files_of_one_process, tmp_path, monkeypatch
):
    dataset, out = Dataset.open(tiny_dataset), tmp_path / "features"
    for number in (2, 0):
        files = encode_shard(dataset, settings, out, Shard(number, 3))
        assert [file.name for file in files] == [
            f"{side}-{number + 1:05d}-of-00003.npy" for side in ("passages", "queries")
        ]
    assert not out.exists()
    made, run = [], EncodingShards.run

    def noted(stage: EncodingShards, number: int) -> None:
        made.append((stage.side, number))
        run(stage, number)

    monkeypatch.setattr(EncodingShards, "run", noted)
    features = encode_dataset(dataset, settings, out, sharding=Sharding(shards=3))
    assert made == [("passage", 1), ("query", 1)]
    assert features.meta["files"] == files_of_one_process


def test_shards_of_other_settings_are_not_used(tiny_dataset, settings, files_of_one_process, tmp_path):
    dataset, out = Dataset.open(tiny_dataset), tmp_path / "features"
    encode_shard(dataset, settings.model_copy(update={"max_tokens": 8}), out, Shard(0, 3))
    assert encode_dataset(dataset, settings, out, sharding=Sharding(shards=3)).meta["files"] == files_of_one_process


def test_a_damaged_shard_is_refused_when_the_shards_are_joined(tiny_dataset, settings, tmp_path):
    dataset, out = Dataset.open(tiny_dataset), tmp_path / "features"
    file = encode_shard(dataset, settings, out, Shard(0, 3))[0]
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ArtifactError, match=r"passages-00001-of-00003\.npy: this array is damaged"):
        encode_dataset(dataset, settings, out, sharding=Sharding(shards=3))


def test_a_worker_that_finds_another_dataset_or_other_weights_refuses(tiny_dataset, settings, tmp_path):
    place = Dataset.open(tiny_dataset).place
    text = settings.model_dump_json()
    stage = EncodingShards(place, text, "other", "query", 80, 2, tmp_path, "cpu")
    with pytest.raises(ArtifactError, match="finds other weights"):
        stage.run(0)
    from gnnretrieval.encoders.opening import fingerprint_of

    weights = fingerprint_of(settings)[0]["query"]
    with pytest.raises(ArtifactError, match="finds another dataset"):
        replace(stage, weights=weights, dataset=place._replace(hash="other")).run(0)


@pytest.mark.parametrize("more", [{}, {"token_storage": "int8"}])
def test_tokens_in_shards_are_those_of_one_process_byte_for_byte(tiny_late_encoder, tiny_dataset, tmp_path, more):
    dataset, path = Dataset.open(tiny_dataset), str(tiny_late_encoder.path)
    trained = EncoderSettings(checkpoint=path, precision="float32", window=16, **more)
    whole = encode_dataset(dataset, trained, tmp_path / "whole")
    for number in (2, 1):  # the first is made when they are joined
        encode_shard(dataset, trained, tmp_path / "features", Shard(number, 3))
    made = encode_dataset(dataset, trained, tmp_path / "features", sharding=Sharding(shards=3))
    assert made.meta["files"] == whole.meta["files"]
    assert made.meta["num_passage_tokens"] == whole.meta["num_passage_tokens"] == len(made.tokens)


def test_a_shard_of_tokens_without_its_offsets_is_refused(tiny_late_encoder, tiny_dataset, tmp_path):
    dataset = Dataset.open(tiny_dataset)
    trained = EncoderSettings(checkpoint=str(tiny_late_encoder.path), precision="float32", window=16)
    file = encode_shard(dataset, trained, tmp_path / "features", Shard(0, 3))[0]
    (starts,) = file.parent.glob("passages-token_starts-00001-of-00003.npy")
    starts.unlink()
    with pytest.raises(ArtifactError, match=r"passages-token_starts-00001-of-00003\.npy"):
        encode_dataset(dataset, trained, tmp_path / "features", sharding=Sharding(shards=3))


def test_passages_that_are_sentences_are_not_encoded_in_shards(tiny_dataset, settings, tmp_path):
    split = make_sentence_dataset(Dataset.open(tiny_dataset), tmp_path / "sentences")
    of_sentences = settings.model_copy(update={"sentences": "mean"})
    with pytest.raises(InputError, match="read together, and not in shards: leave out --shards and --dry-run"):
        encode_dataset(Dataset.open(split.path), of_sentences, tmp_path / "f", sharding=Sharding(shards=2))
    assert not (tmp_path / "f").exists()
