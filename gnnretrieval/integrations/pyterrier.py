"""A PyTerrier transformer from queries to ranked documents; needs the extra ``pyterrier``. It starts no Java."""

from __future__ import annotations

import pandas as pd
import pyterrier as pt

from gnnretrieval.index.retriever import Retriever, System


class PyTerrierRetriever(pt.Transformer):
    """Adds ranked passages to each query: ``docno``, ``title``, ``text``, ``score`` and ``rank`` (from 0).

    .. code-block:: python

        gnn = PyTerrierRetriever(Retriever.open("graphs/docstrings"), k=100)
        dual = PyTerrierRetriever(gnn.retriever, k=100, system="dual-encoder")
        pt.Experiment([dual, gnn], topics, qrels, ["recip_rank"])

    Args:
        retriever: The retriever to search with.
        k: Passages per query.
        system: See :meth:`gnnretrieval.index.retriever.Retriever.search`.
    """

    def __init__(self, retriever: Retriever, k: int = 1000, system: System | None = None) -> None:
        super().__init__()
        self.retriever, self.k, self.system = retriever, k, system

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Ranked passages for queries with ``qid`` and ``query``; other columns are kept."""
        pt.validate.query_frame(inp, extra_columns=["query"])
        results = self.retriever.search_all(inp["query"].tolist(), self.k, self.system)
        columns = ["docno", "title", "text", "score", "rank"]
        rows = [(hit.id, hit.title, hit.text, hit.score, hit.rank - 1) for hits in results for hit in hits]
        queries = inp.drop(columns=[name for name in columns if name in inp]).reset_index(drop=True)
        repeated = queries.loc[[row for row, hits in enumerate(results) for _ in hits]].reset_index(drop=True)
        ranked = pd.DataFrame(rows, columns=columns).astype({"score": float, "rank": int})
        return pd.concat([repeated, ranked], axis=1)
