"""What a graph is like, and whether it can help: figures and warnings."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnretrieval.graph.store import GraphStore

CROWDED = 15.0  # queries a passage above which a graph's passages turn into hubs
_PERCENTILES = (1, 25, 50, 75, 99)


def inspect_graph(store: GraphStore, most: int = 5) -> dict[str, Any]:
    """Figures of a store, as JSON values.

    Args:
        store: The graph.
        most: How many of the most-found passages to name.
    """
    n, m, k, d = store.num_queries, store.num_passages, store.k, store.dimension
    degrees = store.degrees()
    top = np.lexsort((np.arange(m), -degrees))[:most]
    with store.texts() as texts:
        passages = [texts.passage(int(row)) for row in top]
    recall = _recall_by_rank(store)
    figures: dict[str, Any] = {
        "passages": m,
        "queries": n,
        "k": k,
        "edges": n * k,
        "dimension": d,
        "edge_features": store.config["edge_features"],
        "queries_per_passage": {
            "mean": float(degrees.mean()),
            **{f"p{p}": float(np.percentile(degrees, p)) for p in _PERCENTILES},
            "max": int(degrees.max()),
            "share_never_found": float((degrees == 0).mean()),
        },
        "most_found": [
            {"id": passage.id, "title": passage.title, "queries": int(degrees[row])}
            for row, passage in zip(top, passages, strict=True)
        ],
        "labelled_passage_among_neighbours": {str(rank + 1): share for rank, share in enumerate(recall)},
        "scores": {f"p{p}": float(np.percentile(store.scores, p)) for p in _PERCENTILES},
        "bytes_on_disk": sum(file.stat().st_size for file in store.path.iterdir()),
        "bytes_to_embed": 4 * (n * d + 2 * min(m, 8192) * d * 4),
        "encoder": store.encoder_settings.checkpoint,
    }
    figures["warnings"] = _warnings(figures)
    return figures


def _recall_by_rank(store: GraphStore) -> list[float]:
    """Share of queries with a relevant passage among their first 1, 2, … k neighbours."""
    n, m = store.num_queries, store.num_passages
    relevant = np.unique(store.labels[:, 0] * m + store.labels[:, 1])
    pairs = np.arange(n)[:, None] * m + store.neighbors.astype(np.int64)
    found = np.maximum.accumulate(np.isin(pairs, relevant), axis=1)
    shares: list[float] = found.mean(0).tolist()
    return shares


def _warnings(figures: dict[str, Any]) -> list[str]:
    degrees, k = figures["queries_per_passage"], figures["k"]
    ceiling = figures["labelled_passage_among_neighbours"][str(k)]
    warnings = []
    if degrees["mean"] > CROWDED:
        fitting = max(1, int(CROWDED * figures["passages"] / figures["queries"]))
        warnings.append(
            f"{degrees['mean']:.1f} queries a passage: passages turn into hubs. Try k = {fitting} (graph build --k)."
        )
    if degrees["max"] > 50 * max(degrees["mean"], 1):
        hub = figures["most_found"][0]
        warnings.append(f"Passage {hub['id']} was found by {hub['queries']:,} queries: is its text boilerplate?")
    if degrees["share_never_found"] > 0.5:
        warnings.append(
            f"{100 * degrees['share_never_found']:.0f} % of the passages were found by no query: they stay as the "
            "dual-encoder has them. More training queries, or a larger k, would reach more."
        )
    if ceiling < 0.5:
        warnings.append(
            f"Only {100 * ceiling:.0f} % of the queries have their relevant passage among their {k} neighbours: "
            "a better dual-encoder, or a larger k, would help more than the graph."
        )
    return warnings


def format_graph(figures: dict[str, Any]) -> str:
    """The figures as text for a terminal."""
    degrees = figures["queries_per_passage"]
    recall = figures["labelled_passage_among_neighbours"]
    scores = figures["scores"]
    lines = [
        f"{figures['passages']:,} passages, {figures['queries']:,} queries, k = {figures['k']}: "
        f"{figures['edges']:,} edges; {figures['dimension']} dimensions, edge features "
        f"{', '.join(figures['edge_features']) or 'none'}; features by {figures['encoder']}",
        f"queries a passage: mean {degrees['mean']:.1f}, "
        + ", ".join(f"p{p} {degrees[f'p{p}']:.0f}" for p in _PERCENTILES)
        + f", most {degrees['max']:,}; found by none: {100 * degrees['share_never_found']:.1f} %",
        "relevant passage among the first: "
        + ", ".join(f"{rank}: {100 * share:.1f} %" for rank, share in recall.items()),
        "scores: " + ", ".join(f"p{p} {scores[f'p{p}']:.3f}" for p in _PERCENTILES),
        "most found: " + ", ".join(f"{row['id']} ({row['queries']:,})" for row in figures["most_found"]),
        f"{figures['bytes_on_disk'] / 2**20:.1f} MiB on disk; embedding takes about "
        f"{figures['bytes_to_embed'] / 2**20:.0f} MiB of memory",
    ]
    return "\n".join([*lines, *(f"Warning: {warning}" for warning in figures["warnings"])])
