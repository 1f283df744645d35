"""Encoders that were trained here: their artifacts stand wherever a checkpoint's name does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gnnretrieval.artifacts import open_artifact
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import ArtifactError

ENCODER, CROSS_ENCODER = "encoder", "cross-encoder"
QUERY, PASSAGE, MODEL = "query", "passage", "model"  # folders of weights in these artifacts
_UNSET = {"auto", "none", None}


def trained_settings(settings: EncoderSettings) -> EncoderSettings:
    """The settings with what a trained encoder says of itself, where ``checkpoint`` is the artifact of one.

    Such an artifact holds ``passage/`` and, where queries have weights of their own, ``query/``, each a
    sentence-transformers checkpoint. What ``settings`` say themselves stays.

    Raises:
        ArtifactError: the directory is another kind of artifact.
    """
    place = Path(settings.checkpoint)
    kind = _kind(place)
    if kind is None:
        return settings
    if kind != ENCODER:
        raise ArtifactError(f"{place}: this is an artifact of kind {kind}, and an encoder is wanted here.")
    its = open_artifact(place, ENCODER, ("encoder",)).meta["encoder"]
    update: dict[str, Any] = {
        name: value for name, value in its.items() if getattr(settings, name) in _UNSET and value not in _UNSET
    }
    update["checkpoint"] = str(place / PASSAGE)
    if settings.query_checkpoint is None and (place / QUERY).is_dir():
        update["query_checkpoint"] = str(place / QUERY)
    return settings.model_copy(update=update)


def weights_directory(place: Path) -> Path:
    """Where the weights of a trained encoder's or cross-encoder's artifact lie; any other directory as it is.

    Raises:
        ArtifactError: the directory is another kind of artifact, or a half-made one.
    """
    kind = _kind(place)
    if kind is None:
        return place
    if kind not in (ENCODER, CROSS_ENCODER):
        raise ArtifactError(f"{place}: this is an artifact of kind {kind}, and an encoder is wanted here.")
    open_artifact(place, kind)
    return place / (PASSAGE if kind == ENCODER else MODEL)


def _kind(place: Path) -> str | None:
    """What artifact lies at ``place``; None where none does."""
    try:
        meta = json.loads((place / "meta.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return str(meta["kind"]) if isinstance(meta, dict) and {"kind", "format_version"} <= meta.keys() else None
