"""Bytes of memory that training and embedding over a graph will take, before they are spent (law 11).

The formulas count float32 vectors of width ``d`` that are alive at the same time, in the forward and backward pass of
the layers, rounded up: peaks of anonymous memory above what the process held at its start were 0.5 to 0.9 times the
estimate (``m`` and ``n`` of 10,000 and 20,000, ``k`` of 5 and 20, ``d`` of 128 and 384). Pages of the store come on top
where memory is free; the system takes them back when it is not.
"""

from __future__ import annotations

import math
from typing import NamedTuple

_FLOAT = 4
_OF_PASSAGE = 24  # vectors a target passage: both layers' ends, the gate and its input, forward and backward
_OF_QUERY = 12  # vectors an adjacent query: layer 1, its update and their gradients
_OF_SOURCE = 1.5  # vectors a passage that is only read: float32, and float16 while it is gathered
_OF_SCORE = 7  # floats a (query, candidate): score, softmax, mask and their gradients
_OF_BLOCK = 10  # vectors a node of a block when embedding: layer, gate or update, and their inputs
_OF_EDGE = 64  # bytes an edge besides its features: rows, positions, attention


class TrainingShape(NamedTuple):
    """What the memory depends on besides the graph; the defaults are those of training and embedding.

    Attributes:
        batch_size: Masked queries a step.
        hard_negatives: Of each query, where candidates are the batch's own.
        mask_ratio: Share of the queries that an epoch's graph lacks.
        block: Nodes a block when embedding, at most.
        budget: Bytes that embedding keeps to: interactive queries that take more than half of it go to a file.
    """

    batch_size: int = 128
    hard_negatives: int = 4
    mask_ratio: float = 0.2
    block: int = 8192
    budget: int = 2**30


class MemoryNeeds(NamedTuple):
    """Bytes above what the process takes at its start.

    Attributes:
        training_corpus: Training where every passage is a candidate (``candidates = corpus``).
        training_batch: Training where the batch's positives and hard negatives are (``candidates = batch``).
        embedding: Embedding every passage, in blocks; training takes at least this, to measure on dev.
    """

    training_corpus: int
    training_batch: int
    embedding: int


def memory_needs(
    num_passages: int,
    num_queries: int,
    k: int,
    dimension: int,
    edge_dim: int,
    *,
    queries_per_candidate: float,
    shape: TrainingShape | None = None,
) -> MemoryNeeds:
    """Estimate the memory of training and embedding; reads nothing.

    With ``v = 4 d`` bytes a vector and ``e = 64 + 16 d_e`` bytes an edge, a step of ``B`` queries over ``T`` target
    passages, ``S`` adjacent queries and ``U`` passages that those found takes
    ``v (24 T + 12 S + 1.5 U) + 28 B T + e (S k + edges into T)``. Embedding takes ``v n`` for the interactive queries,
    where that is at most half of its budget, and ``v (10 b + 1.5 U) + e (edges of the block)`` for a block of ``b``
    nodes, at most the other half.

    Args:
        num_passages: ``m``.
        num_queries: ``n``.
        k: Passages a query.
        dimension: ``d``.
        edge_dim: ``d_e``.
        queries_per_candidate: Mean number of queries that found a candidate of a batch. Candidates are met in
            proportion to how often they were found: the mean of squared degrees over the mean degree.
        shape: What else it depends on.
    """
    shape = shape or TrainingShape()
    vector, edge = _FLOAT * dimension, _OF_EDGE + 4 * _FLOAT * edge_dim
    visible = (1 - shape.mask_ratio) * num_queries

    def step(targets: float, queries: float, edges: float) -> float:
        sources = _distinct(queries * k, num_passages)
        vectors = _OF_PASSAGE * targets + _OF_QUERY * queries + _OF_SOURCE * sources
        return vector * vectors + _FLOAT * _OF_SCORE * shape.batch_size * targets + edge * (edges + queries * k)

    candidates = min(num_passages, shape.batch_size * (1 + shape.hard_negatives))
    edges = candidates * queries_per_candidate * (1 - shape.mask_ratio)
    interactive = vector * num_queries
    block = min(shape.block, max(num_passages, num_queries))
    of_block = vector * (_OF_BLOCK * block + _OF_SOURCE * _distinct(block * k, num_passages))
    of_block += edge * block * max(k, num_queries * k / num_passages)
    embedding = (interactive if interactive <= shape.budget // 2 else 0) + min(of_block, shape.budget / 2)
    return MemoryNeeds(
        training_corpus=math.ceil(max(embedding, step(num_passages, visible, visible * k))),
        training_batch=math.ceil(max(embedding, step(candidates, _distinct(edges, visible), edges))),
        embedding=math.ceil(embedding),
    )


def _distinct(draws: float, count: float) -> float:
    """Different ones expected among ``draws`` of ``count``."""
    return count * -math.expm1(-draws / count) if count else 0.0
