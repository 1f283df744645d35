"""Checkpoints that are none, damaged, or another one than before."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint that a test may spoil."""
    return shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")


@pytest.fixture
def refuses_to_encode(made, refuses, tmp_path):
    """Encoding with a checkpoint must fail with a sentence, and make nothing."""

    def encode(checkpoint: object, *says: object) -> None:
        out = tmp_path / "features"
        refuses("encoder", "encode", made.data, "--checkpoint", checkpoint, "--out", out, says=says, out=out)

    return encode


def test_names_and_places_that_hold_no_checkpoint(refuses_to_encode, made, checkpoint):
    refuses_to_encode(
        "nobody/no-such-model", "'nobody/no-such-model'", "no such directory", "Give a checkpoint's directory"
    )
    refuses_to_encode("/no/such/directory", "no such directory")
    refuses_to_encode(made.data, made.data, "neither config.json nor modules.json")
    refuses_to_encode(checkpoint / "config.json", "this is a file")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b"{}"),
        ("modules.json", b"{"),
        ("tokenizer.json", b"{"),
        ("model.safetensors", b""),
        ("model.safetensors", b"no weights"),
    ],
)
def test_a_damaged_file_is_said_to_be(refuses_to_encode, checkpoint, file, content):
    assert (checkpoint / file).is_file()
    (checkpoint / file).write_bytes(content)
    refuses_to_encode(checkpoint, checkpoint)


def test_weights_that_were_cut_off(refuses_to_encode, checkpoint):
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    refuses_to_encode(checkpoint, checkpoint, "cannot be loaded")


def test_pickled_weights_are_not_opened(refuses_to_encode, checkpoint):
    (checkpoint / "model.safetensors").rename(checkpoint / "pytorch_model.bin")
    refuses_to_encode(checkpoint, checkpoint, "pickled", "safetensors")


def test_a_query_encoder_of_another_width_is_refused(made, tiny_checkpoint, narrow_checkpoint, refuses, tmp_path):
    out = tmp_path / "features"
    encoders = ("--checkpoint", tiny_checkpoint, "--query-checkpoint", narrow_checkpoint)
    refuses("encoder", "encode", made.data, *encoders, "--out", out, says=("16", "32"), out=out)


@pytest.fixture(scope="session")
def narrow_checkpoint(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face checkpoint of 16 dimensions with the tiny checkpoint's tokenizer."""
    from transformers import BertConfig, BertModel

    directory = tmp_path_factory.mktemp("narrow") / "narrow"
    config = BertConfig.from_pretrained(tiny_checkpoint, hidden_size=16, num_attention_heads=2, intermediate_size=16)
    BertModel(config).save_pretrained(directory)
    for file in tiny_checkpoint.glob("*token*"):
        shutil.copyfile(file, directory / file.name)
    return directory


def test_a_plain_hugging_face_checkpoint_is_pooled_by_its_mean(made, narrow_checkpoint, succeeds, tmp_path):
    encoder = ("--checkpoint", narrow_checkpoint, "--precision", "float32")
    outcome = succeeds("encoder", "encode", made.data, *encoder, "--out", tmp_path / "features")
    assert "16 dimensions" in outcome.out


def test_a_static_embedding_checkpoint_encodes(made, tiny_checkpoint, succeeds, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny_checkpoint / "tokenizer.json"))
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu")
    model.save(str(tmp_path / "static"))
    out = tmp_path / "features"
    assert (
        "16 dimensions"
        in succeeds("encoder", "encode", made.data, "--checkpoint", tmp_path / "static", "--out", out).out
    )


def test_other_features_than_the_graph_s_are_refused(made, other_features, refuses, tmp_path):
    out = tmp_path / "model"
    says = (made.graph, "built from other features", other_features)
    refuses("train", made.graph, "--features", other_features, "--out", out, says=says, out=out)


def test_a_graph_of_another_encoder_than_the_model_s_is_refused(made, other_features, refuses, succeeds, tmp_path):
    succeeds("graph", "build", made.data, other_features, "--out", tmp_path / "graph")
    out = tmp_path / "embeddings"
    says = (made.model, "another dual-encoder")
    refuses("embed", made.model, "--graph", tmp_path / "graph", "--out", out, says=says, out=out)


def test_the_same_encoder_from_another_place_is_the_same_encoder(made, checkpoint, succeeds, tmp_path):
    encoder = ("--checkpoint", checkpoint, "--precision", "float32", "--token-budget", 512)
    succeeds("encoder", "encode", made.data, *encoder, "--out", tmp_path / "features")
    succeeds("graph", "build", made.data, tmp_path / "features", "--out", tmp_path / "graph")
    succeeds("embed", made.model, "--graph", tmp_path / "graph", "--out", tmp_path / "embeddings")


def test_search_notices_that_the_encoder_has_other_weights_now(
    made, checkpoint, other_checkpoint, refuses, succeeds, tmp_path
):
    encoder = ("--checkpoint", checkpoint, "--precision", "float32")
    succeeds("encoder", "encode", made.data, *encoder, "--out", tmp_path / "features")
    succeeds("index", "build", tmp_path / "features", "--out", tmp_path / "index")
    shutil.copyfile(other_checkpoint / "model.safetensors", checkpoint / "model.safetensors")
    refuses("search", "anything", "--index", tmp_path / "index", says=(checkpoint,))


@pytest.fixture(scope="session")
def other_checkpoint(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny checkpoint with its word embeddings in another order: other weights of the same shape."""
    from safetensors.torch import load_file, save_file

    directory = shutil.copytree(tiny_checkpoint, tmp_path_factory.mktemp("other") / "tiny-bert")
    weights = load_file(directory / "model.safetensors")
    (name,) = (name for name in weights if name.endswith("word_embeddings.weight"))
    weights[name] = weights[name].flip(0).contiguous()
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    return directory


@pytest.fixture(scope="session")
def other_features(made, other_checkpoint: Path, succeeds, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features of the tiny dataset by that checkpoint."""
    out = tmp_path_factory.mktemp("other-features") / "features"
    succeeds("encoder", "encode", made.data, "--checkpoint", other_checkpoint, "--precision", "float32", "--out", out)
    return out
