"""Search by late interaction: MaxSim over a whole corpus, or over its inverted lists (COIL)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.exact_search import Ties
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.maxsim import maxsim_top_k
from gnnretrieval.encoders.token_index import TokenIndex
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks

_BLOCK = 256  # questions per pass over the tokens of the corpus


def late_top_k(
    features: Features,
    queries: Sequence[int] | NDArray[np.int64],
    k: int,
    device: str = "cpu",
    ties: Ties | None = None,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """The ``k`` passages of highest score for each of some queries, compared as the features' encoder was trained.

    Args:
        features: Features with a vector per token.
        queries: Rows of the queries.
        k: Maximum number of passages per query.
        device: Device of the products; inverted lists are read on the CPU.
        ties: As :func:`gnnretrieval.encoders.exact_search.merge_top_k`.

    Yields:
        Rows and scores of each query's passages, ``(k,)`` each, highest score first.

    Raises:
        ArtifactError: The features have one vector per text.
    """
    tokens, starts, vectors = features.tokens, np.asarray(features.token_starts), features.query_tokens
    rows, total = np.asarray(queries, dtype=np.int64), len(starts) - 1
    k = min(k, total)
    if features.matches_same:
        index, ids = TokenIndex(tokens, features.token_ids, starts), features.query_token_ids
        with progress("searching inverted lists", len(rows), "queries") as meter:
            for part in blocks(len(rows), _BLOCK):
                yield from zip(*index.top_k(vectors[rows[part]], ids[rows[part]], k, meter.advance, ties), strict=True)
        return
    with progress("searching by MaxSim", total * -(-len(rows) // _BLOCK), "passages") as meter:
        for part in blocks(len(rows), _BLOCK):
            queries_of_part = vectors[rows[part]]
            nearest = maxsim_top_k(queries_of_part, tokens, starts, k, device=device, advance=meter.advance, ties=ties)
            yield from zip(*nearest, strict=True)
