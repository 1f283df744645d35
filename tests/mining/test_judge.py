import numpy as np
import pytest

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders import pair_shards
from gnnretrieval.encoders.cross_encoder import CrossEncoder
from gnnretrieval.errors import InputError
from gnnretrieval.mining import judge
from gnnretrieval.mining.candidates import open_texts
from gnnretrieval.mining.judge import JudgeSettings, probabilities_of
from gnnretrieval.shards import Sharding
from gnnretrieval.storage.places import scratch

PAIRS = np.array([[0, 3], [1, 0], [0, 0], [2, 5], [3, 3]])


@pytest.fixture
def texts(dataset, tmp_path) -> TextStore:
    scratch(tmp_path / "half").mkdir(parents=True)
    return open_texts(dataset, tmp_path / "half")


def test_by_hand_above_is_positive_below_is_negative_and_a_threshold_itself_is_between():
    settings = JudgeSettings(cross_encoder="any")
    verdicts = [settings.verdict(value) for value in (0.0, 0.0999, 0.1, 0.5, 0.9, 0.9001, 1.0)]
    assert verdicts == ["negative", "negative", "between", "between", "between", "positive", "positive"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"negative_threshold": 0.9}, r"negative_threshold = 0.9 must be below positive_threshold = 0.9"),
        ({"positive_threshold": 1.1}, "positive_threshold"),
        ({"negative_threshold": -0.1}, "negative_threshold"),
        ({"pair_tokens": 3}, "pair_tokens"),
    ],
)
def test_thresholds_that_do_not_fit_are_refused(given, says):
    with pytest.raises(InputError, match=says):
        JudgeSettings.parse({"cross_encoder": "any", **given})


def test_a_judge_must_be_named():
    with pytest.raises(InputError, match="cross_encoder is missing"):
        JudgeSettings.parse({})


def test_probabilities_are_the_cross_encoders_in_the_order_of_the_pairs(texts, tiny_cross_encoder, tmp_path):
    settings = JudgeSettings(cross_encoder=str(tiny_cross_encoder), pair_tokens=32)
    found = probabilities_of(PAIRS, texts, settings, tmp_path / "half", "cpu")
    encoder = CrossEncoder(settings.reads)
    queries, passages = texts.texts_of_queries(range(6)), texts.texts_of_passages(range(6))
    assert np.array_equal(found, encoder.encode_pairs(queries, passages, PAIRS).probabilities)
    assert len(set(found.tolist())) == len(PAIRS)


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_in_shards_they_are_those_of_one_process(texts, tiny_cross_encoder, tmp_path, monkeypatch, shards):
    monkeypatch.setattr(pair_shards, "PAIRS", 2)
    settings = JudgeSettings(cross_encoder=str(tiny_cross_encoder), pair_tokens=32)
    one = probabilities_of(PAIRS, texts, settings, tmp_path / "half", "cpu")
    sharding = Sharding(shards=shards)
    found = probabilities_of(PAIRS, texts, settings, tmp_path / "half", "cpu", (tmp_path / "shards", sharding))
    assert found.tobytes() == one.tobytes()
    files = sorted((tmp_path / "shards").iterdir())
    assert len(files) == min(shards, 3)
    times = [file.stat().st_mtime_ns for file in files]
    probabilities_of(PAIRS, texts, settings, tmp_path / "half", "cpu", (tmp_path / "shards", sharding))
    assert [file.stat().st_mtime_ns for file in files] == times, "no shard is read twice"


def test_interrupted_it_goes_on_after_its_last_block(texts, told, tmp_path, monkeypatch):
    monkeypatch.setattr(judge, "PAIRS", 2)
    names = texts.texts_of_queries(range(4)), texts.texts_of_passages(range(6))
    asked = [(names[0][query], names[1][passage]) for query, passage in PAIRS.tolist()]
    judged = told({pair: number / 10 for number, pair in enumerate(asked)})
    judged.fail_at = 2
    settings = JudgeSettings(cross_encoder="any")
    with pytest.raises(KeyboardInterrupt):
        probabilities_of(PAIRS, texts, settings, tmp_path / "half", "cpu")
    found = probabilities_of(PAIRS, texts, settings, tmp_path / "half", "cpu")
    assert found == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert [len(block) for block in judged.asked] == [2, 2, 1]
    read = [pair for block in judged.asked for pair in block]
    assert sorted(read) == sorted(asked), "no pair is read twice"
    assert [passage for _, passage in read] == sorted((p for _, p in read), key=names[1].index), "passage by passage"


def test_no_pairs_have_no_probabilities(texts, told, tmp_path):
    told({})
    found = probabilities_of(PAIRS[:0], texts, JudgeSettings(cross_encoder="any"), tmp_path / "half", "cpu")
    assert found.shape == (0,)
