"""Training of GNN-encoders (Algorithm 1) and encoders, and the embeddings of a trained GNN-encoder."""

from typing import TYPE_CHECKING

from gnnretrieval.platform.lazy import lazy_exports

if TYPE_CHECKING:
    from gnnretrieval.training.gnn.embeddings import Embeddings, embed_passages, open_embeddings, update_embeddings
    from gnnretrieval.training.gnn.model import GNNEncoderModel, open_model
    from gnnretrieval.training.gnn.settings import TrainSettings
    from gnnretrieval.training.gnn.train import train_gnn

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
        "Embeddings": "gnn.embeddings",
        "GNNEncoderModel": "gnn.model",
        "TrainSettings": "gnn.settings",
        "embed_passages": "gnn.embeddings",
        "open_embeddings": "gnn.embeddings",
        "open_model": "gnn.model",
        "train_gnn": "gnn.train",
        "update_embeddings": "gnn.embeddings",
    },
)
