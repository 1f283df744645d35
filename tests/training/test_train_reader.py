import json

import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.encoders.reader import Reader
from gnnretrieval.encoders.settings import EncoderSettings, ReaderSettings
from gnnretrieval.errors import ArtifactError
from gnnretrieval.mining.negatives import NegativeSettings, mine_negatives
from gnnretrieval.training.encoder.inspection import inspection, inspection_lines, open_trained
from gnnretrieval.training.encoder.loop import EncoderLoop
from gnnretrieval.training.encoder.settings import ReaderTrainSettings
from gnnretrieval.training.encoder.train_reader import train_reader

SETTINGS = ReaderTrainSettings(
    epochs=6,
    batch_size=8,
    learning_rate=5e-3,
    negatives=1,
    max_tokens=48,
    precision="float32",
    dropout=0.0,
    patience=9,
    dev_passages=1,
)


@pytest.fixture(scope="module")
def marked_dataset(tmp_path_factory):
    """Passages with one of eight names, which is the answer of every question about them."""
    place = tmp_path_factory.mktemp("marked") / "dataset"
    (place / "qrels").mkdir(parents=True)
    names, words = ["rada", "ruga", "buse", "make", "tuto", "teva", "rili", "namu"], ["tasu", "pevo", "zogu", "lanu"]
    corpus, queries, judged = [], [], []
    for number in range(48):
        some = [words[(number + step) % 4] for step in range(6)]
        some.insert(number % 6, names[number % 8])
        corpus.append({"_id": f"p{number}", "title": "", "text": " ".join(some) + "."})
        question = f"who is {words[number % 4]}?"
        queries.append({"_id": f"q{number}", "text": question, "metadata": {"answers": [names[number % 8]]}})
        judged.append(f"q{number}\tp{number}\t1\n")
    for name, records in (("corpus", corpus), ("queries", queries)):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for split, lines in (("train", judged[:40]), ("dev", judged[40:])):
        (place / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    return place


@pytest.fixture(scope="module")
def mined(marked_dataset, tmp_path_factory):
    place = tmp_path_factory.mktemp("mined")
    return [
        mine_negatives(Dataset.open(marked_dataset), NegativeSettings(top_k=4, split=split), place / split)
        for split in ("train", "dev")
    ]


@pytest.fixture(scope="module")
def trained(marked_dataset, mined, tiny_checkpoint, tmp_path_factory):
    place = tmp_path_factory.mktemp("reader") / "reader"
    return train_reader(Dataset.open(marked_dataset), *mined, str(tiny_checkpoint), SETTINGS, place)


def test_it_learns_to_answer_and_its_artifact_reads(trained, marked_dataset):
    history = inspection(trained)["history"]
    assert trained.meta["dev"]["best"]["dev"]["F1"] > history[0]["dev"]["F1"] + 0.4
    reader = Reader(ReaderSettings(reader=str(trained.path), precision="float32"))
    assert reader.tokens.max_tokens == 48
    dataset = Dataset.open(marked_dataset)
    passages = list(dataset.passages())[:40]
    names = {"rada", "ruga", "buse", "make", "tuto", "teva", "rili", "namu"}
    read = reader.read(["who is tasu?"] * 40, passages)
    said = [passage.text[one.start : one.end] for passage, one in zip(passages, read, strict=True)]
    assert sum(bool(names & {*answer.split()}) for answer in said) > 20


def test_its_log_can_be_inspected(trained):
    lines = inspection_lines(inspection(open_trained(trained.path)))
    assert lines[0].startswith("reader from ")
    assert any(line.split() == ["dev:", "step", "EM", "F1"] for line in lines)


def test_a_reader_is_no_encoder(trained):
    with pytest.raises(ArtifactError, match="this directory holds a reader, not an encoder"):
        DualEncoder(EncoderSettings(checkpoint=str(trained.path)))


def test_a_resumed_training_has_the_bytes_of_an_unbroken_one(
    trained, marked_dataset, mined, tiny_checkpoint, tmp_path, monkeypatch
):
    step, out = EncoderLoop.step, tmp_path / "reader"

    def broken(self, number):
        if number == 12:
            raise KeyboardInterrupt
        return step(self, number)

    given = (Dataset.open(marked_dataset), *mined, str(tiny_checkpoint), SETTINGS, out)
    with monkeypatch.context() as patched:
        patched.setattr(EncoderLoop, "step", broken)
        with pytest.raises(KeyboardInterrupt):
            train_reader(*given)
    assert (
        train_reader(*given).meta["files"]["model/model.safetensors"]
        == (trained.meta["files"]["model/model.safetensors"])
    )
