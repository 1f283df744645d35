"""Masked graph training (Algorithm 1), and the embeddings of a trained GNN-encoder."""

from typing import TYPE_CHECKING

from gnnretrieval.lazy import lazy_exports

if TYPE_CHECKING:
    from gnnretrieval.training.embeddings import Embeddings, embed_passages, open_embeddings, update_embeddings
    from gnnretrieval.training.model import GNNEncoderModel, open_model
    from gnnretrieval.training.settings import TrainSettings
    from gnnretrieval.training.train import train_gnn

__all__ = [
    "Embeddings",
    "GNNEncoderModel",
    "TrainSettings",
    "embed_passages",
    "open_embeddings",
    "open_model",
    "train_gnn",
    "update_embeddings",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Embeddings": "embeddings",
        "GNNEncoderModel": "model",
        "TrainSettings": "settings",
        "embed_passages": "embeddings",
        "open_embeddings": "embeddings",
        "open_model": "model",
        "train_gnn": "train",
        "update_embeddings": "embeddings",
    },
)
