"""Checkpoints whose tokens have other numbers."""

import json
import shutil
from pathlib import Path


def with_other_vocabulary(checkpoint: Path, place: Path) -> Path:
    """A copy of a checkpoint whose tokens ``a`` and ``b`` have each other's number."""
    shutil.copytree(checkpoint, place)
    file = place / "tokenizer.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    words = values["model"]["vocab"]
    words["a"], words["b"] = words["b"], words["a"]
    file.write_text(json.dumps(values), encoding="utf-8")
    return place
