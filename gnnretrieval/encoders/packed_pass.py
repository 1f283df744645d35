"""The forward pass of BERT-like encoders over packed tokens: no padding, and no text's vector depends on its batch.

The tokens of all sequences are rows ``(tokens, width)``, one sequence after another. Linear layers, normalisation and
activation see only rows. Attention runs over sequences of equal length together, so that it needs no mask. A row's
result then depends only on its sequence, bit for bit: see :class:`gnnretrieval.encoders.packed_linear.PackedLinear`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from gnnretrieval.encoders.packed_linear import ROW_MULTIPLE, PackedLinear

SCORES_AT_ONCE = 2**20  # attention scores computed at a time
LANES = 32  # rows of scores are padded to a multiple of this: softmax over other lengths takes 1.5 times as long
LONGEST_EXPLICIT = 512  # tokens; attention over longer sequences never holds all scores of one

Tokens = Sequence[NDArray[np.int64]]


class Run(NamedTuple):
    """Adjacent sequences of equal length among the packed rows."""

    start: int
    sequences: int
    length: int

    @property
    def rows(self) -> slice:
        """The packed rows of its sequences."""
        return slice(self.start, self.start + self.sequences * self.length)


def can_pack(model: nn.Module) -> bool:
    """Whether :class:`PackedPass` can replace ``model``, a transformers encoder: BERT, RoBERTa and their variants.

    Not if layers were replaced (adapters, quantised weights), and only on the CPU: elsewhere many small operations cost
    more than padding.
    """
    from transformers import BertModel, CamembertModel, RobertaModel, XLMRobertaModel

    if type(model) not in {BertModel, CamembertModel, RobertaModel, XLMRobertaModel}:
        return False
    config: Any = model.config
    encoder: Any = model.encoder
    return (
        not config.is_decoder
        and getattr(config, "position_embedding_type", "absolute") == "absolute"
        and all(type(part) is nn.Linear for layer in encoder.layer for part in _linear_parts(layer))
        and {parameter.device.type for parameter in model.parameters()} == {"cpu"}
    )


def _linear_parts(layer: Any) -> tuple[Any, ...]:
    own = layer.attention.self
    return own.query, own.key, own.value, layer.attention.output.dense, layer.intermediate.dense, layer.output.dense


class PackedPass:
    """The forward pass in evaluation of a ``model`` for which :func:`can_pack` is true.

    It copies all weights but the embeddings. Matrices have ``dtype``; biases and the weights of normalisation are
    float32. Rounding these would move all tokens' vectors in the same direction, which pooling does not average out.

    Args:
        model: A transformers encoder on the CPU.
        dtype: Type of matrices and hidden states.
        first_only: Return only the first token's last hidden state: the last layer then computes only keys and values
            of the other tokens.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype, *, first_only: bool = False) -> None:
        parts: Any = model
        heads: int = parts.config.num_attention_heads
        self._dtype = dtype
        self._embeddings = parts.embeddings
        self._norm = _Norm.of(parts.embeddings.LayerNorm)
        # RoBERTa's positions start after that of padding, BERT's at 0.
        self._padding: int | None = getattr(parts.embeddings, "padding_idx", None)
        layers = list(parts.encoder.layer)
        last = layers.pop() if first_only else None
        self._layers = [_Layer(layer, heads, dtype) for layer in layers]
        self._last = _LastLayer(last, heads, dtype) if last is not None else None

    @torch.inference_mode()
    def __call__(self, ids: Tokens, types: Tokens | None = None) -> list[Tensor]:
        """Last hidden states of token sequences.

        Args:
            ids: Token ids of every sequence, special tokens included; sequences of equal length must be adjacent.
            types: Their token types; None: all 0.

        Returns:
            One tensor for each run of sequences of equal length, in order: ``(sequences, length, width)``, or
            ``(sequences, 1, width)`` with ``first_only``.
        """
        runs = _runs(ids)
        x = self._embed(ids, types, runs)  # (rows, width)
        for layer in self._layers:
            x = layer(x, runs)
        if self._last is None:
            return [x[run.rows].view(run.sequences, run.length, -1) for run in runs]
        first = self._last(x, runs)
        return list(torch.split(first.unsqueeze(1), [run.sequences for run in runs]))

    def _embed(self, ids: Tokens, types: Tokens | None, runs: list[Run]) -> Tensor:
        total = runs[-1].rows.stop
        words = torch.zeros(_round_up(total), dtype=torch.long)
        kinds, positions = torch.zeros_like(words), torch.zeros_like(words)
        words[:total] = torch.from_numpy(np.concatenate(ids))
        if types is not None:
            kinds[:total] = torch.from_numpy(np.concatenate(types))
        for run in runs:
            place = positions[run.rows].view(run.sequences, run.length)
            if self._padding is None:
                place.copy_(torch.arange(run.length))
            else:
                real = words[run.rows].view(run.sequences, run.length) != self._padding
                place.copy_(real.cumsum(1) * real + self._padding)
        table = self._embeddings
        x = table.word_embeddings(words) + table.token_type_embeddings(kinds) + table.position_embeddings(positions)
        return self._norm(x.float()).to(self._dtype)


class _Norm(NamedTuple):
    """Layer normalisation with float32 weights, over rows of any precision."""

    weight: Tensor
    bias: Tensor
    epsilon: float

    @classmethod
    def of(cls, norm: nn.LayerNorm) -> _Norm:
        return cls(norm.weight.detach().float().clone(), norm.bias.detach().float().clone(), norm.eps)

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


class _Layer:
    """One transformer layer over packed rows."""

    def __init__(self, layer: Any, heads: int, dtype: torch.dtype) -> None:
        query, key, value, attended, up, down = _linear_parts(layer)
        self.heads, self.dtype = heads, dtype
        self.project = self._projections(query, key, value)
        self.attended = PackedLinear(attended.weight, attended.bias, dtype)
        self.attended_norm = _Norm.of(layer.attention.output.LayerNorm)
        self.up, self.down = (PackedLinear(part.weight, part.bias, dtype) for part in (up, down))
        self.activation = layer.intermediate.intermediate_act_fn
        self.norm = _Norm.of(layer.output.LayerNorm)

    def _projections(self, *parts: Any) -> PackedLinear:
        weight, bias = (torch.cat([getattr(part, name) for part in parts]) for name in ("weight", "bias"))
        return PackedLinear(weight, bias, self.dtype)

    def __call__(self, x: Tensor, runs: list[Run]) -> Tensor:
        """The layer's output ``(rows, width)`` from its input."""
        qkv = self.project(x)  # (rows, 3 · width)
        attended = torch.zeros_like(x)  # zeros, so that padding rows stay finite
        for run in runs:
            at_once = max(1, SCORES_AT_ONCE // (self.heads * run.length**2))
            for offset in range(0, run.sequences, at_once):
                part = Run(run.start + offset * run.length, min(at_once, run.sequences - offset), run.length)
                query, key, value = self._by_head(qkv[part.rows], part.sequences, 3)
                place = self._by_head(attended[part.rows], part.sequences, 1)[0]
                place.copy_(attention(query, key, value))
        return self._feed_forward(attended, x)

    def _by_head(self, rows: Tensor, sequences: int, parts: int) -> tuple[Tensor, ...]:
        """``parts`` views ``(sequences, heads, length, d)`` of rows ``(sequences · length, parts · heads · d)``."""
        split = rows.view(sequences, -1, parts, self.heads, rows.shape[1] // (parts * self.heads))
        return split.permute(2, 0, 3, 1, 4).unbind(0)

    def _feed_forward(self, attended: Tensor, x: Tensor) -> Tensor:
        """The layer's output from attention's result and the layer's input."""
        hidden = self.attended_norm(self.attended(attended).add_(x))
        inner = self.activation(self.up(hidden))  # (rows, 4 · width)
        return self.norm(self.down(inner).add_(hidden))


class _LastLayer(_Layer):
    """The last layer for only the first token of each sequence."""

    def _projections(self, *parts: Any) -> PackedLinear:
        query, *others = parts
        self.query = PackedLinear(query.weight, query.bias, self.dtype)
        return super()._projections(*others)

    def __call__(self, x: Tensor, runs: list[Run]) -> Tensor:
        """The layer's output for first tokens ``(sequences, width)`` from its input ``(rows, width)``."""
        sequences = sum(run.sequences for run in runs)
        starts = torch.cat([torch.arange(run.start, run.rows.stop, run.length) for run in runs])
        first = F.pad(x[starts], (0, 0, 0, _round_up(sequences) - sequences))
        queries, key_values = self.query(first), self.project(x)
        attended, start = torch.zeros_like(first), 0
        for run in runs:
            rows = slice(start, start + run.sequences)
            (query,) = self._by_head(queries[rows], run.sequences, 1)
            key, value = self._by_head(key_values[run.rows], run.sequences, 2)
            self._by_head(attended[rows], run.sequences, 1)[0].copy_(attention(query, key, value))
            start = rows.stop
        return self._feed_forward(attended, first)[:sequences]


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """``softmax(Q Kᵀ / √d) V`` without a mask, of ``(sequences, heads, tokens, d)`` each.

    In bfloat16 two products, with the scores between them in the cache, are faster on a CPU than the fused kernel. The
    fused kernel is used in float32 and for long sequences, but not for a single query token: how it splits that among
    threads, and so its rounding, may depend on the number of sequences.
    """
    sequences, heads, length, width = key.shape
    if (query.dtype != torch.bfloat16 or length > LONGEST_EXPLICIT) and query.shape[2] > 1:
        return F.scaled_dot_product_attention(query, key, value)
    lanes = -(-length // LANES) * LANES
    padded = key.new_zeros(2, sequences, heads, lanes, width)  # of keys and values
    padded[0, :, :, :length], padded[1, :, :, :length] = key, value
    keys, values = padded.view(2, sequences * heads, lanes, width)
    query = query.reshape(sequences * heads, -1, width)
    scores = torch.baddbmm(query.new_zeros(1, 1, 1), query, keys.transpose(1, 2), beta=0, alpha=width**-0.5)
    scores[..., length:] = -torch.inf
    torch.softmax(scores, -1, out=scores)
    return torch.bmm(scores, values).view(sequences, heads, -1, width)


def _runs(ids: Tokens) -> list[Run]:
    runs, start = [], 0
    for length, sequences in groupby(len(sequence) for sequence in ids):
        run = Run(start, sum(1 for _ in sequences), length)
        runs.append(run)
        start = run.rows.stop
    return runs


def _round_up(rows: int) -> int:
    return -(-rows // ROW_MULTIPLE) * ROW_MULTIPLE
