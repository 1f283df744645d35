"""Registry of graph layers for eq. 3-5: one function and one line of the table per layer.

Reading the table does not load torch: the command line's help needs the names only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnnretrieval.nn.gat_layer import GATLayer
    from gnnretrieval.nn.pyg_layers import PyGLayer, Shape


def _gat(shape: Shape) -> GATLayer:
    from gnnretrieval.nn.gat_layer import GATLayer

    return GATLayer(shape.width, shape.width // shape.heads, shape.heads, shape.edge_dim or None, dropout=shape.dropout)


def _gatv2(shape: Shape) -> PyGLayer:
    from torch_geometric.nn import GATv2Conv

    from gnnretrieval.nn.pyg_layers import PyGLayer

    conv = GATv2Conv(*shape.ends, add_self_loops=False, **shape.attention)
    return PyGLayer(conv, shape, eye="lin_l", zero=("att",), attends=True)


def _transformer(shape: Shape) -> PyGLayer:
    from torch_geometric.nn import TransformerConv

    from gnnretrieval.nn.pyg_layers import PyGLayer

    conv = TransformerConv(*shape.ends, root_weight=False, **shape.attention)
    return PyGLayer(conv, shape, eye="lin_value", zero=("lin_query", "lin_edge"), attends=True)


def _sage(shape: Shape) -> PyGLayer:
    from torch_geometric.nn import SAGEConv

    from gnnretrieval.nn.pyg_layers import PyGLayer

    return PyGLayer(SAGEConv(shape.ends[0], shape.width, bias=False), shape, eye="lin_l", zero=("lin_r",), loops=False)


def _mean(shape: Shape) -> PyGLayer:
    from torch_geometric.nn import SimpleConv

    from gnnretrieval.nn.pyg_layers import PyGLayer

    return PyGLayer(SimpleConv(aggr="mean"), shape)


def _lightgcn(shape: Shape) -> PyGLayer:
    from torch_geometric.nn import LGConv

    from gnnretrieval.nn.pyg_layers import PyGLayer

    return PyGLayer(LGConv(normalize=False), shape, loops=False, weight=lambda degrees: degrees.clamp(min=1) ** -0.5)


_LAYERS: Mapping[str, Callable[[Shape], GATLayer | PyGLayer]] = {
    "gat": _gat,  # eq. 3-5, equal to PyG's GATConv
    "gatv2": _gatv2,  # Brody et al. 2022
    "transformer": _transformer,  # Shi et al. 2021
    "sage": _sage,  # Hamilton et al. 2017: mean of the neighbours; the target has a separate projection
    "mean": _mean,  # has no parameters
    "lightgcn": _lightgcn,  # He et al. 2020, normalised on the target's side only (their LightGCN-L)
}
GRAPH_LAYERS = tuple(_LAYERS)
WITHOUT_ATTENTION = ("sage", "mean", "lightgcn")  # these have no heads, and no weights to drop


def graph_layer(name: str, shape: Shape) -> GATLayer | PyGLayer:
    """The layer that is registered as ``name``, made for ``shape``."""
    return _LAYERS[name](shape)
