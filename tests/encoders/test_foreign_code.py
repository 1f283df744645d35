"""Checkpoints that want code to run: none of it runs, nobody is asked, and each ends in a sentence."""

import ast
import io
import json
import os
import pickle
import shutil
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

import gnnretrieval
from gnnretrieval.encoders import loading
from gnnretrieval.encoders.checkpoint import Checkpoint, find_checkpoint
from gnnretrieval.encoders.cross_encoder import CrossEncoder
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.encoders.loading import load_classifier, load_sentence_transformer, load_tokenizer
from gnnretrieval.encoders.settings import CrossEncoderSettings, EncoderSettings
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.encoders.token_counts import EncoderTokens
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.training.encoder.cross_task import PairTower
from gnnretrieval.training.encoder.towers import TextTower

CPU = torch.device("cpu")
ENTRIES = {
    "dual-encoder": lambda path: DualEncoder(EncoderSettings(checkpoint=path)),
    "token counts": lambda path: EncoderTokens(EncoderSettings(checkpoint=path)),
    "cross-encoder": lambda path: CrossEncoder(CrossEncoderSettings(checkpoint=path)),
    "cross-encoder training": lambda path: PairTower(find_checkpoint(path), CPU, 32, None),
    "dual-encoder and joint training": lambda path: TextTower(find_checkpoint(path), Similarity(True, 20.0), CPU),
}
LOADERS = {
    "model": lambda checkpoint: load_sentence_transformer(checkpoint, CPU),
    "classifier": load_classifier,
    "tokenizer": load_tokenizer,
}


class Pickled:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def marker(tmp_path, monkeypatch):
    """What the code would write; ``y`` is typed at every question."""
    typed = io.StringIO("y\n" * 9)
    monkeypatch.setattr("sys.stdin", typed)
    monkeypatch.syspath_prepend(str(tmp_path / "checkpoint"))
    yield tmp_path / "marker"
    assert not (tmp_path / "marker").exists(), "its code ran"
    assert typed.tell() == 0, "it was asked at the terminal"


def with_code(directory: Path, marker: Path) -> None:
    (directory / "crafted.py").write_text(
        f"import os\nos.mkdir({str(marker)!r})\n"
        "from transformers import PretrainedConfig as Config, BertModel as Model, BertTokenizer as Tokenizer\n"
    )


def edit(path: Path, **values: object) -> None:
    found = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**found, **values}))


def config_code(directory: Path) -> None:
    names = dict.fromkeys(("AutoModel", "AutoModelForSequenceClassification"), "crafted.Model")
    edit(directory / "config.json", model_type="crafted", auto_map={"AutoConfig": "crafted.Config", **names})


def known_type_code(directory: Path) -> None:
    edit(directory / "config.json", auto_map={"AutoModel": "crafted.Model"})


def tokenizer_code(directory: Path) -> None:
    tokenizer = {"AutoTokenizer": ["crafted.Tokenizer", None]}
    edit(directory / "tokenizer_config.json", tokenizer_class="Crafted", auto_map=tokenizer)


def module_code(directory: Path) -> None:
    (directory / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "crafted.Model"}]))


def outside_module(directory: Path) -> None:
    module = {"idx": 0, "name": "0", "path": "../", "type": "sentence_transformers.models.Transformer"}
    (directory / "modules.json").write_text(json.dumps([module]))


def adapter(directory: Path) -> None:
    edit(directory / "adapter_config.json", auto_mapping={"base_model_class": "Model", "parent_library": "crafted"})


def pickled(directory: Path) -> None:
    for file in directory.rglob("*.safetensors"):
        file.unlink()
    (directory / "pytorch_model.bin").write_bytes(pickle.dumps(Pickled(directory.parent / "marker")))


CRAFTED = {
    config_code: "brings code to run",
    known_type_code: "brings code to run",
    tokenizer_code: "brings code to run",
    module_code: "names other code",
    outside_module: "outside of the checkpoint",
    adapter: "adapter",
    pickled: "save_pretrained",
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
@pytest.mark.parametrize("craft", CRAFTED)
def test_no_entry_runs_a_checkpoints_code(entry, craft, tiny_cross_encoder, tmp_path, marker):
    directory = shutil.copytree(tiny_cross_encoder, tmp_path / "checkpoint")
    with_code(directory, marker)
    craft(directory)
    with pytest.raises(GnnRetrievalError, match=CRAFTED[craft]) as refused:
        entry(str(directory))
    assert str(directory) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize("craft", [config_code, tokenizer_code, module_code])
def test_the_loaders_refuse_code_too(load, craft, tiny_cross_encoder, tmp_path, marker):
    directory = shutil.copytree(tiny_cross_encoder, tmp_path / "checkpoint")
    with_code(directory, marker)
    craft(directory)
    with pytest.raises(GnnRetrievalError, match=CRAFTED[craft]):
        load(Checkpoint("crafted", directory, "directory", ""))


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize("craft", [config_code, tokenizer_code, module_code, pickled])
def test_without_any_guard_the_libraries_run_no_code(load, craft, tiny_cross_encoder, tmp_path, marker, monkeypatch):
    if craft is module_code and int(version("sentence-transformers").split(".")[0]) < 6:
        pytest.skip("sentence-transformers before 6.0 runs a module's code; the guards are all there is")
    monkeypatch.setattr(loading, "refuse_foreign_code", lambda directory: None)
    directory = shutil.copytree(tiny_cross_encoder, tmp_path / "checkpoint")
    with_code(directory, marker)
    craft(directory)
    with suppress(GnnRetrievalError):  # what needs none of it may load
        load(Checkpoint("crafted", directory, "directory", ""))


def test_a_checkpoint_that_keeps_both_forms_is_read_from_safetensors(tiny_checkpoint, tmp_path, marker):
    directory = shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
    (directory / "pytorch_model.bin").write_bytes(pickle.dumps(Pickled(marker)))
    assert DualEncoder(EncoderSettings(checkpoint=str(directory))).dimension == 32


def test_checkpoints_are_loaded_in_one_module():
    package = Path(gnnretrieval.__file__).parent
    loading, sparse = [], []
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "sentence_transformers":
                sparse += [path.name for name in node.names if name.name == "SparseEncoder"]
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            in_memory = name == "SentenceTransformer" and [word.arg for word in node.keywords][:1] == ["modules"]
            code = name == "load" and getattr(getattr(node.func, "value", None), "id", "") in ("torch", "pickle")
            if code or (name in ("from_pretrained", "SentenceTransformer", "pipeline") and not in_memory):
                loading.append(path.relative_to(package).as_posix())
    assert sparse == ["loading.py"]
    assert set(loading) == {"encoders/loading.py"}
    assert len(loading) == 3


def test_no_loader_may_be_given_leave_to_run_code():
    source = (Path(gnnretrieval.__file__).parent / "encoders" / "loading.py").read_text(encoding="utf-8")
    assert source.count("**_UNTRUSTED") == 5
    assert '"trust_remote_code": False' in source
