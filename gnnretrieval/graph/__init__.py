"""The query-passage graph (§3.2): building, memory-mapped storage, masking for training, inspection."""

from typing import TYPE_CHECKING

from gnnretrieval.platform.lazy import lazy_exports

if TYPE_CHECKING:
    from gnnretrieval.graph.build import build_graph
    from gnnretrieval.graph.inspection.inspect import inspect_graph
    from gnnretrieval.graph.mask import mask_queries
    from gnnretrieval.graph.settings import GraphSettings
    from gnnretrieval.graph.store import Graph, open_graph
    from gnnretrieval.graph.subgraph import Subgraph

__all__ = ["Graph", "GraphSettings", "Subgraph", "build_graph", "inspect_graph", "mask_queries", "open_graph"]

__getattr__ = lazy_exports(
    __name__,
    {
        "GraphSettings": "settings",
        "Graph": "store",
        "Subgraph": "subgraph",
        "build_graph": "build",
        "inspect_graph": "inspection.inspect",
        "mask_queries": "mask",
        "open_graph": "store",
    },
)
