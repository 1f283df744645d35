"""Ranking by late interaction: MaxSim over a whole corpus, or over its inverted lists (COIL)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnretrieval.data.runs.trec import Run, rank_rows
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.maxsim import maxsim_top_k
from gnnretrieval.encoders.token_index import TokenIndex
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks

_BLOCK = 256  # questions per pass over the tokens of the corpus


def late_run(features: Features, query_ids: Sequence[str], depth: int, device: str = "cpu") -> Run:
    """The exact run of some queries over all passages of the features.

    Args:
        features: Features with a vector per token.
        query_ids: Ids of the queries.
        depth: Maximum number of passages per query.
        device: Device of the products; inverted lists are read on the CPU.

    Raises:
        ArtifactError: The features have one vector per text, or lack a query.
    """
    tokens, starts, queries = features.tokens, np.asarray(features.token_starts), features.query_tokens
    rows, total = features.rows_of(query_ids), len(starts) - 1
    passage_ids = features.passage_ids()
    if features.matches_same:
        index, ids = TokenIndex(tokens, features.token_ids, starts), features.query_token_ids
        with progress("searching inverted lists", len(rows), "queries") as meter:
            nearest = index.top_k(queries[rows], ids[rows], min(depth, total), meter.advance)
        return dict(zip(query_ids, rank_rows(*nearest, passage_ids), strict=True))
    run: Run = {}
    with progress("searching by MaxSim", total * -(-len(rows) // _BLOCK), "passages") as meter:
        for part in blocks(len(rows), _BLOCK):
            nearest = maxsim_top_k(
                queries[rows[part]], tokens, starts, min(depth, total), device=device, advance=meter.advance
            )
            run.update(zip(query_ids[part], rank_rows(*nearest, passage_ids), strict=True))
    return run
