"""Train from a graph alone: its dataset and features are opened from their recorded paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnnretrieval.graph.store import Graph
from gnnretrieval.training.gnn.model import GNNEncoderModel
from gnnretrieval.training.gnn.settings import TrainSettings
from gnnretrieval.training.gnn.train import train_gnn


def train(
    graph: Graph,
    out: str | Path,
    settings: TrainSettings | None = None,
    *,
    device: str = "cpu",
    overwrite: bool = False,
    **given: Any,
) -> GNNEncoderModel:
    """Train a GNN-encoder over ``graph`` into the artifact ``out``, and choose on dev how much of it to use.

    Args:
        graph: The graph; its dataset and features must be where they were when it was built.
        out: Where the model goes.
        settings: Settings of training; None: the defaults.
        device: Where to compute.
        overwrite: Replace a model made from other inputs.
        given: Single settings that replace those of ``settings``, such as ``seed=1`` or ``layer="gat"``.

    Raises:
        InputError: a setting is unknown, or its value does not fit.
        GnnRetrievalError: see :func:`gnnretrieval.training.gnn.train.train_gnn`.
    """
    parsed = TrainSettings.parse((settings.model_dump(exclude_unset=True) if settings else {}) | given)
    how: dict[str, Any] = {"device": device, "overwrite": overwrite}
    return train_gnn(graph, graph.dataset(), graph.features(), parsed, out, **how)
