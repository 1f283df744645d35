"""Training by a graph alone: what it was made of is found by itself."""

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
    """Train a GNN-encoder over ``graph`` into the artifact ``out``; how much of it is used is chosen on dev.

    Args:
        graph: The graph; its dataset and features lie where they lay when it was built.
        out: Where the model goes.
        settings: How to train; None: by the defaults.
        device: Where to compute.
        overwrite: Replace a model made from other inputs.
        given: Single settings instead, such as ``seed=1`` or ``layer="gat"``.

    Raises:
        InputError: there is no such setting, or it does not fit.
        GnnRetrievalError: as :func:`gnnretrieval.training.gnn.train.train_gnn`.
    """
    parsed = TrainSettings.parse(given) if settings is None else settings.model_copy(update=given)
    how: dict[str, Any] = {"device": device, "overwrite": overwrite}
    return train_gnn(graph, graph.dataset(), graph.features(), parsed, out, **how)
