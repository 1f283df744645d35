import json
import shutil

import numpy as np
import pytest
import torch

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.training.encoder import loop as encoder_loop
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings
from gnnretrieval.training.encoder.train_encoder import train_dual_encoder

SETTINGS = DualEncoderTrainSettings(
    shared=True, epochs=3, batch_size=16, hard_negatives=0, learning_rate=1e-3, dropout=0.1, precision="float32"
)


def train(dataset, checkpoint, out, settings=SETTINGS, examples=(), **encoder):
    encoder = EncoderSettings(checkpoint=str(checkpoint), precision="float32", **encoder)
    return train_dual_encoder(Dataset.open(dataset), list(examples), encoder, settings, out)


@pytest.fixture(scope="module")
def trained(tiny_dataset, tiny_checkpoint, tmp_path_factory):
    return train(tiny_dataset, tiny_checkpoint, tmp_path_factory.mktemp("trained") / "encoder")


def test_training_finds_more_on_dev(trained):
    history = [json.loads(line) for line in (trained.path / "log.jsonl").read_text().splitlines()]
    dev = [record["dev"]["RR@10"] for record in history if "dev" in record]
    assert len(dev) == 4
    assert trained.meta["dev"]["best"]["dev"]["RR@10"] == max(dev) > dev[0] + 0.05


def test_it_opens_in_sentence_transformers_with_the_same_vectors(trained, tiny_dataset):
    from sentence_transformers import SentenceTransformer

    texts = [passage.full_text for passage in Dataset.open(tiny_dataset).passages()]
    theirs = SentenceTransformer(str(trained.path / "passage"), device="cpu").encode(texts)
    ours = DualEncoder(EncoderSettings(checkpoint=str(trained.path), precision="float32")).encode(texts, "passage")
    np.testing.assert_allclose(ours, theirs, atol=2e-6)
    before = DualEncoder(EncoderSettings(checkpoint=trained.meta["started_from"]["passage"], precision="float32"))
    assert np.abs(before.encode(texts, "passage") - ours).max() > 1e-2


def test_a_vector_is_the_same_alone_and_in_a_batch(trained, tiny_dataset):
    encoder = DualEncoder(EncoderSettings(checkpoint=str(trained.path), precision="float32"))
    texts = [passage.full_text for passage in Dataset.open(tiny_dataset).passages()]
    together = encoder.encode(texts, "passage")
    assert all(
        np.array_equal(encoder.encode([text], "passage")[0], row) for text, row in zip(texts, together, strict=True)
    )


def test_the_artifact_says_how_it_compares_and_cuts(tiny_dataset, tiny_checkpoint, tmp_path):
    settings = SETTINGS.model_copy(update={"shared": False})
    made = train(tiny_dataset, tiny_checkpoint, tmp_path / "e", settings, max_tokens=9, similarity="dot", scale=0.5)
    assert made.meta["dev"]["best"]["epoch"] > 0
    encoder = DualEncoder(EncoderSettings(checkpoint=str(made.path)))
    assert (encoder.similarity.normalize, encoder.similarity.scale) == (False, 0.5)
    assert encoder.passage_checkpoint.hash != encoder.query_checkpoint.hash
    assert made.meta["tokens"]["passage"]["cut"] == made.meta["tokens"]["passage"]["texts"]
    long, short = "bada gogo " * 20, "bada gogo " * 10
    assert np.array_equal(*encoder.encode([long, short], "passage"))


def test_a_resumed_run_is_the_unbroken_one(tiny_dataset, tiny_checkpoint, tmp_path, monkeypatch):
    whole = train(tiny_dataset, tiny_checkpoint, tmp_path / "whole")

    class Killed(BaseException):
        pass

    def killed_after(calls, real=encoder_loop.EncoderLoop.step):
        def step(self, number):
            if number == calls:
                raise Killed
            return real(self, number)

        return step

    for calls in (5, 9):  # in the second and in the third epoch
        monkeypatch.setattr(encoder_loop.EncoderLoop, "step", killed_after(calls))
        with pytest.raises(Killed):
            train(tiny_dataset, tiny_checkpoint, tmp_path / "resumed")
        monkeypatch.undo()
    resumed = train(tiny_dataset, tiny_checkpoint, tmp_path / "resumed")
    assert resumed.hash == whole.hash


def test_gradient_caching_trains_the_same_weights(tiny_dataset, tiny_checkpoint, tmp_path):
    made = [
        train(
            tiny_dataset,
            tiny_checkpoint,
            tmp_path / str(cached),
            SETTINGS.model_copy(update={"gradient_cache": cached, "precision": "bfloat16", "token_budget": 64}),
        )
        for cached in (False, True)
    ]
    weights = "passage/model.safetensors"
    assert made[0].meta["files"][weights] == made[1].meta["files"][weights]


def test_training_never_ends_worse_on_dev_than_it_began(tiny_dataset, tiny_checkpoint, tmp_path):
    settings = SETTINGS.model_copy(update={"learning_rate": 10.0, "optimizer": "adamw"})
    made = train(tiny_dataset, tiny_checkpoint, tmp_path / "diverged", settings)
    assert made.meta["dev"]["best"]["epoch"] == 0


def test_training_that_diverges_ends_with_a_sentence(tiny_dataset, tiny_checkpoint, tmp_path):
    settings = SETTINGS.model_copy(update={"learning_rate": 1e30, "optimizer": "adamw"})
    with pytest.raises(GnnRetrievalError, match=r"training has diverged: .* Give a lower learning_rate\."):
        train(tiny_dataset, tiny_checkpoint, tmp_path / "out", settings)


def test_one_set_of_weights_cannot_come_of_two(tiny_dataset, tiny_checkpoint, trained, tmp_path):
    separate = SETTINGS.model_copy(update={"shared": False})
    two = train(tiny_dataset, tiny_checkpoint, tmp_path / "two", separate)
    with pytest.raises(GnnRetrievalError, match="separate weights: train with shared = false"):
        train(tiny_dataset, two.path, tmp_path / "one")


def test_a_tokenizer_of_another_vocabulary_is_refused(tiny_dataset, tiny_checkpoint, tmp_path):
    from transformers import AutoTokenizer

    other = tmp_path / "other"
    shutil.copytree(tiny_checkpoint, other)
    tokenizer = AutoTokenizer.from_pretrained(other)
    tokenizer.add_tokens([f"new{number}" for number in range(10)])
    tokenizer.save_pretrained(other)
    with pytest.raises(GnnRetrievalError, match="Give the tokenizer that belongs to these weights"):
        train(tiny_dataset, other, tmp_path / "out")


def test_a_dataset_without_dev_holds_some_queries_out(tiny_dataset, tiny_checkpoint, tmp_path):
    alone = tmp_path / "alone"
    shutil.copytree(tiny_dataset, alone)
    (alone / "qrels" / "dev.tsv").unlink()
    made = train(alone, tiny_checkpoint, tmp_path / "out", SETTINGS.model_copy(update={"epochs": 1}))
    assert made.meta["dev"]["split"] == "held-out training queries"
    assert made.meta["examples"]["queries"] + made.meta["dev"]["queries"] == 60


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)
