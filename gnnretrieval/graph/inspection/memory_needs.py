"""Estimate of the memory that training and embedding over a graph need, before they start (law 11).

The formulas count the float32 vectors of width ``d`` that the forward and backward pass of the layers hold at the same
time, rounded up. Measured peaks of anonymous memory, less that of the process at its start, were 0.5 to 0.9 times the
estimate (``m`` and ``n`` of 10,000 and 20,000, ``k`` of 5 and 20, ``d`` of 128 and 384). Pages of the store come on top
while memory is free; the system takes them back when it is not.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gnnretrieval.pages.reports import Figures

_FLOAT = 4
_OF_PASSAGE = 24  # vectors per target passage: both layers' ends, the gate and its input, forward and backward
_OF_QUERY = 12  # vectors per adjacent query: layer 1, its update and their gradients
_OF_SOURCE = 1.5  # vectors per passage that is only read: float32, and float16 while it is gathered
_OF_SCORE = 7  # floats per (query, candidate): score, softmax, mask and their gradients
_OF_BLOCK = 10  # vectors per node of a block when embedding: layer, gate or update, and their inputs
_OF_EDGE = 64  # bytes per edge besides its features: rows, positions, attention


class TrainingShape(NamedTuple):
    """Settings that the memory depends on besides the graph; the defaults are those of training and embedding.

    Attributes:
        batch_size: Masked queries per step.
        hard_negatives: Hard negatives per query, with ``candidates = batch``.
        mask_ratio: Share of the queries that an epoch's graph lacks.
        block: Maximum number of nodes per block when embedding.
        budget: Bytes for embedding: interactive queries that take more than half of it go to a file.
    """

    batch_size: int = 128
    hard_negatives: int = 4
    mask_ratio: float = 0.2
    block: int = 8192
    budget: int = 2**30


class MemoryNeeds(Figures):
    """Bytes needed on top of what the process has at its start."""

    training_corpus: int
    """Training with all passages as candidates (``candidates = corpus``)."""
    training_batch: int
    """Training with the batch's positives and hard negatives as candidates (``candidates = batch``)."""
    embedding: int
    """Embedding all passages in blocks. Training needs at least as much, to measure on dev."""


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
    """Estimate the memory of training and embedding from the sizes alone.

    With ``v = 4 d`` bytes per vector and ``e = 64 + 16 d_e`` bytes per edge, a step of ``B`` queries over ``T`` target
    passages, ``S`` adjacent queries and the ``U`` passages of those queries takes
    ``v (24 T + 12 S + 1.5 U) + 28 B T + e (S k + edges into T)``. Embedding takes ``v n`` for the interactive queries
    if that is at most half of its budget, and ``v (10 b + 1.5 U) + e (edges of the block)``, at most the other half,
    for a block of ``b`` nodes.

    Args:
        num_passages: ``m``.
        num_queries: ``n``.
        k: Passages per query.
        dimension: ``d``.
        edge_dim: ``d_e``.
        queries_per_candidate: Mean number of queries joined to a candidate of a batch. Passages with many queries are
            candidates more often, so this is the mean of the squared degrees divided by the mean degree.
        shape: Training settings; None: the defaults.
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
    """Expected number of distinct items among ``draws`` random draws from ``count`` items."""
    return count * -math.expm1(-draws / count) if count else 0.0
