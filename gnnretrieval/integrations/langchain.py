"""A LangChain retriever; needs the extra ``langchain``."""

from __future__ import annotations

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field

from gnnretrieval.index.retriever import Retriever, System


class LangChainRetriever(BaseRetriever):
    """Retrieves passages as LangChain ``Document``, with ``id``, ``title``, ``score`` and ``rank`` as metadata.

    .. code-block:: python

        retriever = LangChainRetriever(retriever=Retriever.open("graphs/docstrings"), k=5)
        documents = retriever.invoke("solve a banded system")

    Attributes:
        retriever: The retriever to search with.
        k: Passages per question.
        system: See :meth:`gnnretrieval.index.retriever.Retriever.search`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    retriever: Retriever
    k: int = Field(10, ge=1)
    system: System | None = None

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        with self.retriever.lock:  # LangChain's batches and parallel chains ask in threads
            hits = self.retriever.search(query, self.k, self.system)
        return [
            Document(
                id=hit.id,
                page_content=hit.text,
                metadata={"id": hit.id, "title": hit.title, "score": hit.score, "rank": hit.rank},
            )
            for hit in hits
        ]
