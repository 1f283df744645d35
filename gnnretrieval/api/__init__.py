"""The whole pipeline in a few calls, for notebooks and programs."""

from typing import TYPE_CHECKING

from gnnretrieval.platform.lazy import lazy_exports

if TYPE_CHECKING:
    from gnnretrieval.api.graph_retriever import GraphRetriever
    from gnnretrieval.api.training import train

__all__ = ["GraphRetriever", "train"]

__getattr__ = lazy_exports(__name__, {"GraphRetriever": "graph_retriever", "train": "training"})
