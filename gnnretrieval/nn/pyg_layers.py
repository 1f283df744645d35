"""PyTorch Geometric's own convolutions over our neighbours, in the place of eq. 3-5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gnnretrieval.nn.neighbors import Neighbors
from gnnretrieval.nn.segment_softmax import at_least_float32


class Shape(NamedTuple):
    """What a layer is made for: width ``d`` of nodes, heads that share it, width of edge features, dropout."""

    width: int
    heads: int
    edge_dim: int
    dropout: float

    @property
    def attention(self) -> dict[str, Any]:
        """Arguments of PyG's attention layers, in the order-free part of their signatures."""
        return {"heads": self.heads, "edge_dim": self.edge_dim or None, "dropout": self.dropout, "bias": False}

    @property
    def ends(self) -> tuple[tuple[int, int], int]:
        """Widths of source and target, and of a head's output."""
        return (self.width, self.width), self.width // self.heads


class PyGLayer(nn.Module):
    """A bipartite convolution of PyTorch Geometric with :class:`~gnnretrieval.nn.GATLayer`'s arguments and start.

    Attention and sums are float32, whatever autocast says.

    Args:
        conv: ``conv((sources, targets), edge_index, edge_attr)`` where it has edge features or weights.
        shape: What it is made for.
        eye: Name of the projection of the sources; the identity at the start, as eq. 3's ``W_s``.
        zero: Names of the parameters that are zero at the start, so that all neighbours weigh the same.
        loops: Whether each target has a self-loop, with the self-loop's edge feature.
        attends: Whether it has attention weights and edge features; else all edges of a target weigh the same.
        weight: Weight of each edge of a target by how many it has ``(T,)``; None: the convolution's own.
    """

    def __init__(
        self,
        conv: nn.Module,
        shape: Shape,
        *,
        eye: str | None = None,
        zero: tuple[str, ...] = (),
        loops: bool = True,
        attends: bool = False,
        weight: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.conv, self.shape = conv, shape
        self._eye, self._zero, self._loops, self._attends, self._weight = eye, zero, loops, attends, weight

    def reset_parameters(self) -> None:
        """The convolution's own start."""
        self.conv.reset_parameters()  # type: ignore[operator]

    def start_as_identity(self) -> None:
        """Output the mean of each target's neighbours, unprojected."""
        with torch.no_grad():
            for name, parameter in self.conv.named_parameters():
                if name.partition(".")[0] == self._eye:
                    nn.init.eye_(parameter)
                elif name.partition(".")[0] in self._zero:
                    parameter.zero_()

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        neighbors: Neighbors,
        edge_features: Tensor | None = None,
        loop_feature: Tensor | None = None,
        edge_moments: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Aggregated context of every target ``(T, d)``."""
        with torch.autocast(source.device.type, enabled=False):
            nodes, edges, values = self._given(source, target, neighbors, edge_features, loop_feature, edge_moments)
            context: Tensor = self.conv(nodes, edges, *([] if values is None else [values]))
            return context[-len(target) :] if isinstance(nodes, Tensor) else context

    def attention(
        self,
        source: Tensor,
        target: Tensor,
        neighbors: Neighbors,
        edge_features: Tensor | None = None,
        loop_feature: Tensor | None = None,
        edge_moments: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Weights of the edges ``(E, heads)`` and of the self-loops ``(T, heads)``; they sum to 1 by target."""
        if not self._attends:
            share = 1 / (neighbors.offsets.diff() + self._loops).clamp(min=1)[:, None]
            loops = share if self._loops else torch.zeros_like(share)
            return neighbors.spread(share), loops
        with torch.autocast(source.device.type, enabled=False):
            nodes, edges, values = self._given(source, target, neighbors, edge_features, loop_feature, edge_moments)
            _, (_, weights) = self.conv(nodes, edges, values, return_attention_weights=True)
        return weights[: neighbors.num_edges], weights[neighbors.num_edges :]

    def _given(
        self,
        source: Tensor,
        target: Tensor,
        neighbors: Neighbors,
        edge_features: Tensor | None,
        loop_feature: Tensor | None,
        edge_moments: tuple[Tensor, Tensor] | None,
    ) -> tuple[Any, Tensor, Tensor | None]:
        """Nodes, edges ``(2, E)`` and edge features or weights, as PyG takes them; loops are the last edges."""
        source, target = at_least_float32(source), at_least_float32(target)
        senders, hearers = neighbors.sources, neighbors.targets()
        rows = torch.arange(len(target), device=target.device)
        nodes: Any = (source, target)
        if self._loops:
            nodes = (torch.cat([source, target]), target)
            senders, hearers = torch.cat([senders, rows + len(source)]), torch.cat([hearers, rows])
        if self._weight is not None:  # such a convolution takes one kind of node
            weights = neighbors.spread(self._weight(neighbors.offsets.diff())[:, None])[:, 0]
            return torch.cat([source, target]), torch.stack([senders, hearers + len(source)]), weights
        values = None
        if self._attends and self.shape.edge_dim:
            if edge_features is None or loop_feature is None:
                raise ValueError("this layer has edge_dim: it wants edge_features and loop_feature")
            values = at_least_float32(edge_features)
            if edge_moments is not None:
                values = (values - edge_moments[0]) / edge_moments[1]
            values = torch.cat([values, at_least_float32(loop_feature).expand(len(target), -1)])
        return nodes, torch.stack([senders, hearers]), values
