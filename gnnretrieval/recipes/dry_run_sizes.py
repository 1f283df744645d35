"""Estimates of a recipe's artifacts in bytes on disk, from the shapes of their arrays."""

from __future__ import annotations

from gnnretrieval.baselines import BASELINES
from gnnretrieval.pages.reports import Figures
from gnnretrieval.recipes.recipe import Recipe

_HALF, _FLOAT = 2, 4
_TEXTS = 1.15  # bytes of texts.sqlite per byte of corpus.jsonl and queries.jsonl
_BM25 = 0.4  # bytes of the graph's BM25 index per byte of text
_RUN_LINE = 31  # bytes of a line of a run, without ids
_SYSTEMS = {"rankings": 3, "baselines": len(BASELINES)}  # runs on the reported split; dev is small


class Sizes(Figures):
    """Counts and widths that determine sizes, as :class:`~gnnretrieval.recipes.recipe.SizeSettings` has them."""

    passages: int
    queries: int
    graph_queries: int
    """Queries of the graph."""
    reported_queries: int
    """Queries of the split that results are reported on."""
    text_bytes: int
    dimension: int | None
    """None where the encoder is not here."""
    edge_dimension: int | None
    id_bytes: float | int = 14
    """Mean length of a query id and a passage id together."""


def stage_bytes(recipe: Recipe, sizes: Sizes, folder: str, *, several: bool = False) -> int | None:
    """Approximate bytes of a stage's directory; None where the widths of the vectors are not known.

    Embeddings and indexes link to the texts of the graph or the features, so texts do not count again. With
    ``several`` a passage has one vector more for each of its training questions.
    """
    d, m = sizes.dimension, sizes.passages
    texts = round(_TEXTS * sizes.text_bytes)
    if folder == "dataset":
        return sizes.text_bytes
    if folder in _SYSTEMS:
        return round(
            _SYSTEMS[folder] * sizes.reported_queries * min(recipe.compare.depth, m) * (_RUN_LINE + sizes.id_bytes)
        )
    if folder == "comparison.json":
        return 20_000
    if folder == "map":
        return _FLOAT * (5 * m + 2 * sizes.graph_queries)  # points before and after, displacements, questions
    if d is None or sizes.edge_dimension is None:
        return None
    if folder.startswith("features"):
        return _HALF * d * (m + sizes.queries) + texts
    if folder == "graph":
        return _graph(recipe, sizes, d, sizes.edge_dimension) + texts
    if folder.startswith("model"):
        return _FLOAT * (8 * d * d + 2 * d * sizes.edge_dimension)
    vectors = m + sizes.graph_queries if several and folder in ("embeddings", "index") else m
    return (_HALF if folder.startswith("embeddings") else _FLOAT) * d * vectors


def _graph(recipe: Recipe, sizes: Sizes, dimension: int, width: int) -> int:
    settings, m, n = recipe.graph, sizes.passages, sizes.graph_queries
    edges = n * settings.k
    total = edges * (4 + 4 + 8) + 8 * (m + 1)  # neighbours, scores and the passage side
    total += _HALF * dimension * (m + n) + _HALF * len(settings.edge_features) * edges
    total += edges * (width + 4 if settings.edge_form == "int8" else _HALF * width)
    if settings.self_loops == "cross-encoder":
        total += _HALF * width * (m + n)
    if settings.keeps_bm25:
        total += round(_BM25 * sizes.text_bytes)
    return total
