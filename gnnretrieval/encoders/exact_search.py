"""Exact top-k by inner product, blockwise: never a matrix of all queries by all passages."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import GnnRetrievalError

_BLOCK_SCORES = 32 * 2**20  # scores held at a time: 128 MiB in float32


def exact_top_k(
    queries: NDArray[np.floating],
    passages: NDArray[np.floating],
    k: int,
    similarity: Similarity,
    *,
    device: str | torch.device = "cpu",
    advance: Callable[[int], None] = lambda count: None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The ``k`` passages of highest similarity for every query.

    Args:
        queries: ``(n, d)``, any float type, may be memory-mapped.
        passages: ``(m, d)``, likewise.
        k: How many.
        similarity: How the two are compared.
        device: Where products are computed.
        advance: Called with the number of queries done.

    Returns:
        Rows ``(n, k)`` and scores ``(n, k)``, score descending, equal scores by row.

    Raises:
        GnnRetrievalError: ``k`` is above the number of passages.
    """
    m = len(passages)
    if not 0 < k <= m:
        raise GnnRetrievalError(f"k is {k}, and there are {m} passages: give a k from 1 to {m}.")
    rows, scores = np.empty((len(queries), k), dtype=np.int64), np.empty((len(queries), k), dtype=np.float32)
    passage_block = min(m, 65536)
    query_block = max(1, _BLOCK_SCORES // passage_block)
    for start in range(0, len(queries), query_block):
        asked = torch.from_numpy(similarity.prepare_array(queries[start : start + query_block])).to(device)
        best = torch.empty((len(asked), 0), device=device)
        found = torch.empty((len(asked), 0), dtype=torch.int64, device=device)
        for first in range(0, m, passage_block):
            block = torch.from_numpy(similarity.prepare_array(passages[first : first + passage_block])).to(device)
            block_scores, block_rows = _stable_top_k(asked @ block.T, k)
            best, order = _stable_top_k(torch.cat([best, block_scores], dim=1), k)
            found = torch.cat([found, block_rows + first], dim=1).gather(1, order)
        rows[start : start + len(asked)] = found.cpu().numpy()
        scores[start : start + len(asked)] = best.cpu().numpy()
        advance(len(asked))
    return rows, scores


def _stable_top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """As ``scores.topk(k)``, but equal scores by column, at the cut too: topk itself promises no order of them."""
    k = min(k, scores.shape[1])
    best, columns = scores.topk(min(k + 1, scores.shape[1]), dim=1)
    tied = (best[:, :-1] == best[:, 1:]).any(1)  # also with the first one left out
    if tied.any():
        best, columns = best.clone(), columns.clone()
        ordered, order = scores[tied].sort(dim=1, descending=True, stable=True)
        best[tied], columns[tied] = ordered[:, : best.shape[1]], order[:, : best.shape[1]]
    return best[:, :k], columns[:, :k]
