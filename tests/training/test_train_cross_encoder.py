import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.cross_encoder import CrossEncoder
from gnnretrieval.encoders.settings import CrossEncoderSettings
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.mining.negatives import NegativeSettings, mine_negatives
from gnnretrieval.training.encoder_settings import CrossEncoderTrainSettings
from gnnretrieval.training.train_cross_encoder import train_cross_encoder

SETTINGS = CrossEncoderTrainSettings(
    epochs=12, batch_size=8, learning_rate=2e-3, negatives=2, max_tokens=40, precision="float32", patience=12
)


def mined(dataset, tmp_path, split, **settings):
    found = NegativeSettings(top_k=10, split=split, **settings)
    return mine_negatives(Dataset.open(dataset), found, tmp_path / f"negatives-{split}", features=None)


@pytest.fixture(scope="module")
def trained(tiny_dataset, tiny_checkpoint, tmp_path_factory):
    place = tmp_path_factory.mktemp("cross")
    parts = [mined(tiny_dataset, place, split) for split in ("train", "dev")]
    made = train_cross_encoder(
        Dataset.open(tiny_dataset), *parts, str(tiny_checkpoint), SETTINGS, place / "cross-encoder"
    )
    return made, parts[1]


def test_it_learns_to_rank_its_candidates(trained):
    best = trained[0].meta["dev"]["best"]
    assert best["epoch"] > 0
    assert trained[0].meta["dev"]["calibration"]["auc"] > 0.7


def test_its_artifact_stands_where_a_cross_encoders_name_does_with_the_calibrated_probability(trained, tiny_dataset):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    made, dev = trained
    dataset = Dataset.open(tiny_dataset)
    encoder = CrossEncoder(CrossEncoderSettings(checkpoint=str(made.path), max_tokens=40, precision="float32"))
    example = next(iter(dev.examples()))
    texts = {passage.id: passage.full_text for passage in dataset.passages()}
    query = next(query.text for query in dataset.queries() if query.id == example.query)
    passages = [texts[c.passage] for c in (*example.positives, *example.negatives)]
    pairs = np.array([[0, row] for row in range(len(passages))])
    ours = encoder.encode_pairs([query], passages, pairs).probabilities
    model = AutoModelForSequenceClassification.from_pretrained(made.path / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(made.path / "model")
    tokens = tokenizer([query] * len(passages), passages, padding=True, return_tensors="pt")
    theirs = model(**tokens).logits.sigmoid()[:, 0].detach().numpy()
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_calibration_brings_the_probability_nearer_to_the_truth(trained):
    error = trained[0].meta["dev"]["calibration"]["expected_calibration_error"]
    assert error["after"] < error["before"]


def test_the_same_seed_gives_the_same_bytes(tiny_dataset, tiny_checkpoint, tmp_path):
    parts = [mined(tiny_dataset, tmp_path, split) for split in ("train", "dev")]
    settings = SETTINGS.model_copy(update={"epochs": 1})
    made = [
        train_cross_encoder(Dataset.open(tiny_dataset), *parts, str(tiny_checkpoint), settings, tmp_path / name)
        for name in ("one", "two")
    ]
    assert made[0].hash == made[1].hash


def test_examples_without_a_negative_cannot_be_learned_from(tiny_dataset, tiny_checkpoint, tmp_path):
    dev = mined(tiny_dataset, tmp_path, "dev")
    bare = mined(tiny_dataset, tmp_path, "train", negatives=0)
    with pytest.raises(GnnRetrievalError, match="no query with a positive and a negative passage to learn from"):
        train_cross_encoder(Dataset.open(tiny_dataset), bare, dev, str(tiny_checkpoint), SETTINGS, tmp_path / "out")
