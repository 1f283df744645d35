"""Edges of a bipartite graph, sorted by target, with a fixed or varying number per target."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Edges sorted by target (CSR): each target aggregates the features of its sources.

    If every target has the same number of edges (``width``), a sum over a target's edges is a sum over an axis of
    ``(targets, width)``; otherwise it is a segment reduction. Both sum in a fixed order, so results are repeatable.

    Attributes:
        sources: ``(E,)`` int64, source row of each edge.
        offsets: ``(targets + 1,)`` int64; target ``i`` has the edges ``offsets[i]:offsets[i + 1]``.
        width: Number of edges of every target; None: it varies.

    Raises:
        ValueError: ``width`` does not fit the number of edges.
    """

    sources: Tensor
    offsets: Tensor
    width: int | None = None
    _reversed: dict[int, Reversed] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.width is not None and self.num_targets * self.width != self.num_edges:
            raise ValueError(f"{self.num_edges} edges are not {self.width} for each of {self.num_targets} targets")

    @classmethod
    def regular(cls, sources: Tensor) -> Neighbors:
        """Edges from ``width`` sources to each target; ``sources`` is ``(targets, width)`` int64."""
        targets, width = sources.shape
        offsets = torch.arange(targets + 1, device=sources.device) * width
        return cls(sources.reshape(-1).contiguous(), offsets, width)

    @property
    def num_targets(self) -> int:
        """Number of target nodes."""
        return self.offsets.numel() - 1

    @property
    def num_edges(self) -> int:
        """Number of edges ``E``."""
        return self.sources.numel()

    def targets(self) -> Tensor:
        """Target row of each edge ``(E,)`` int64, computed once."""
        return self._targets

    def spread(self, values: Tensor) -> Tensor:
        """Copy the targets' values ``(targets, heads)`` to their edges ``(E, heads)``."""
        if self.width is None:
            return values.index_select(0, self.targets())
        return values[:, None].expand(-1, self.width, -1).reshape(self.num_edges, values.shape[1])

    def total(self, values: Tensor) -> Tensor:
        """Sum of ``(E, heads)`` values over each target's edges ``(targets, heads)``."""
        if self.width is None:
            return torch.segment_reduce(values, "sum", offsets=self.offsets, axis=0, unsafe=True)
        return values.view(self.num_targets, self.width, values.shape[1]).sum(1)

    def highest(self, values: Tensor) -> Tensor:
        """Maximum of ``(E, heads)`` values over each target's edges ``(targets, heads)``; -inf without edges."""
        if not self.width:
            return torch.segment_reduce(values, "max", offsets=self.offsets, axis=0, unsafe=True)
        return values.view(self.num_targets, self.width, values.shape[1]).amax(1)

    def reversed(self, num_sources: int) -> Reversed:
        """The same edges sorted by source, computed once; ``num_sources`` is the number of source rows."""
        if num_sources not in self._reversed:
            by_source, order = torch.sort(self.sources, stable=True)
            rows = torch.arange(num_sources + 1, device=by_source.device)
            edges = Neighbors(self.targets().index_select(0, order), torch.searchsorted(by_source, rows))
            self._reversed[num_sources] = Reversed(edges, order)
        return self._reversed[num_sources]

    @cached_property
    def _targets(self) -> Tensor:
        rows = torch.arange(self.num_targets, device=self.offsets.device)
        if self.width is not None:
            return rows.repeat_interleave(self.width)
        return rows.repeat_interleave(self.offsets.diff(), output_size=self.num_edges)


class Reversed(NamedTuple):
    """Edges sorted by source.

    Attributes:
        neighbors: The reversed edges: the targets that aggregate each source.
        order: ``(E,)`` int64, position of each of these edges among the edges sorted by target.
    """

    neighbors: Neighbors
    order: Tensor
