"""RocketQAv2: a dual-encoder and a cross-encoder trained together."""

import numpy as np
import pytest
import torch

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.cross_encoder import CrossEncoder
from gnnretrieval.encoders.settings import CrossEncoderSettings, EncoderSettings
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.losses import joint_listwise_loss
from gnnretrieval.mining import mine_negatives
from gnnretrieval.mining.examples import Candidate, Example
from gnnretrieval.mining.negatives import NegativeSettings
from gnnretrieval.training.encoder.dual_towers import Start, make_towers
from gnnretrieval.training.encoder.joint_task import JointListwiseTask, WidePairTower
from gnnretrieval.training.encoder.pair_data import Texts
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings
from gnnretrieval.training.encoder.train_encoder import train_dual_encoder

CPU = torch.device("cpu")
SETTINGS = DualEncoderTrainSettings(
    shared=True,
    epochs=2,
    batch_size=20,
    learning_rate=1e-3,
    dropout=0.0,
    precision="float32",
    hard_negatives=2,
    pair_tokens=48,
)
TEXTS = Texts(
    {"q1": "bada gogo?", "q2": "kobe"}, {"p1": "Bada dada.", "p2": "Kobe sefi.", "p3": "Lumi.", "p4": "Gogo."}
)


def example(query, positive, *negatives):
    return Example(query, (Candidate(positive, "label"),), tuple(Candidate(id_, "bm25") for id_ in negatives))


@pytest.fixture(scope="module")
def mined(tiny_dataset, tmp_path_factory):
    place = tmp_path_factory.mktemp("mined") / "negatives"
    return mine_negatives(Dataset.open(tiny_dataset), NegativeSettings(top_k=6), place)


def settings_of(checkpoint, **more):
    return EncoderSettings(checkpoint=str(checkpoint), precision="float32", max_tokens=32, **more)


def test_the_loss_of_a_batch_is_that_of_its_lists(tiny_checkpoint, tiny_cross_encoder):
    start = Start.of(settings_of(tiny_checkpoint))
    towers = make_towers(start, shared=True, device=CPU, seed=0, dropout=0.0)
    pair = WidePairTower(find_checkpoint(str(tiny_cross_encoder)), CPU, 48, 0.0, towers["query"].width)
    examples = [example("q1", "p1", "p2", "p3"), example("q2", "p2", "p4"), example("q2", "p2")]
    task = JointListwiseTask(pair, examples, TEXTS, towers, start.similarity, SETTINGS, None)
    assert len(task.examples) == 2  # one has no negative
    batch = task.batch(0, 0)
    every = {**towers, "pair": pair}
    with torch.no_grad():
        rows = torch.cat([every[item.tower].rows([item]) for item in batch.items])
    assert [item.tower for item in batch.items] == ["query"] * 2 + ["passage"] * 4 + ["pair"] * 5
    lists = {"q1": ["p1", "p2", "p3"], "q2": ["p2", "p4"]}
    scores, logits, mask = torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool)
    with torch.no_grad():
        for row, (query, own) in enumerate(lists.items()):
            asked = towers["query"].rows(towers["query"].items("query", [TEXTS.queries[query]]))
            for place, id_ in enumerate(own):
                text = TEXTS.passages[id_]
                there = towers["passage"].rows(towers["passage"].items("passage", [text]))
                scores[row, place] = start.similarity.scale * float(asked @ there.T)
                logits[row, place] = float(pair.rows(pair.items([TEXTS.queries[query]], [text]))[0, 0])
                mask[row, place] = True
    torch.testing.assert_close(batch.loss(rows), joint_listwise_loss(scores, logits, mask), atol=1e-5, rtol=1e-4)
    batch.loss(torch.cat([every[item.tower].rows([item]) for item in batch.items])).backward()
    for tower in (towers["query"], pair):  # both learn from it
        assert any(bool(parameter.grad.any()) for parameter in tower.trained() if parameter.grad is not None)


def test_both_are_trained_and_the_re_ranker_opens(tiny_checkpoint, tiny_cross_encoder, tiny_dataset, mined, tmp_path):
    dataset = Dataset.open(tiny_dataset)
    made = train_dual_encoder(
        dataset,
        [mined],
        settings_of(tiny_checkpoint),
        SETTINGS.model_copy(update={"patience": 5}),
        tmp_path / "made",
        cross_encoder=str(tiny_cross_encoder),
    )
    assert made.meta["inputs"]["cross-encoder"] == find_checkpoint(str(tiny_cross_encoder)).hash
    texts = ["bada gogo?", "kobe"], ["bada dada.", "lumi."], np.array([[0, 0], [1, 1]])
    before, after = (
        CrossEncoder(CrossEncoderSettings(checkpoint=str(place), precision="float32", max_tokens=48))
        .encode_pairs(*texts)
        .probabilities
        for place in (tiny_cross_encoder, made.path / "re-ranker")
    )
    best = made.meta["dev"]["best"]["step"]
    assert (np.abs(after - before).max() > 1e-3) == (best > 0)


@pytest.mark.parametrize(
    ("more", "encoder", "says"),
    [
        ({"hard_negatives": 0}, {}, "among its hard negatives"),
        ({}, {"sentences": "mean"}, "needs one vector per text"),
        ({"loss": "kl"}, {}, "leave loss and refresh_every out"),
        ({"refresh_every": 2}, {}, "leave loss and refresh_every out"),
    ],
)
def test_what_does_not_fit_is_refused(
    more, encoder, says, tiny_checkpoint, tiny_cross_encoder, tiny_dataset, mined, tmp_path
):
    with pytest.raises(GnnRetrievalError, match=says):
        train_dual_encoder(
            Dataset.open(tiny_dataset),
            [mined],
            settings_of(tiny_checkpoint, **encoder),
            SETTINGS.model_copy(update=more),
            tmp_path / "made",
            cross_encoder=str(tiny_cross_encoder),
        )
