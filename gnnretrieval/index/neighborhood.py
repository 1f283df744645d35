"""A node of the graph with its neighbours and theirs, and a model's attention on the edges, as JSON values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnnretrieval.data.text_store import PassageRow, QueryRow
from gnnretrieval.graph.neighborhood import NeighborNode, count_neighbors, passages_of_query, queries_of_passage
from gnnretrieval.graph.store import Graph

if TYPE_CHECKING:
    from gnnretrieval.index.explanations import Attention, Explainer

SECOND = 3  # number of neighbours shown for a neighbour


def describe(
    store: Graph,
    id_: str,
    is_query: bool = False,
    *,
    most: int = 20,
    hops: int = 1,
    explainer: Explainer | None = None,
) -> dict[str, Any]:
    """A passage and the queries joined to it, or a query and the passages it is joined to.

    Args:
        store: The graph.
        id_: Id of the node.
        is_query: Whether it is the id of a query, not of a passage.
        most: Maximum number of neighbours.
        hops: 2: also the best :data:`SECOND` neighbours of each neighbour.
        explainer: Adds the attention of each edge; neighbours are then ordered by it, the strongest first.

    Returns:
        ``node``: ``kind``, ``id``, ``text``, a passage's ``title`` or a query's ``split``, and ``edges`` (the number of
        its edges); ``neighbors``: ``id``, ``text``, ``score``, ``rank``, ``labelled``, ``retrieved``, and with 2 hops
        their ``edges`` and ``neighbors``. With an explainer also each edge's ``attention``, each node's
        ``own_attention`` and each passage's ``mean_gate``; if ``node`` is a passage, its ``context_scale`` (``λ``) and
        ``shift`` (cosine between its embedding before and after). A GNN-encoder with layer = linear has neither gate
        nor ``λ``.

    Raises:
        InputError: The graph has no such node.
    """
    center, nodes, attention = _around(store, id_, is_query, most, explainer)
    neighbors = [_edge(node, attention) for node in nodes]
    if hops > 1:
        for edge in neighbors:
            other, further, weights = _around(store, edge["id"], not is_query, SECOND, explainer)
            edge["edges"] = count_neighbors(store, other.row, not is_query)
            edge["neighbors"] = [_edge(node, weights) for node in further]
            edge.update(_own(weights))
    node = {
        "kind": "query" if is_query else "passage",
        **{name: value for name, value in center._asdict().items() if name != "row"},
        "edges": count_neighbors(store, center.row, is_query),
        **_own(attention),
    }
    if explainer is not None and not is_query:
        explanation = explainer.explain(center.row, most=0)
        scale = {} if explanation.context_scale is None else {"context_scale": explanation.context_scale}
        node |= {**scale, "shift": explanation.shift}
    return {"node": node, "neighbors": neighbors}


def _around(
    store: Graph, id_: str, is_query: bool, most: int, explainer: Explainer | None
) -> tuple[QueryRow | PassageRow, list[NeighborNode], Attention | None]:
    """A node, its best neighbours, and its attention if there is an explainer."""
    around = passages_of_query if is_query else queries_of_passage
    center, nodes = around(store, id_, most if explainer is None else None)
    if explainer is None:
        return center, nodes, None
    attention = (explainer.attention_of_query if is_query else explainer.attention_of_passage)(center.row)
    nodes = sorted(nodes, key=lambda node: -abs(attention.weights[node.id]))[:most]
    return center, nodes, attention


def _edge(node: NeighborNode, attention: Attention | None) -> dict[str, Any]:
    values = node._asdict()
    return values if attention is None else {**values, "attention": attention.weights[node.id]}


def _own(attention: Attention | None) -> dict[str, float]:
    if attention is None:
        return {}
    own = {"own_attention": attention.own}
    return own if attention.mean_gate is None else {**own, "mean_gate": attention.mean_gate}
