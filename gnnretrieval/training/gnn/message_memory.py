"""The memory that layer = linear needs: checks before it is used."""

from __future__ import annotations

from gnnretrieval.graph.store import Graph
from gnnretrieval.platform.memory import memory_limit, require_memory
from gnnretrieval.training.gnn.judged import MOST_HEADS

_ARRAYS = 4  # float32 arrays of all nodes' vectors that are in memory at the same time


def require_fit(store: Graph) -> None:
    """Check that memory holds the graph's vectors and the heads, as often as layer = linear needs.

    Raises:
        GnnRetrievalError: It does not.
    """
    remedy = "Use a machine with more memory, --layer gat, which reads vectors in blocks, or narrower vectors."
    require_memory(memory_of_messages(store), f"layer = linear over all of {store.path}", remedy)


def fits_memory(store: Graph) -> bool:
    """Whether :func:`require_fit` would pass."""
    return memory_of_messages(store) <= memory_limit()


def memory_of_messages(store: Graph) -> int:
    """Approximate bytes that training and embedding with layer = linear need."""
    return bytes_of_messages(store.dimension, store.num_passages + store.num_queries)


def bytes_of_messages(dimension: int, nodes: int) -> int:
    """As :func:`memory_of_messages`, from the width of vectors and the number of nodes."""
    return 4 * dimension * (_ARRAYS * nodes + MOST_HEADS * dimension)
