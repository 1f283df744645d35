"""ANCE: hard negatives from the encoder in training."""

import pytest
from killed_runs import killed_before

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.mining.examples import read_examples
from gnnretrieval.storage.places import scratch
from gnnretrieval.training.encoder.refresh import SOURCE, Refresher
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings
from gnnretrieval.training.encoder.train_encoder import train_dual_encoder

SETTINGS = DualEncoderTrainSettings(
    shared=True,
    epochs=3,
    batch_size=20,
    hard_negatives=2,
    learning_rate=1e-3,
    dropout=0.0,
    precision="float32",
    refresh_every=2,
    refresh_top=6,
)


def train(dataset, checkpoint, out, **more):
    encoder = EncoderSettings(checkpoint=str(checkpoint), precision="float32")
    return train_dual_encoder(Dataset.open(dataset), [], encoder, SETTINGS.model_copy(update=more), out)


def test_negatives_are_what_the_encoder_finds_and_what_is_not_relevant(
    tiny_dataset, tiny_checkpoint, tmp_path, monkeypatch
):
    found = []

    def looked_at(self, examples, relevance, step, directory, ranks, real=Refresher.refreshed):
        made = real(self, examples, relevance, step, directory, ranks)
        found.append((step, made))
        return made

    monkeypatch.setattr(Refresher, "refreshed", looked_at)
    train(tiny_dataset, tiny_checkpoint, tmp_path / "out")
    by_step = dict(found)
    assert all(candidate.source == SOURCE for example in by_step[0] for candidate in example.negatives)
    assert by_step[1] is by_step[0]
    labels = {example.query: {c.passage for c in example.positives} for example in by_step[0]}
    for example in by_step[2]:
        passages = [candidate.passage for candidate in example.negatives]
        assert not labels[example.query] & set(passages)
        assert 4 <= len(passages) <= 6
        assert [c.rank for c in example.negatives] == sorted(c.rank for c in example.negatives)
    assert by_step[2] != by_step[0]
    assert by_step[3] is by_step[2]
    assert by_step[4] != by_step[2]


def test_a_run_resumed_between_two_searches_has_the_negatives_of_the_first(tiny_dataset, tiny_checkpoint, tmp_path):
    whole = train(tiny_dataset, tiny_checkpoint, tmp_path / "whole")

    with killed_before(5):
        train(tiny_dataset, tiny_checkpoint, tmp_path / "resumed")
    partial = tmp_path / ".resumed.partial"
    assert len(list(read_examples(scratch(partial) / "negatives-2.jsonl"))) == 60
    assert train(tiny_dataset, tiny_checkpoint, tmp_path / "resumed").hash == whole.hash


def test_negatives_that_are_gone_end_the_run_with_a_sentence(tiny_dataset, tiny_checkpoint, tmp_path):
    with killed_before(4):
        train(tiny_dataset, tiny_checkpoint, tmp_path / "out")
    (scratch(tmp_path / ".out.partial") / "negatives-2.jsonl").unlink()
    with pytest.raises(GnnRetrievalError, match="mined at step 2 are missing"):
        train(tiny_dataset, tiny_checkpoint, tmp_path / "out")


def test_an_encoder_that_has_diverged_ends_the_run_with_a_sentence(tiny_dataset, tiny_checkpoint, tmp_path):
    with pytest.raises(GnnRetrievalError, match="training has diverged"):
        train(tiny_dataset, tiny_checkpoint, tmp_path / "out", learning_rate=1e30)
