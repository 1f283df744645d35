"""Masked graph training: which queries leave the graph of an epoch and are trained on (§3.4, Algorithm 1, line 4)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.graph.subgraph import Rows

MaskUnit = Literal["query", "passage", "mixed", "none"]


def mask_queries(
    num_queries: int, labels: Rows, ratio: float, unit: MaskUnit, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Choose ``Q_t``, the queries of an epoch that are trained on and have no edges in its graph.

    Args:
        num_queries: ``n``.
        labels: ``(L, 2)`` relevant pairs (query row, passage row).
        ratio: ``β``: share of the queries to mask.
        unit: ``query``: any queries, as the paper. ``passage``: all queries of a passage together, so that training
            sees positives that only strangers' queries point to. ``mixed``: half of them so, half as the paper.
            ``none``: all are trained on, and none is masked (the ablation without masked graph training).
        rng: Source of the choice.

    Returns:
        ``(n,)`` True for the queries of ``Q_t``. There are ``round(β n)`` of them, at least 1 (by passage, up to one
        passage's queries more).
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
