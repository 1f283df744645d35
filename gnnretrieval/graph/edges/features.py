"""Cheap edge features: similarity, rank, BM25, a cross-encoder's probability, and the label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.graph.edges.vector_files import PROBABILITIES
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.progress import progress, say
from gnnretrieval.storage.arrays import ArrayWriter, blocks, load_array

_QUERIES = 4096  # queries per block
_MOST = float(np.finfo(np.float16).max)


def write_cheap_features(
    directory: Path,
    settings: GraphSettings,
    texts: TextStore,
    neighbors: NDArray[np.uint32],
    scores: NDArray[np.float32],
    bm25: BM25 | None,
    kept: tuple[NDArray[np.float16], int] | None = None,
) -> None:
    """Write ``edge_features.npy`` ``(n, k, c)`` in the order of ``settings.edge_features``.

    Args:
        directory: The store; has ``probabilities.npy`` if the features include ``probability``.
        settings: Names the features.
        texts: The queries' texts (for BM25) and judgements (for labels).
        neighbors: ``(n, k)`` passage rows.
        scores: ``(n, k)``, the dual-encoder's similarity.
        bm25: The index over the passages, if the features include ``bm25``.
        kept: BM25 shares ``(n', k)`` that an earlier version of the store has for the first queries, and their number.
    """
    (n, k), names = neighbors.shape, settings.edge_features
    probabilities = load_array(directory / f"{PROBABILITIES}.npy") if "probability" in names else None
    long = 0  # scores that float16 cannot hold
    reciprocal = 1 / np.arange(1, k + 1)
    relevant = _relevant_of(texts) if "label" in names else {}
    with (
        ArrayWriter(directory / "edge_features.npy", (n, k, len(names)), np.float16) as writer,
        progress("edge features", n, "queries") as meter,
    ):
        for part in blocks(n, _QUERIES):
            features = np.empty((part.stop - part.start, k, len(names)), dtype=np.float16)
            for column, name in enumerate(names):
                if name == "score":
                    long += int((np.abs(scores[part]) > _MOST).sum())
                    features[:, :, column] = np.clip(scores[part], -_MOST, _MOST)  # infinite, no mean would be finite
                elif name == "reciprocal_rank":
                    features[:, :, column] = reciprocal
                elif name == "probability":
                    assert probabilities is not None
                    features[:, :, column] = probabilities[part]
                elif name == "label":
                    for number, passages in enumerate(neighbors[part]):
                        features[number, :, column] = np.isin(passages, relevant.get(part.start + number, []))
                else:
                    assert bm25 is not None
                    _write_bm25_shares(features[:, :, column], part, texts, neighbors, bm25, kept)
            writer.write(features)
            meter.advance(len(features))
    if long:
        say(
            f"{long:,} scores beyond {_MOST:,.0f} are cut to it in the edge feature score: layers with edge features, "
            "such as gat, learn more from shorter vectors"
        )


def _write_bm25_shares(
    column: NDArray[np.float16],
    part: slice,
    texts: TextStore,
    neighbors: NDArray[np.uint32],
    bm25: BM25,
    kept: tuple[NDArray[np.float16], int] | None,
) -> None:
    """Fill a block's column ``(b, k)`` with BM25 shares: those of ``kept``, and new ones for the other queries."""
    known = 0
    if kept is not None:
        shares, count = kept
        known = min(max(count - part.start, 0), len(column))
        column[:known] = shares[part.start : part.start + known]
    rows = range(part.start + known, part.stop)
    for row, text in zip(rows, texts.texts_of_queries(list(rows)), strict=True):
        column[row - part.start] = bm25.shares_of_best(text, neighbors[row])


def _relevant_of(texts: TextStore) -> dict[int, list[int]]:
    """Rows of the relevant passages of each query, by row."""
    relevant: dict[int, list[int]] = {}
    for query, passage, relevance in texts.qrels():
        if relevance > 0:
            relevant.setdefault(query, []).append(passage)
    return relevant
