"""Artifacts of trained encoders, which can be given wherever a checkpoint can."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import ArtifactError
from gnnretrieval.storage.artifacts import kind_of, open_artifact, with_article

ENCODER, CROSS_ENCODER, READER = "encoder", "cross-encoder", "reader"
GNN_ENCODER, JOINT = "gnn-encoder", "joint_encoder"  # the kind, and its entry for a dual-encoder trained with it
QUERY, PASSAGE, MODEL, RE_RANKER = "query", "passage", "model", "re-ranker"  # folders of weights in these artifacts
_UNSET = {"auto", "none", "all", None, False}


def trained_settings(settings: EncoderSettings) -> EncoderSettings:
    """The settings completed by those of a trained encoder, if ``checkpoint`` is its artifact.

    The artifact has ``passage/`` and, if queries have separate weights, ``query/``, each a sentence-transformers
    checkpoint. A GNN-encoder's artifact has them too, if its dual-encoder was trained with it. Of such an artifact as
    ``query_checkpoint``, the query encoder is taken, with the prompt and the limit of its queries. Values that
    ``settings`` have stay.

    Raises:
        ArtifactError: The directory is another kind of artifact, or a GNN-encoder without a separate dual-encoder.
        InputError: The two do not fit together, as ``token_storage = int8`` and ``token_match = same``.
    """
    settings = _with_query_encoder(settings)
    place = Path(settings.checkpoint)
    trained = _trained(place)
    if trained is None:
        return settings
    update = {"checkpoint": str(place / PASSAGE)}
    if settings.query_checkpoint is None and (place / QUERY).is_dir():
        update["query_checkpoint"] = str(place / QUERY)
    return completed_by(settings.model_copy(update=update), trained, place)


def completed_by(settings: EncoderSettings, trained: Mapping[str, Any], place: Path | None = None) -> EncoderSettings:
    """The settings with those of a trained encoder where they have no value; ``place`` is named in errors.

    Raises:
        InputError: The two do not fit together.
    """
    update = {name: value for name, value in trained.items() if getattr(settings, name) in _UNSET}
    update = {name: value for name, value in update.items() if value not in _UNSET}
    return EncoderSettings.parse(settings.model_copy(update=update).model_dump(), place)  # a copy is not validated


def _with_query_encoder(settings: EncoderSettings) -> EncoderSettings:
    """The settings with the query encoder of the artifact that ``query_checkpoint`` is, if it is one."""
    place = None if settings.query_checkpoint is None else Path(settings.query_checkpoint)
    trained = None if place is None else _trained(place)
    if place is None or trained is None:
        return settings
    update: dict[str, Any] = {
        name: trained.get(name) for name in ("query_prompt", "query_max_tokens") if getattr(settings, name) is None
    }
    update["query_checkpoint"] = str(place / (QUERY if (place / QUERY).is_dir() else PASSAGE))
    return settings.model_copy(update=update)


def _trained(place: Path) -> dict[str, Any] | None:
    """The encoder's settings in its artifact; None if there is no artifact."""
    kind = kind_of(place)
    if kind is None:
        return None
    _require_encoder(place, kind, (ENCODER, GNN_ENCODER))
    settings: dict[str, Any] = open_artifact(place, kind, ("encoder",)).meta[
        JOINT if kind == GNN_ENCODER else "encoder"
    ]
    return settings


def weights_directory(place: Path) -> Path:
    """Directory of the weights in the artifact of a trained encoder or cross-encoder; any other directory as given.

    Raises:
        ArtifactError: The directory is another kind of artifact, a GNN-encoder without a separate dual-encoder, or an
            incomplete artifact.
    """
    kind = kind_of(place)
    if kind is None:
        return place
    _require_encoder(place, kind, (ENCODER, CROSS_ENCODER, GNN_ENCODER))
    open_artifact(place, kind)
    return place / (MODEL if kind == CROSS_ENCODER else PASSAGE)


def _require_encoder(place: Path, kind: str, kinds: tuple[str, ...]) -> None:
    if kind not in kinds:
        raise ArtifactError(f"{place}: this directory holds {with_article(kind)}, not an encoder.")
    if kind == GNN_ENCODER and not (place / PASSAGE).is_dir():
        joint = open_artifact(place, kind).config.get("mode") == "joint"
        why = "joint training gained nothing, so it kept" if joint else "it was trained over"
        raise ArtifactError(
            f"{place}: this GNN-encoder has no separate dual-encoder: {why} the one of its graph's features. "
            "Give that encoder; the GNN-encoder is embedded over the graph as it is, without --features."
        )
