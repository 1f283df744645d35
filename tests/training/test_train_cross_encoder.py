import json

import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.cross_encoder import CrossEncoder
from gnnretrieval.encoders.settings import CrossEncoderSettings
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.mining.negatives import NegativeSettings, mine_negatives
from gnnretrieval.training.encoder.settings import CrossEncoderTrainSettings
from gnnretrieval.training.encoder.train_cross_encoder import train_cross_encoder

SETTINGS = CrossEncoderTrainSettings(
    epochs=30,
    batch_size=8,
    learning_rate=3e-3,
    negatives=1,
    max_tokens=40,
    precision="float32",
    patience=60,
    dev_every=10,
)


def mined(dataset, tmp_path, split, **settings):
    found = NegativeSettings(**{"top_k": 10, "split": split, **settings})
    return mine_negatives(Dataset.open(dataset), found, tmp_path / f"negatives-{split}", features=None)


@pytest.fixture(scope="module")
def marked_dataset(tmp_path_factory):
    """Passages that say bada, and are relevant to every query, and passages that say gogo, and are to none."""
    place = tmp_path_factory.mktemp("marked") / "dataset"
    (place / "qrels").mkdir(parents=True)
    words = ["dada", "kobe", "nari", "pozu", "sefi", "tuva", "zire", "mobo"]
    rows = [
        (f"{mark}{n}", f"lumi {mark} {words[n % 8]} {words[n // 3]}.") for mark in ("bada", "gogo") for n in range(12)
    ]
    corpus = [{"_id": id_, "title": "", "text": text} for id_, text in rows]
    queries = [{"_id": f"q{n}", "text": f"lumi {words[n % 8]} {words[n // 4]}?"} for n in range(24)]
    for name, records in (("corpus", corpus), ("queries", queries)):
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (place / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    for split, numbers in (("train", range(16)), ("dev", range(16, 24))):
        lines = [f"q{query}\tbada{passage}\t1\n" for query in numbers for passage in range(12)]
        (place / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    return place


@pytest.fixture(scope="module")
def trained(marked_dataset, tiny_checkpoint, tmp_path_factory):
    place = tmp_path_factory.mktemp("cross")
    parts = [mined(marked_dataset, place, split, top_k=24) for split in ("train", "dev")]
    made = train_cross_encoder(
        Dataset.open(marked_dataset), *parts, str(tiny_checkpoint), SETTINGS, place / "cross-encoder"
    )
    return made, parts[1]


def test_it_learns_what_tells_positives_from_negatives(trained):
    lines = (trained[0].path / "log.jsonl").read_text().splitlines()
    loss = [record["loss"] for line in lines if "loss" in (record := json.loads(line))]
    assert loss[-1] < loss[0] / 2
    assert trained[0].meta["dev"]["calibration"]["auc"] > 0.7


def test_its_artifact_stands_where_a_cross_encoders_name_does_with_the_calibrated_probability(trained, marked_dataset):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    made, dev = trained
    dataset = Dataset.open(marked_dataset)
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
    np.testing.assert_allclose(ours, theirs, atol=5e-5)  # parts of other sizes: sums round otherwise


def test_the_calibrated_probability_is_near_the_truth(trained):
    assert trained[0].meta["dev"]["calibration"]["expected_calibration_error"]["after"] < 0.1


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
    with pytest.raises(GnnRetrievalError, match="no training query has both a positive and a negative passage"):
        train_cross_encoder(Dataset.open(tiny_dataset), bare, dev, str(tiny_checkpoint), SETTINGS, tmp_path / "out")
