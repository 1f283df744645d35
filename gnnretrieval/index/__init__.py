"""FAISS indexes, search over them, and explanations of the results."""

from typing import TYPE_CHECKING

from gnnretrieval.platform.lazy import lazy_exports

if TYPE_CHECKING:
    from gnnretrieval.index.explanations import Explainer
    from gnnretrieval.index.faiss_index import Index, build_index, open_index
    from gnnretrieval.index.retriever import Retriever

__all__ = ["Explainer", "Index", "Retriever", "build_index", "open_index"]

__getattr__ = lazy_exports(
    __name__,
    {
        "Explainer": "explanations",
        "Index": "faiss_index",
        "Retriever": "retriever",
        "build_index": "faiss_index",
        "open_index": "faiss_index",
    },
)
