"""PyTorch Geometric's convolutions in place of eq. 3-5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gnnretrieval.nn.neighbors import Neighbors
from gnnretrieval.nn.segment_softmax import at_least_float32


class Shape(NamedTuple):
    """Arguments of a graph layer.

    Attributes:
        width: Width ``d`` of node features and of the output.
        heads: Attention heads; they share ``width``.
        edge_dim: Width of the edge features; 0: there are none.
        dropout: Probability of dropping an attention weight in training.
    """

    width: int
    heads: int
    edge_dim: int
    dropout: float

    @property
    def attention(self) -> dict[str, Any]:
        """Keyword arguments of PyG's attention layers."""
        return {"heads": self.heads, "edge_dim": self.edge_dim or None, "dropout": self.dropout, "bias": False}

    @property
    def ends(self) -> tuple[tuple[int, int], int]:
        """Widths of source and target, and width of a head's output."""
        return (self.width, self.width), self.width // self.heads


class PyGLayer(nn.Module):
    """A convolution of PyTorch Geometric with the arguments of :class:`~gnnretrieval.nn.GATLayer`.

    It computes in float32, also under autocast, and starts as the mean of the neighbours.

    Args:
        conv: Called as ``conv((sources, targets), edge_index)``, with edge features or weights as a third argument
            where it takes them.
        shape: Widths, heads and dropout.
        eye: Name of the projection of the sources (``W_s`` of eq. 3); it starts as the identity.
        zero: Names of the parameters that start at 0, so that all neighbours weigh the same.
        loops: Whether each target has a self-loop.
        attends: Whether the layer has attention weights and edge features; else all edges of a target weigh the same.
        weight: Maps the targets' degrees ``(T,)`` to the weight of their edges ``(T,)``; None: the convolution's own
            weights.
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
        """Initialise the parameters as the convolution does."""
        self.conv.reset_parameters()  # type: ignore[operator]

    def start_as_identity(self) -> None:
        """Set the parameters so that the layer outputs the mean of each target's neighbours."""
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
        """Context of each target ``(T, d)``; arguments as in :class:`~gnnretrieval.nn.GATLayer`."""
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
        """Weights of the edges ``(E, heads)`` and of the self-loops ``(T, heads)``; a target's weights sum to 1."""
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
        """PyG's arguments: nodes, edge index ``(2, E)``, edge features or weights. Self-loops are the last edges."""
        source, target = at_least_float32(source), at_least_float32(target)
        senders, receivers = neighbors.sources, neighbors.targets()
        rows = torch.arange(len(target), device=target.device)
        nodes: Any = (source, target)
        if self._loops:  # a target's copy among the sources sends its self-loop
            nodes = (torch.cat([source, target]), target)
            senders, receivers = torch.cat([senders, rows + len(source)]), torch.cat([receivers, rows])
        if self._weight is not None:  # PyG's weighted convolutions take one kind of node
            weights = neighbors.spread(self._weight(neighbors.offsets.diff())[:, None])[:, 0]
            return torch.cat([source, target]), torch.stack([senders, receivers + len(source)]), weights
        values = None
        if self._attends and self.shape.edge_dim:
            if edge_features is None or loop_feature is None:
                raise ValueError("a layer with edge_dim needs edge_features and loop_feature")
            values = at_least_float32(edge_features)
            if edge_moments is not None:
                values = (values - edge_moments[0]) / edge_moments[1]
            values = torch.cat([values, at_least_float32(loop_feature).expand(len(target), -1)])
        return nodes, torch.stack([senders, receivers]), values
