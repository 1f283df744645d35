"""Edges by the dual-encoder: its top-k, or its best passages where another source has too few."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.exact_search import exact_top_k, pair_scores
from gnnretrieval.encoders.faiss_search import faiss_top_k
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph.edges.sources import Wanted
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.progress import progress, say
from gnnretrieval.storage.arrays import blocks

_QUERIES = 1024  # queries per block


def by_dual_encoder(
    queries: NDArray[np.floating],
    passages: NDArray[np.floating],
    settings: GraphSettings,
    similarity: Similarity,
    device: str,
    resume: Path | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Rows and scores ``(n, k)`` of the ``k`` passages most similar to each query, best first."""
    if settings.search == "faiss":
        return faiss_top_k(queries, passages, settings.k, similarity, settings.probes, device=device)
    with progress("top-k", len(passages), "passages") as meter:
        return exact_top_k(
            queries, passages, settings.k, similarity, device=device, advance=meter.advance, resume=resume
        )


def by_source(
    settings: GraphSettings,
    wanted: Wanted,
    queries: NDArray[np.floating],
    passages: NDArray[np.floating],
    similarity: Similarity,
    device: str,
) -> tuple[NDArray[np.int64], int]:
    """As :func:`filled_up`, of the rankings by the settings' source.

    Raises:
        GnnRetrievalError: A run ranks no passage of the graph for any of the queries.
    """
    assert settings.source is not None
    rankings = settings.source.find(wanted)
    if wanted.run is not None and not any(rankings):
        raise GnnRetrievalError(
            "the run ranks no passage of the graph for any of the queries: check that its ids are the dataset's."
        )
    rows, filled = filled_up(rankings, queries, passages, wanted.k, similarity, device)
    if filled:
        say(
            f"{filled:,} of {rows.size:,} edges come from the dual-encoder: {settings.edges} has fewer than {wanted.k} "
            "passages for some queries"
        )
    return rows, filled


def filled_up(
    rankings: Sequence[Sequence[int]],
    queries: NDArray[np.floating],
    passages: NDArray[np.floating],
    k: int,
    similarity: Similarity,
    device: str,
) -> tuple[NDArray[np.int64], int]:
    """Fill each ranking of at most ``k`` passage rows up to ``k`` with the dual-encoder's best others.

    Returns:
        Passage rows ``(n, k)``, and the number of passages added.
    """
    rows = np.full((len(rankings), k), -1, dtype=np.int64)
    for number, ranking in enumerate(rankings):
        rows[number, : len(ranking)] = ranking
    short = np.flatnonzero((rows < 0).any(1))
    missing = int((rows < 0).sum())
    if len(short):
        with progress("filling up", len(passages), "passages") as meter:
            best, _ = exact_top_k(queries[short], passages, k, similarity, device=device, advance=meter.advance)
        for number, others in zip(short.tolist(), best.tolist(), strict=True):
            own = set(rankings[number])
            free = k - len(own)
            rows[number, k - free :] = [row for row in others if row not in own][:free]
    return rows, missing


def scores_of(
    rows: NDArray[np.integer],
    queries: NDArray[np.floating],
    passages: NDArray[np.floating],
    similarity: Similarity,
) -> NDArray[np.float32]:
    """The dual-encoder's similarity of each query to its passages ``(n, k)``."""
    scores = np.empty(rows.shape, dtype=np.float32)
    for part in blocks(len(rows), _QUERIES):
        scores[part] = pair_scores(queries[part][:, None], passages[rows[part]], similarity)
    return scores
