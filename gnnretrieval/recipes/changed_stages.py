"""Which finished stages a run would make again, since settings or inputs changed. Nothing is made or opened."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.checkpoint import directory_on_disk, find_checkpoint
from gnnretrieval.encoders.encoding_plan import config_of, with_absolute_paths
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.trained import trained_settings
from gnnretrieval.encoders.vectors import VectorSettings
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.recipes.recipe import Recipe
from gnnretrieval.training.gnn.settings import TrainSettings, as_before

# Folder of the artifact whose hash is this input, for each stage.
_INPUTS = {
    "graph": {"features": "features"},
    "model": {"graph": "graph"},
    "model-joint": {"graph": "graph", "start": "model"},
    "embeddings": {"graph": "graph", "features": "features-joint"},  # and the model
    "embeddings-one-vector": {"graph": "graph", "features": "features-joint"},  # and the model
    "index": {"embeddings": "embeddings"},
    "index-one-vector": {"embeddings": "embeddings-one-vector"},
    "index-dual-encoder": {"features": "features"},
    "map": {"embeddings": "embeddings"},
    "baselines": {"graph": "graph", "features": "features"},
    "rankings": {
        "dual-encoder": "index-dual-encoder",
        "gnn-encoder": "index",
        "gnn-encoder-one-vector": "index-one-vector",
        "features of dual-encoder": "features",
    },
}
_WHOLE = ("features", "graph", "model", "model-joint")  # stages whose settings follow from the recipe alone


def changed_stages(
    recipe: Recipe, metas: Mapping[str, Mapping[str, Any]], dataset: Dataset | None, place: Path
) -> set[str]:
    """Folders of finished stages whose settings or inputs changed, and of those that are made from them.

    Args:
        recipe: The recipe.
        metas: ``meta.json`` of each finished stage by its folder, in the order of the stages.
        dataset: The dataset; None where there is none yet.
        place: Directory of the recipe.
    """
    changed: set[str] = set()
    for folder, meta in metas.items():
        before, inputs = dict(meta.get("config", {})), meta.get("inputs", {})
        now = _config(recipe, folder, before)
        if (
            (changed if folder != "index-dual-encoder" else "features" in changed)  # what it is made from
            or meta.get("updates")  # by another command, such as graph add
            or any(before.get(name) != value for name, value in now.items())
            or (folder in _WHOLE and now and bool(before.keys() - now.keys() - {"precision"}))  # a setting left out
            or any(
                name in inputs and source in metas and inputs[name] != metas[source].get("hash")
                for name, source in _INPUTS.get(folder, {}).items()
            )
            or (folder.startswith("embeddings") and inputs.get("gnn-encoder") != _last_model(recipe, metas))
            or _reads_otherwise(recipe, folder, inputs, place)
            or (dataset is not None and inputs.get("dataset", dataset.hash) != dataset.hash)
            or (dataset is not None and inputs.get("texts", dataset.texts_hash) != dataset.texts_hash)
            or (folder == "features" and recipe.vectors is None and is_other_encoder(recipe.encoder, meta))
        ):
            changed.add(folder)
    return changed


def _config(recipe: Recipe, folder: str, before: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by which a stage would be made now; those that only a run knows are left out."""
    if folder == "features" and recipe.vectors is not None:
        return recipe.vectors.model_dump(include=set(VectorSettings.model_fields))
    if folder == "features":
        try:
            settings = trained_settings(recipe.encoder)
        except GnnRetrievalError:
            return {}  # the run says what is wrong
        return _known(config_of(settings, "cpu"), settings.precision)
    if folder == "graph":
        return recipe.graph.model_dump(mode="json")
    if folder == "model":
        return _training(recipe.train)
    if folder == "model-joint" and recipe.joint is not None:
        return _training(recipe.joint)
    if folder in ("rankings", "baselines"):
        compare = {"split": recipe.compare.split, "depth": recipe.compare.depth}
        now: dict[str, Any] = {name: value for name, value in compare.items() if name in before}
        ranking = recipe.ranking if folder == "rankings" else None
        return now | {"ranking": ranking and ranking.model_dump(mode="json", exclude={"rerank"})}
    return {}


def _last_model(recipe: Recipe, metas: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Hash of the model that embeds the passages; None: it is not trained yet."""
    return metas.get("model" if recipe.joint is None else "model-joint", {}).get("hash")


def _reads_otherwise(recipe: Recipe, folder: str, inputs: Mapping[str, str], place: Path) -> bool:
    """Whether a stage reads pairs by another cross-encoder now; one that is not on this disk is not checked."""
    if folder == "graph":
        name, checkpoint = "cross-encoder", recipe.graph.cross_encoder if recipe.graph.reads_pairs else None
    elif folder == "rankings":
        name, checkpoint = "re-ranker", None if recipe.ranking is None else recipe.ranking.rerank
        if checkpoint is not None and (place / checkpoint).is_dir():
            checkpoint = str(place / checkpoint)
    else:
        return False
    if checkpoint is None or name not in inputs:
        return (checkpoint is None) != (name not in inputs)
    try:
        return directory_on_disk(checkpoint) is not None and find_checkpoint(checkpoint).hash != inputs[name]
    except GnnRetrievalError:
        return False  # the run says what is wrong, or the re-ranker is no checkpoint


def _training(settings: TrainSettings) -> dict[str, Any]:
    return _known(as_before(settings.model_dump(mode="json")), settings.precision)


def _known(config: dict[str, Any], precision: str) -> dict[str, Any]:
    """The settings without a precision that the device decides."""
    return {name: value for name, value in config.items() if name != "precision" or precision != "auto"}


def is_other_encoder(encoder: EncoderSettings, meta: Mapping[str, Any]) -> bool:
    """Whether the recipe names an encoder with other weights. One that is not on this disk is known by its name."""
    try:
        settings = with_absolute_paths(trained_settings(encoder))
        before, hashes = meta.get("encoder", {}), meta.get("checkpoint_hash", {})
        names = {"passage": settings.checkpoint, "query": settings.query_checkpoint or settings.checkpoint}
        was = {
            "passage": before.get("checkpoint"),
            "query": before.get("query_checkpoint") or before.get("checkpoint"),
        }
        for side, name in names.items():
            if side in hashes and directory_on_disk(name) is not None:
                if find_checkpoint(name).hash != hashes[side]:
                    return True
            elif was[side] is not None and name != was[side]:
                return True
    except GnnRetrievalError:
        return False  # the run says what is wrong
    return False
