"""The graph's figures that the explorer shows, counted in one pass over its edges."""

from __future__ import annotations

from gnnretrieval.graph.inspection.connectivity import most_found, recall_by_rank
from gnnretrieval.graph.interchange import shown_queries
from gnnretrieval.graph.store import Graph
from gnnretrieval.serve.schemas import GraphAnswer, MostFoundOut

_MOST = 5


def graph_summary(store: Graph, version: str, no_what_if: str | None = None) -> GraphAnswer:
    """Sizes, degrees and recall of a graph; the answer names ``version``, and why a what-if is refused."""
    degrees = store.degrees()
    labelled, recall = recall_by_rank(store)
    return GraphAnswer(
        version=version,
        passages=store.num_passages,
        queries=len(shown_queries(store)),
        k=store.k,
        edges=int(degrees.sum()),
        dimension=store.dimension,
        edge_features=store.edge_names,
        queries_per_passage=float(degrees.mean()),
        most_queries=int(degrees.max()),
        share_never_found=float((degrees == 0).mean()),
        recall=recall[-1] if labelled else None,
        no_what_if=no_what_if,
        most_found=[MostFoundOut(**dict(row)) for row in most_found(store, degrees, _MOST)],
    )
