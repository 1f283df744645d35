"""Which passages of a batch are relevant to which of its queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from gnnretrieval.nn.label_messages import MessageGraph


class RelevantPassages:
    """Index of the relevant passages of each query.

    Args:
        graph: The labels.
    """

    def __init__(self, graph: MessageGraph) -> None:
        by_query = graph.labels[:, 0].argsort(stable=True)
        self._passages = graph.labels[by_query, 1]
        self._counts = torch.bincount(graph.labels[:, 0], minlength=len(graph.queries))
        self._ends = self._counts.cumsum(0)
        self._columns = torch.full((len(graph.passages),), -1, device=graph.device)

    def among(self, queries: Tensor, passages: Tensor) -> Tensor:
        """Whether each passage ``(C,)`` is relevant to each query ``(b,)``: ``(b, C)``."""
        counts, device = self._counts[queries], queries.device
        rows = torch.repeat_interleave(torch.arange(len(queries), device=device), counts)
        # the relevant passages of all queries, one list after the other (Σ counts,)
        starts = (self._ends[queries] - counts)[rows]
        firsts = (counts.cumsum(0) - counts)[rows]
        self._columns[passages] = torch.arange(len(passages), device=device)
        columns = self._columns[self._passages[starts + torch.arange(len(rows), device=device) - firsts]]
        self._columns[passages] = -1
        relevant = torch.zeros(len(queries), len(passages), dtype=torch.bool, device=device)
        relevant[rows[columns >= 0], columns[columns >= 0]] = True
        return relevant
