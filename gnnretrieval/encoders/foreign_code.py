"""Refuses checkpoints with code to run, pickled weights, or modules outside their directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnnretrieval.errors import InputError
from gnnretrieval.storage.json_files import read_json

_LIBRARY = "sentence_transformers."
_PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_REMEDY = "Give a checkpoint that transformers and sentence-transformers load by themselves."


def refuse_foreign_code(directory: Path) -> None:
    """Refuse an adapter, and a checkpoint that names code to run (``auto_map``, other packages) or files outside of it.

    For code, the libraries would ask at the terminal, run it, or load their own class for another class's weights.

    Raises:
        InputError: The checkpoint is refused, or a configuration is not JSON.
    """
    for file in sorted(directory.rglob("*config.json")):
        config = read_json(file, "checkpoint's configuration")
        if isinstance(config, dict) and config.get("auto_map"):
            raise InputError(f"this checkpoint brings code to run (auto_map); none is run. {_REMEDY}", file)
        if file.name == "adapter_config.json":
            raise InputError("this is an adapter of another checkpoint. Merge the two and save the result.", file)
    for file in sorted(directory.rglob("modules.json")):
        for module in _modules(file):
            if not module["type"].startswith(_LIBRARY):
                raise InputError(f"this checkpoint names other code ({module['type']}); none is run. {_REMEDY}", file)
            if not (file.parent / module["path"]).resolve().is_relative_to(file.parent.resolve()):
                raise InputError(f"its module {module['path']!r} lies outside of the checkpoint. {_REMEDY}", file)


def refuse_pickles(directory: Path) -> None:
    """Refuse a checkpoint without safetensors, or with a folder of only pickled weights: loading a pickle runs code.

    Raises:
        InputError: The checkpoint is refused; the message says how to convert it.
    """
    unread = (
        file
        for pattern in _PICKLES
        for file in sorted(directory.rglob(pattern))
        if not list(file.parent.glob("*.safetensors"))
    )
    pickled = next(unread, None)
    if pickled is not None or not list(directory.rglob("*.safetensors")):
        why = f"pickled weights ({pickled.relative_to(directory)}), which are not opened" if pickled else "no weights"
        raise InputError(
            f"this checkpoint has {why}. Save it again where it is trusted: save_pretrained(DIRECTORY) of its model "
            "writes safetensors.",
            directory,
        )


def _modules(file: Path) -> list[dict[str, str]]:
    modules: Any = read_json(file, "list of a checkpoint's modules")
    well_formed = isinstance(modules, list) and all(
        isinstance(module, dict) and isinstance(module.get("type"), str) and isinstance(module.get("path"), str)
        for module in modules
    )
    if not well_formed or not modules:
        raise InputError("this is no list of a checkpoint's modules, each with its type and path.", file)
    return list(modules)
