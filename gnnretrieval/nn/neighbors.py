"""Who each target node hears: edges sorted by target, with or without a fixed number a target."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Edges sorted by target, in compressed sparse rows.

    Where every target has the same number of edges (``width``), sums over a target's edges are sums over an axis of
    ``(targets, width)``; otherwise they are segment reductions. Both run in a fixed order, so that they are repeatable.

    Attributes:
        sources: ``(E,)`` int64, source row of each edge.
        offsets: ``(targets + 1,)`` int64; the edges of target ``i`` are ``offsets[i]:offsets[i + 1]``.
        width: Edges of every target, where all have the same number; None otherwise.

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
        """Neighbors of equally many sources a target, from their rows ``(targets, width)`` int64."""
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
        """Target row of each edge ``(E,)``, made once."""
        return self._targets

    def spread(self, values: Tensor) -> Tensor:
        """Each edge's value of its target ``(E, heads)``, from ``(targets, heads)``."""
        if self.width is None:
            return values.index_select(0, self.targets())
        return values[:, None].expand(-1, self.width, -1).reshape(self.num_edges, values.shape[1])

    def total(self, values: Tensor) -> Tensor:
        """Sum over each target's edges ``(targets, heads)``, from ``(E, heads)``."""
        if self.width is None:
            return torch.segment_reduce(values, "sum", offsets=self.offsets, axis=0, unsafe=True)
        return values.view(self.num_targets, self.width, values.shape[1]).sum(1)

    def highest(self, values: Tensor) -> Tensor:
        """Maximum over each target's edges ``(targets, heads)``, minus infinity where there is none."""
        if not self.width:
            return torch.segment_reduce(values, "max", offsets=self.offsets, axis=0, unsafe=True)
        return values.view(self.num_targets, self.width, values.shape[1]).amax(1)

    def reversed(self, num_sources: int) -> Reversed:
        """The same edges sorted by source, of which there are ``num_sources``; made once."""
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
        neighbors: The edges turned round: whom each source is heard by.
        order: ``(E,)`` int64, place of each of these edges among the edges sorted by target.
    """

    neighbors: Neighbors
    order: Tensor
