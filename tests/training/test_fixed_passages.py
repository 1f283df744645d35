"""ADORE: the query encoder alone, against passage vectors that do not change."""

import numpy as np
import pytest
import torch
from killed_runs import killed_before
from safetensors.torch import load_file

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.losses import contrastive_loss
from gnnretrieval.training.encoder.dual_towers import Start, make_towers
from gnnretrieval.training.encoder.encoded import write_passage_vectors
from gnnretrieval.training.encoder.fixed_passages import FixedPassagesTask, TrainedHead
from gnnretrieval.training.encoder.pair_data import Texts, draw, labelled_examples
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings
from gnnretrieval.training.encoder.train_encoder import train_dual_encoder

SETTINGS = DualEncoderTrainSettings(
    epochs=3,
    batch_size=20,
    learning_rate=1e-3,
    dropout=0.0,
    precision="float32",
    fixed_passages=True,
    fixed_top=6,
)


def train(dataset, checkpoint, out, **settings):
    encoder = EncoderSettings(checkpoint=str(checkpoint), precision="float32", **settings)
    return train_dual_encoder(Dataset.open(dataset), [], encoder, SETTINGS, out)


def test_the_query_encoder_learns_and_the_passage_encoder_stays(tiny_dataset, tiny_checkpoint, tmp_path):
    made = train(tiny_dataset, tiny_checkpoint, tmp_path / "out")
    before, queries, passages = (
        load_file(next(place.glob("**/model.safetensors")))
        for place in (tiny_checkpoint, made.path / "query", made.path / "passage")
    )
    assert all(torch.equal(before[name], passages[name]) for name in passages if name in before)
    assert any(not torch.equal(before[name], queries[name]) for name in queries if name in before)
    history = [record["dev"]["RR@10"] for record in [made.meta["dev"]["best"]]]
    assert history[0] > 0.1


def test_a_resumed_run_makes_the_same_encoder(tiny_dataset, tiny_checkpoint, tmp_path):
    whole = train(tiny_dataset, tiny_checkpoint, tmp_path / "whole")

    with killed_before(4):
        train(tiny_dataset, tiny_checkpoint, tmp_path / "resumed")
    assert train(tiny_dataset, tiny_checkpoint, tmp_path / "resumed").hash == whole.hash


@pytest.mark.parametrize("with_head", [False, True])
def test_a_batch_is_compared_with_the_best_passages_of_all_its_queries(
    with_head, tiny_dataset, tiny_checkpoint, tmp_path
):
    dataset, settings = Dataset.open(tiny_dataset), SETTINGS.model_copy(update={"batch_size": 3, "fixed_top": 4})
    start = Start.of(EncoderSettings(checkpoint=str(tiny_checkpoint), precision="float32"))
    towers = make_towers(start, shared=False, device=torch.device("cpu"), seed=0, dropout=0.0)
    write_passage_vectors(dataset, towers["passage"], tmp_path / "p.npy", 4096, "encoding")
    vectors = np.load(tmp_path / "p.npy")
    examples = labelled_examples(dataset, "train")
    texts = Texts.of(dataset, (example.query for example in examples), dataset.passage_ids)
    d = vectors.shape[1]
    matrix = torch.eye(d) + 0.1 * torch.randn(d, d, generator=torch.Generator().manual_seed(1))
    head = TrainedHead(matrix, 20.0, torch.device("cpu"), processes=2) if with_head else None
    given = (examples, texts, towers, start.similarity, settings, None, dataset.passage_ids, vectors)
    task = FixedPassagesTask(*given, head)
    batch = task.batch(0, 0)
    assert {item.tower for item in batch.items} == {"query"}
    rows = torch.randn(len(batch.items), vectors.shape[1], generator=torch.Generator().manual_seed(0))
    rows = start.similarity.prepare(rows).requires_grad_()
    loss = batch.loss(rows)
    loss.backward()

    drawn = draw(examples, settings.batch_size, 0, settings.seed, 0, 0)
    stored = start.similarity.prepare(torch.from_numpy(vectors))
    change = torch.zeros(d, d, requires_grad=True)
    now, asked = matrix + 20 * change, rows.detach()
    moved = start.similarity.prepare(stored @ now.T) if with_head else stored
    scores = start.similarity.scale * (start.similarity.prepare(asked @ now.T) if with_head else asked) @ moved.T
    searched = (asked @ matrix.T @ matrix if with_head else asked) @ stored.T
    row = {id_: number for number, id_ in enumerate(dataset.passage_ids)}
    positives = [row[one.positive.passage] for one in drawn]
    chosen = sorted({*searched.topk(4).indices.flatten().tolist(), *positives})
    relevant = torch.from_numpy(task.relevance.mask([one.query for one in drawn], dataset.passage_ids))
    wanted = contrastive_loss(
        scores[:, chosen], torch.tensor([chosen.index(p) for p in positives]), relevant[:, chosen]
    )
    assert torch.allclose(loss, wanted, atol=1e-5)
    assert len(chosen) < len(dataset.passage_ids)
    assert rows.grad.abs().sum() > 0
    if with_head:
        wanted.backward()
        assert torch.allclose(head.change.grad, change.grad / 2, atol=1e-5)  # each of two processes adds half


@pytest.mark.parametrize(
    ("settings", "needs"),
    [
        ({"shared": True}, "shared = false"),
        ({"loss": "pair"}, "loss = contrastive"),
        ({"refresh_every": 2}, "no refresh_every"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, needs):
    with pytest.raises(ValueError, match=f"fixed_passages trains the query encoder alone: it needs {needs}"):
        DualEncoderTrainSettings(fixed_passages=True, **settings)


def test_an_encoder_of_sentences_is_refused(tiny_dataset, tiny_checkpoint, tmp_path):
    with pytest.raises(GnnRetrievalError, match="fixed_passages needs one vector per passage"):
        train(tiny_dataset, tiny_checkpoint, tmp_path / "out", sentences="mean")
