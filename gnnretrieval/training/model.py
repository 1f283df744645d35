"""The trained GNN-encoder as an artifact."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from gnnretrieval.artifacts import Artifact, open_artifact
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.graph.store import GraphStore
from gnnretrieval.nn.gnn_encoder import GNNEncoder
from gnnretrieval.nn.settings import GNNEncoderSettings

KIND = "gnn-encoder"
WEIGHTS = "model.safetensors"


class GNNEncoderModel(Artifact):
    """A trained GNN-encoder on disk."""

    @property
    def similarity(self) -> Similarity:
        """How its embeddings are compared."""
        return Similarity.parse(self.meta["similarity"], self.path / "meta.json")

    def load(self, device: str | torch.device = "cpu") -> GNNEncoder:
        """The module with its weights, in evaluation mode.

        Raises:
            InputError: the weights are damaged.
        """
        settings = GNNEncoderSettings.parse(self.config.get("encoder", {}), self.path / "meta.json")
        model = GNNEncoder(self.meta["dimension"], self.meta["edge_dim"], settings)
        try:
            model.load_state_dict(load_file(self.path / WEIGHTS))
        except (SafetensorError, RuntimeError) as error:
            raise InputError(f"these weights cannot be loaded ({error}). Train again.", self.path / WEIGHTS) from None
        return model.to(device).eval()

    def view(self, store: GraphStore) -> GraphStore:
        """The store as this model was trained over it: with no more passages a query."""
        return store.view(k=self.config.get("k"))

    def require_fits(self, store: GraphStore) -> None:
        """Refuse a store of other widths, or of another dual-encoder's features.

        Raises:
            ArtifactError: it does not fit.
        """
        if (store.dimension, store.edge_dim) != (self.meta["dimension"], self.meta["edge_dim"]):
            raise ArtifactError(
                f"{self.path}: trained for features of {self.meta['dimension']} and edges of {self.meta['edge_dim']} "
                f"dimensions, and {store.path} has {store.dimension} and {store.edge_dim}. Train over this store."
            )
        if store.edge_names != self.meta["edge_features"]:
            raise ArtifactError(
                f"{self.path}: trained with the edge features {', '.join(self.meta['edge_features']) or 'none'}, and "
                f"{store.path} has {', '.join(store.edge_names) or 'none'}. Train over this store."
            )
        if store.meta["checkpoint_hash"] != self.meta["checkpoint_hash"]:
            raise ArtifactError(
                f"{self.path}: trained over another dual-encoder's features than {store.path} holds. "
                "Train over this store, or give the one it was trained over."
            )


def open_model(path: str | Path) -> GNNEncoderModel:
    """Open the GNN-encoder at ``path``; errors as :func:`gnnretrieval.artifacts.open_artifact`."""
    artifact = open_artifact(
        path, KIND, ("dimension", "edge_dim", "edge_features", "similarity", "checkpoint_hash", "made_from")
    )
    return GNNEncoderModel(artifact.path, artifact.meta)
