"""Masked graph training: the queries that leave an epoch's graph to be trained on (§3.4, Algorithm 1, line 4)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.graph.subgraph import Rows

MaskUnit = Literal["query", "passage", "mixed", "none"]


def mask_queries(
    num_queries: int, labels: Rows, ratio: float, unit: MaskUnit, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Choose ``Q_t``: the queries that an epoch trains on. Their edges are not in the epoch's graph.

    Args:
        num_queries: ``n``.
        labels: ``(L, 2)`` relevant pairs (query row, passage row).
        ratio: ``β``, share of the queries to mask.
        unit: ``query``: random queries (the paper). ``passage``: all queries of random passages, so that training sees
            positives with edges only from queries that are not about them. ``mixed``: half by passage, half by query.
            ``none``: all queries are trained on and keep their edges (the ablation without masking).
        rng: Generator that draws them.

    Returns:
        ``(n,)`` bool, True for the queries of ``Q_t``: ``round(β n)`` of them, at least 1. By passage there may be
        more, because the last passage's queries stay together.
    """
    if unit == "none":
        return np.ones(num_queries, dtype=bool)
    wanted = max(1, round(ratio * num_queries))
    masked = np.zeros(num_queries, dtype=bool)
    if unit != "query":
        by_passage = labels[np.argsort(labels[:, 1], kind="stable")]
        passages, starts = np.unique(by_passage[:, 1], return_index=True)
        ends = np.append(starts[1:], len(by_passage))
        enough = wanted if unit == "passage" else wanted // 2
        count = 0
        for group in rng.permutation(len(passages)):
            if count >= enough:
                break
            queries = by_passage[starts[group] : ends[group], 0]
            count += int((~masked[queries]).sum())
            masked[queries] = True
    if unit != "passage":
        left = np.flatnonzero(~masked)
        masked[rng.permutation(left)[: max(0, wanted - int(masked.sum()))]] = True
    return masked
