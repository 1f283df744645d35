"""A small graph whose queries a head can learn to read."""

import torch
from torch.nn import functional as F

from gnnretrieval.nn.label_messages import MessageGraph


def rotated_graph(count: int = 40, d: int = 8) -> MessageGraph:
    """Each query is its passage with one disturbing dimension, which a head can learn to leave out."""
    generator = torch.Generator().manual_seed(1)
    passages = torch.randn(count, d, generator=generator)
    queries = passages.clone()
    queries[:, 0] += 12 * torch.randn(count, generator=generator)
    rows = torch.arange(count)
    return MessageGraph(
        F.normalize(passages, dim=1),
        F.normalize(queries, dim=1),
        (rows[:, None] + torch.arange(3)) % count,
        torch.stack([rows, rows], dim=1),
        torch.ones(count, dtype=torch.bool),
        True,
        20.0,
    )
