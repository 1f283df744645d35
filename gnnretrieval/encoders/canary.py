"""Canaries: vectors of a few fixed texts, which identify an encoder whose weights cannot be hashed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnretrieval.encoders.prompts import Side
from gnnretrieval.encoders.text_encoder import TextEncoder
from gnnretrieval.errors import ArtifactError

_SIDES: tuple[Side, ...] = ("query", "passage")
_TEXTS = (
    "What is the capital of France?",
    "The mitochondrion is the powerhouse of the cell.",
    "def add(a, b): return a + b",
)
_KEPT = 32  # numbers of each vector: enough to tell two models apart, and short in a meta.json
_AT_LEAST = 0.99  # cosine of a canary's vectors before and now; an endpoint's rounding varies a little

Canary = Mapping[str, Sequence[Sequence[float]]]


def canary_of(encoder: TextEncoder) -> dict[str, list[list[float]]]:
    """The first numbers of the canaries' vectors by side; an endpoint gets one small request per side."""
    return {side: np.round(encoder.encode(_TEXTS, side)[:, :_KEPT].astype(float), 6).tolist() for side in _SIDES}


def require_same_canary(encoder: TextEncoder, meta: Mapping[str, Any], path: Path) -> None:
    """Check that ``encoder`` still gives the vectors that it gave when the artifact at ``path`` was made.

    Args:
        encoder: The encoder as it is now.
        meta: The artifact's ``meta.json``. Without a canary nothing is checked: the hash of the weights identifies the
            encoder.
        path: The artifact.

    Raises:
        ArtifactError: The vectors differ.
    """
    if "canary" in meta and not is_same_canary(meta["canary"], canary_of(encoder)):
        raise ArtifactError(
            f"{path}: {encoder.settings.checkpoint} gives other vectors now than when this was made: its model has "
            "changed. Encode (with --overwrite), build and train again, or give back the model it had."
        )


def is_same_canary(before: Canary, after: Canary) -> bool:
    """Whether two canaries are of one model."""
    for side in _SIDES:
        one, other = np.array(before[side]), np.array(after[side])
        if one.shape != other.shape:
            return False
        lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
        alike = (one * other).sum(axis=1) >= _AT_LEAST * lengths  # of a sparse vector the kept numbers may be all 0
        if not (alike & (one.any(axis=1) == other.any(axis=1))).all():
            return False
    return True
