"""Explaining a passage's embedding by the explainer for the model's layer."""

from __future__ import annotations

from gnnretrieval.encoders.features import Features
from gnnretrieval.graph.store import Graph
from gnnretrieval.index.attention_explainer import AttentionExplainer
from gnnretrieval.index.explanations import Explainer
from gnnretrieval.index.message_explainer import MessagesExplainer
from gnnretrieval.training.gnn.model import GNNEncoderModel


def explainer_of(
    model: GNNEncoderModel, store: Graph, features: Features | None = None, *, questions: bool = False
) -> Explainer:
    """The explainer for a model's layer.

    Args:
        model: The GNN-encoder.
        store: The graph.
        features: Features from the dual-encoder that was trained with the model, if one was.
        questions: Whether passages have several vectors, one for each training question; their own is explained.

    Raises:
        ArtifactError: The model was trained over another kind of graph, or the features are another encoder's; or it
            has no messages for several vectors.
    """
    model.require_fits(store)
    view = model.view(store, features)
    if questions:
        return MessagesExplainer(view, model.load_questions())
    return MessagesExplainer(view, model.load_messages()) if model.is_linear else AttentionExplainer(model, view)
