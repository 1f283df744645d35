"""Train a GNN-encoder into an artifact, choosing epoch and context scale on dev."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from gnnretrieval.artifacts import relative_to
from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.features import Features
from gnnretrieval.errors import ArtifactError, GnnRetrievalError
from gnnretrieval.graph.build import require_features_of
from gnnretrieval.graph.store import GraphStore
from gnnretrieval.making import make_artifact
from gnnretrieval.training.dev import DevSet
from gnnretrieval.training.gnn import GNNTraining
from gnnretrieval.training.held_out import held_out_queries
from gnnretrieval.training.model import KIND, WEIGHTS, GNNEncoderModel
from gnnretrieval.training.settings import TrainSettings


def train_gnn(
    store: GraphStore,
    dataset: Dataset,
    features: Features,
    settings: TrainSettings,
    out: str | Path,
    *,
    device: str = "cpu",
    overwrite: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> GNNEncoderModel:
    """Train a GNN-encoder over ``store`` into the artifact ``out``, choosing epoch and context scale on dev.

    Args:
        store: The graph.
        dataset: Its dev split is what is chosen by; without one, training queries are held out.
        features: Features of the dataset's queries: the ones that the store was made from.
        settings: How to train.
        out: Where the model goes.
        device: Where to compute.
        overwrite: Replace a model made from other inputs.
        say: Receives lines for the user.

    Raises:
        ArtifactError: the store was made from other features than the ones given.
        GnnRetrievalError: there are no questions to choose by.
    """
    if store.meta["inputs"]["features"] != features.hash:
        raise ArtifactError(
            f"{store.path}: made from other features than {features.path}. "
            "Give the features it was built from, or build the graph again."
        )
    if store.dimension % settings.encoder.heads:
        raise GnnRetrievalError(
            f"{settings.encoder.heads} heads cannot share the {store.dimension} dimensions of {store.path}: "
            "give a number that divides them."
        )
    require_features_of(dataset, features)
    if store.meta["inputs"]["dataset"] != dataset.hash:
        raise ArtifactError(
            f"{store.path}: the judgements of {dataset.path} changed since this graph was built. Build it again."
        )
    held_out = held_out_queries(store, dataset, features, settings.seed)

    def write(directory: Path) -> dict[str, Any]:
        if held_out.hidden is not None:
            count = int(held_out.hidden.sum())
            say(
                f"{count:,} queries are in train and {held_out.name}: they are kept out of training"
                if held_out.is_split
                else f"no dev split: {count:,} training queries are held out to choose by. They are like train: where "
                "test questions are about other documents, add a dev split like them"
            )
        dev = DevSet(held_out.queries, held_out.relevant, store.similarity, device)
        training = GNNTraining(store.view(k=settings.k), dev, settings, directory, device, held_out.hidden)
        weights = training.run()
        save_file({name: value.cpu().contiguous() for name, value in weights.items()}, directory / WEIGHTS)
        history = training.progress.history
        best = max(history, key=lambda record: record["dev"])
        chosen = {"epoch": best["epoch"], "context_scale": best["context_scale"], "RR@10": best["dev"]}
        _say_what_was_chosen(best, history, settings, say)
        return {
            "dimension": store.dimension,
            "edge_dim": store.edge_dim,
            "edge_features": store.edge_names,
            "encoder": store.meta["encoder"],
            "checkpoint_hash": store.meta["checkpoint_hash"],
            "similarity": store.similarity.model_dump(),
            "dev": {
                "split": held_out.name,
                "queries": len(dev),
                "dual_encoder": {"RR@10": best["dev_by_scale"]["0.0"]},
                "chosen": chosen,
            },
            "dataset": dataset.provenance(),
            "made_from": {"graph": relative_to(out, store.path)},
        }

    artifact = make_artifact(
        out,
        KIND,
        inputs={"graph": store.hash, "dataset": dataset.hash},
        config=settings.model_dump(mode="json"),
        write=write,
        seed=settings.seed,
        overwrite=overwrite,
        say=say,
    )
    return GNNEncoderModel(artifact.path, artifact.meta)


def _say_what_was_chosen(
    best: dict[str, Any], history: list[dict[str, Any]], settings: TrainSettings, say: Callable[[str], None]
) -> None:
    if len(history) < settings.epochs:
        say(f"stopped after {len(history)} of {settings.epochs} epochs: none was better than epoch {best['epoch']}")
    say(
        f"kept epoch {best['epoch']} with context scale {best['context_scale']:g}: dev RR@10 {100 * best['dev']:.1f}, "
        f"dual-encoder {100 * best['dev_by_scale']['0.0']:.1f}"
    )
    if best["context_scale"] == 0:
        say("the graph did not help on dev: with context scale 0 the embeddings are the dual-encoder's own")
    elif best["context_scale"] == max(settings.context_scales):
        say("the largest context scale offered did best: larger ones may do better (--context-scales)")
