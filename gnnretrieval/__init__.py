"""Graph-centric dense retrieval: a query-passage graph, and a GNN-encoder trained over it (GNN-encoder, 2022)."""

from typing import TYPE_CHECKING

from gnnretrieval.amx import avoid_hidden_amx
from gnnretrieval.lazy import lazy_exports

if TYPE_CHECKING:
    from gnnretrieval.index.retriever import Retriever

__all__ = ["Retriever", "__version__"]

__version__ = "0.1.0"

avoid_hidden_amx()  # before anything imports torch

__getattr__ = lazy_exports(__name__, {"Retriever": "index.retriever"})
