"""A LlamaIndex retriever; needs the extra ``llama-index``."""

from __future__ import annotations

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from gnnretrieval.index.retriever import Retriever, System


class LlamaIndexRetriever(BaseRetriever):
    """Retrieves passages as LlamaIndex ``NodeWithScore``: text nodes with the passage's id, and its title as metadata.

    .. code-block:: python

        nodes = LlamaIndexRetriever(Retriever.open("graphs/docstrings"), k=5).retrieve("solve a banded system")

    Args:
        retriever: The retriever to search with.
        k: Passages per question.
        system: See :meth:`gnnretrieval.index.retriever.Retriever.search`.
    """

    def __init__(self, retriever: Retriever, k: int = 10, system: System | None = None) -> None:
        self._retriever, self._k, self._system = retriever, k, system
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [
            NodeWithScore(node=TextNode(id_=hit.id, text=hit.text, metadata={"title": hit.title}), score=hit.score)
            for hit in self._retriever.search(query_bundle.query_str, self._k, self._system)
        ]
