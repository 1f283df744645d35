"""Layers, one operator per file: GAT layer (eq. 3-5), filter gate (eq. 9), GNN-encoder (eq. 6-10)."""

from typing import TYPE_CHECKING

from gnnretrieval.platform.lazy import lazy_exports

if TYPE_CHECKING:
    from gnnretrieval.nn.filter_gate import FilterGate
    from gnnretrieval.nn.gat_layer import GATLayer
    from gnnretrieval.nn.gnn_encoder import GNNEncoder, GraphBatch
    from gnnretrieval.nn.neighbors import Neighbors
    from gnnretrieval.nn.settings import GNNEncoderSettings

__all__ = ["FilterGate", "GATLayer", "GNNEncoder", "GNNEncoderSettings", "GraphBatch", "Neighbors"]

__getattr__ = lazy_exports(
    __name__,
    {
        "FilterGate": "filter_gate",
        "GATLayer": "gat_layer",
        "GNNEncoder": "gnn_encoder",
        "GNNEncoderSettings": "settings",
        "GraphBatch": "gnn_encoder",
        "Neighbors": "neighbors",
    },
)
