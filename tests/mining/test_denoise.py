import json
import shutil

import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.mining import denoise, judge, mine_negatives, open_examples
from gnnretrieval.mining.denoise import DenoiseSettings
from gnnretrieval.mining.negatives import NegativeSettings
from gnnretrieval.shards import Sharding


@pytest.fixture
def mined(dataset, tmp_path):
    """q1: positive a, negatives c, d and f."""
    return mine_negatives(dataset, NegativeSettings(), tmp_path / "negatives")


@pytest.fixture
def settings(tiny_cross_encoder) -> DenoiseSettings:
    return DenoiseSettings(cross_encoder=str(tiny_cross_encoder))


def test_by_hand_below_stays_above_turns_between_goes(dataset, mined, settings, told, tmp_path):
    told(
        {
            ("red apple", text): value
            for text, value in [
                ("red apple tree", 0.3),
                ("red brick wall", 0.02),
                ("red apple pie recipe", 0.95),
                ("green apple", 0.5),
            ]
        }
    )
    made = denoise(dataset, mined, settings, tmp_path / "denoised")
    (before,), (example,) = mined.examples(), made.examples()
    was = {one.passage: one for one in before.negatives}
    label, found = example.positives
    assert (label.passage, label.source, label.probability) == ("a", "label", 0.3), "a label is never scored away"
    assert found == was["d"]._replace(source="cross-encoder", probability=0.95)
    assert example.negatives == (was["c"]._replace(probability=0.02),)
    report = made.report.as_json()
    assert report["candidates"] == {
        "in": 3,
        "positives": {"label": 1, "cross-encoder": 1},
        "negatives": 1,
        "dropped": {"between the thresholds": 1},
    }
    assert report["probabilities"] == {
        "count": 3,
        "histogram": [1, 0, 0, 0, 0, 1, 0, 0, 0, 1],
        "above": {"threshold": 0.9, "share": pytest.approx(1 / 3)},
        "below": {"threshold": 0.1, "share": pytest.approx(1 / 3)},
    }
    assert report["labels"]["histogram"] == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]


def test_of_a_sample_only_these_are_read_and_the_others_are_dropped(dataset, mined, settings, told, tmp_path):
    judged = told({})
    few = settings.model_copy(update={"scored": 2})
    made = denoise(dataset, mined, few, tmp_path / "denoised")
    assert sum(len(block) for block in judged.asked) == 3  # two and the label
    (example,) = made.examples()
    assert len(example.negatives) == 2
    assert made.report.candidates.dropped == {"not in the random sample": 1}
    samples = set()
    for seed in range(10):
        other = few.model_copy(update={"seed": seed})
        (example,) = denoise(dataset, mined, other, tmp_path / f"denoised-{seed}").examples()
        samples.add(tuple(one.passage for one in example.negatives))
    assert len(samples) == 3


def test_by_a_real_cross_encoder_interrupted_it_ends_in_the_same_bytes(
    tiny_dataset, tiny_features, settings, tmp_path, monkeypatch
):
    from gnnretrieval.encoders.cross_encoder import CrossEncoder

    opened = Dataset.open(tiny_dataset)
    mined = mine_negatives(opened, NegativeSettings(top_k=6), tmp_path / "negatives", features=tiny_features)
    wanted = settings.model_copy(
        update={"pair_tokens": 48, "negative_threshold": 0.49, "positive_threshold": 0.51, "scored": 4}
    )
    whole = denoise(opened, mined, wanted, tmp_path / "whole")
    monkeypatch.setattr(judge, "PAIRS", 64)
    encode, calls = CrossEncoder.encode_pairs, []

    def failing(self, *given):
        calls.append(len(given[2]))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(self, *given)

    monkeypatch.setattr(CrossEncoder, "encode_pairs", failing)
    with pytest.raises(KeyboardInterrupt):
        denoise(opened, mined, wanted, tmp_path / "broken")
    with pytest.raises(ArtifactError, match="half-made"):
        open_examples(tmp_path / "broken")
    resumed = denoise(opened, mined, wanted, tmp_path / "broken")
    assert resumed.meta["files"] == whole.meta["files"]
    assert sum(calls) - calls[2] == whole.report.probabilities.count + whole.report.labels.count
    assert not (tmp_path / "broken" / "scratch").exists()


def test_the_judges_place_does_not_matter_and_another_judge_is_said(
    dataset, mined, settings, tiny_cross_encoder, tmp_path, told
):
    told({})
    made = denoise(dataset, mined, settings, tmp_path / "denoised")
    shutil.copytree(tiny_cross_encoder, tmp_path / "moved")
    moved = settings.model_copy(update={"cross_encoder": str(tmp_path / "moved")})
    assert denoise(dataset, mined, moved, tmp_path / "denoised").meta == made.meta
    assert made.made_from("examples") == mined.path
    config = json.loads((tmp_path / "moved" / "config.json").read_text())
    (tmp_path / "moved" / "config.json").write_text(json.dumps({**config, "other": 1}))
    with pytest.raises(ArtifactError, match="its cross-encoder changed"):
        denoise(dataset, mined, moved, tmp_path / "denoised")


def test_examples_of_other_texts_or_of_unknown_passages_or_none_are_refused(dataset, mined, settings, told, tmp_path):
    told({})
    examples = mined.path / "examples.jsonl"
    text = examples.read_text()
    examples.write_text(text.replace('"c"', '"nowhere"'))
    with pytest.raises(InputError, match="the examples name 'nowhere', which is not in this dataset"):
        denoise(dataset, mined, settings, tmp_path / "denoised")
    examples.write_text("")
    with pytest.raises(InputError, match="the file has no example"):
        denoise(dataset, mined, settings, tmp_path / "denoised")
    with (dataset.path / "corpus.jsonl").open("a") as file:
        file.write(json.dumps({"_id": "new", "text": "new"}) + "\n")
    with pytest.raises(ArtifactError, match="these examples were made from other texts"):
        denoise(Dataset.open(dataset.path), mined, settings, tmp_path / "denoised")
    assert not (tmp_path / "denoised").exists()


def test_denoised_in_shards_the_examples_are_the_same(dataset, mined, tiny_cross_encoder, tmp_path):
    settings = DenoiseSettings(cross_encoder=str(tiny_cross_encoder), pair_tokens=32)
    made = [
        denoise(dataset, mined, settings, tmp_path / name, sharding=sharding)
        for name, sharding in (("one", None), ("shards", Sharding(shards=3)))
    ]
    assert made[0].hash == made[1].hash
    assert made[0].meta["files"] == made[1].meta["files"]
    assert not list(tmp_path.glob(".*shards*")), "nothing is left beside it"
