import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.training import TrainSettings, train_gnn
from gnnretrieval.training.gnn.model_card import _name_of


@pytest.mark.parametrize(
    ("checkpoint", "name"),
    [
        ("sentence-transformers/all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"),
        ("/home/a/models/mine", "mine"),
        ("./mine", "mine"),
        ("/home/a/work/dpr/passage", "dpr"),
    ],
)
def test_a_card_names_an_encoder_and_no_path_of_a_machine(checkpoint, name):
    assert _name_of(checkpoint) == name


def test_the_card_of_a_frozen_training(tiny_graph, tiny_dataset, tiny_features, tmp_path):
    settings = TrainSettings(epochs=2, batch_size=8, evidence=1.0)
    model = train_gnn(tiny_graph, Dataset.open(tiny_dataset), tiny_features, settings, tmp_path / "model")
    card = (model.path / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: gnnretrieval\n")
    assert "# GNN-encoder over tiny-bert" in card
    assert "40 passages, 60 training questions, each joined to 5 passages: those that it is labelled with" in card
    assert "started from" not in card
    assert "a passage attends to no question" not in card
    assert "gnnretrieval embed MODEL --out embeddings" in card
    assert "| epochs | 2 |" in card
    assert "encoder_learning_rate" not in card
    assert str(tmp_path) not in card


def test_the_card_says_what_else_a_model_learned_from(tiny_graph, tiny_dataset, tiny_features, tmp_path):
    inputs = (tiny_graph, Dataset.open(tiny_dataset), tiny_features)
    settings = TrainSettings(epochs=2, batch_size=8, evidence=1.0)
    first = train_gnn(*inputs, settings, tmp_path / "first")
    second = train_gnn(*inputs, settings.model_copy(update={"seed": 1}), tmp_path / "second", start=first)
    apart = settings.model_copy(update={"passage_edges": "hard-negatives"})
    third = train_gnn(*inputs, apart, tmp_path / "third")
    assert "- a passage attends to no question labelled with it" in (third.path / "README.md").read_text("utf-8")
    card = (second.path / "README.md").read_text(encoding="utf-8")
    assert "- started from the GNN-encoder `../first`" in card
    assert str(tmp_path) not in card
