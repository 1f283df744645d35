"""Exact top-k by similarity, in blocks: never a matrix of all queries by all passages.

A score depends only on its two vectors. Candidates come from fast matrix products, whose rounding depends on the shape
of the block, and are scored again in float64. So a passage that is added later gets the score that it would have had
from the start, and equal vectors get equal scores.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.encoders.precision import computes_in_bfloat16
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.platform.devices import as_device
from gnnretrieval.storage.arrays import blocks, release, save_array
from gnnretrieval.storage.artifacts import whole_file
from gnnretrieval.storage.durable import sync_tree

_PASSAGES = 65536  # passages per block
_QUERIES = 512  # queries per block: 128 MiB of scores in float32
_GROUP = 64  # columns in a group; only the best groups are searched
_REDUCED = 2**40  # number of products (n m d) above which the first candidates come from bfloat16, if native
_SAVE_EVERY = 60.0  # seconds

Advance = Callable[[int], None]
Ties = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Places ``(n, c)`` of passage rows ``(n, c)`` of equal score, the lowest first; rows below 0 are not compared."""


def exact_top_k(
    queries: NDArray[np.floating],
    passages: NDArray[np.floating],
    k: int,
    similarity: Similarity,
    *,
    device: str | torch.device = "cpu",
    advance: Advance = lambda count: None,
    resume: Path | None = None,
    ties: Ties | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The ``k`` passages of highest similarity for every query.

    Candidates are somewhat more than the ``k`` best matrix products. They are scored again (:func:`pair_scores`). A
    query is done if its ``k``-th score exceeds the product of every other passage by more than the error of a product.
    The other queries are searched again more precisely, so that the result is exact.

    Args:
        queries: ``(n, d)``, any float type, may be memory-mapped.
        passages: ``(m, d)``, likewise; each search reads them in order, then the candidates.
        k: Number of passages per query.
        similarity: How queries and passages are compared.
        device: Device of the products.
        advance: Called with the number of passages searched; repeated searches do not count.
        resume: Directory that keeps the state of a long search, from which it resumes.
        ties: Which passages of equal score are among the ``k``; None: those with the lowest rows.

    Returns:
        Rows ``(n, k)`` int64 and scores ``(n, k)`` float32, highest score first. Equal scores are by row; with
        ``ties``, those with the score of the ``k``-th are by ``ties`` if not all of them fit.

    Raises:
        GnnRetrievalError: ``k`` is not between 1 and the number of passages.
    """
    n, m = len(queries), len(passages)
    if not 0 < k <= m:
        raise GnnRetrievalError(f"k is {k}, and there are {m} passages: give a k from 1 to {m}.")
    device = as_device(device)
    rows, scores = np.empty((n, k), dtype=np.int64), np.empty((n, k), dtype=np.float32)
    unsettled = np.arange(n)
    levels = [(torch.float32, min(m, k + 8)), (torch.float32, min(m, 4 * k + 64))]
    if n * m * queries.shape[1] > _REDUCED and computes_in_bfloat16(device):
        levels.insert(0, (torch.bfloat16, min(m, 2 * k + 16)))
    # Most queries settle at the first level; only the others pay for a wider search.
    for number, (dtype, width) in enumerate(levels):
        if not len(unsettled):
            break
        candidates, cut, error = _candidates(
            queries[unsettled] if number else queries,
            passages,
            width,
            similarity,
            dtype,
            device,
            (lambda count: None) if number else advance,
            None if number else resume,
        )
        best_rows, best = _scored_again(queries, unsettled, passages, candidates, k, similarity, ties)
        settled = (best[:, -1] > cut + error) | (width == m)
        rows[unsettled[settled]], scores[unsettled[settled]] = best_rows[settled], best[settled]
        unsettled = unsettled[~settled]
    for row in unsettled:  # more ties at the cut than there are candidates
        rows[row], scores[row] = _of_all(queries[row], passages, k, similarity, ties)
    return rows, scores


def pair_scores(
    queries: NDArray[np.floating], passages: NDArray[np.floating], similarity: Similarity
) -> NDArray[np.float32]:
    """Similarity ``(…)`` of rows ``(…, d)`` and ``(…, d)``, summed in float64 so that it does not depend on shapes."""
    products = similarity.prepare_array(queries).astype(np.float64) * similarity.prepare_array(passages)
    return torch.from_numpy(products).sum(-1).numpy().astype(np.float32)


def merge_top_k(
    rows: NDArray[np.int64], scores: NDArray[np.float32], k: int, ties: Ties | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    """The ``k`` best of each query's candidates ``(n, c)``: rows, scores and their columns, ``(n, k)`` each.

    Equal scores are ordered as by :func:`exact_top_k`.
    """
    order = np.lexsort((rows, -scores), axis=-1)
    if ties is not None and k < order.shape[1]:
        last, beyond = (np.take_along_axis(scores, order[:, place : place + 1], 1)[:, 0] for place in (k - 1, k))
        cut = np.flatnonzero(last == beyond)
        if len(cut):  # only among these does the order of equal scores decide which passages are found
            equal = np.where(scores[cut] == last[cut, None], rows[cut], -1)
            order[cut] = np.lexsort((rows[cut], ties(equal), -scores[cut]), axis=-1)
    order = order[:, :k]
    return np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1), order


def _candidates(
    queries: NDArray[np.floating],
    passages: NDArray[np.floating],
    width: int,
    similarity: Similarity,
    dtype: torch.dtype,
    device: torch.device,
    advance: Advance,
    resume: Path | None,
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
    """The ``width`` best rows by products in ``dtype``.

    Returns:
        The rows ``(n, width)``, the lowest of their products ``(n,)``, and the maximum error of a product ``(n,)``.
    """
    n, m, d = len(queries), len(passages), queries.shape[1]
    best = np.full((n, width), -np.inf, dtype=np.float32)
    rows = np.zeros((n, width), dtype=np.int64)
    start, longest, saved = 0, 0.0, time.monotonic()
    if resume is not None and (resume / "search.json").is_file():
        state = json.loads((resume / "search.json").read_text())
        turn, start, longest = state["turn"], state["passages"], state["longest"]
        best, rows = np.load(resume / f"best-{turn}.npy"), np.load(resume / f"found-{turn}.npy")
        advance(start)
    for first in range(start, m, _PASSAGES):
        prepared = similarity.prepare(torch.from_numpy(np.array(passages[first : first + _PASSAGES])).to(device))
        release(passages)
        longest = max(longest, float(prepared.norm(dim=1).max()))
        block = prepared.to(dtype)
        for part in blocks(n, _QUERIES):
            query_block = torch.from_numpy(similarity.prepare_array(queries[part])).to(device, dtype)
            values, columns = _top(query_block @ block.T, min(width, len(block)))
            values = torch.cat([torch.from_numpy(best[part]).to(device), values], dim=1)
            columns = torch.cat([torch.from_numpy(rows[part]).to(device), columns + first], dim=1)
            values, order = values.topk(width, dim=1)
            best[part], rows[part] = values.cpu().numpy(), columns.gather(1, order).cpu().numpy()
        advance(len(block))
        if resume is not None and time.monotonic() - saved > _SAVE_EVERY:
            _save_state(resume, best, rows, first + len(block), longest)
            saved = time.monotonic()
    lengths = np.linalg.norm(similarity.prepare_array(queries), axis=1) if not similarity.normalize else np.ones(n)
    # A float32 sum of d products has at most d rounding errors; bfloat16 rounds both factors and the result.
    unit = (d + 2) * 2.0**-24 + (3 * 2.0**-8 if dtype == torch.bfloat16 else 0.0)
    return rows, best[:, -1], (unit * lengths * longest).astype(np.float32)


def _save_state(resume: Path, best: NDArray[np.float32], rows: NDArray[np.int64], done: int, longest: float) -> None:
    """Save the state, alternating between two sets of files so that one is always complete."""
    turn = done // _PASSAGES % 2
    save_array(resume / f"best-{turn}.npy", best)
    save_array(resume / f"found-{turn}.npy", rows)
    sync_tree(resume)
    with whole_file(resume / "search.json") as partial:
        partial.write_text(json.dumps({"turn": turn, "passages": done, "longest": longest}))


def _top(scores: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """As ``scores.topk(width)`` in float32, but only over the best groups of columns: topk over all is slow."""
    groups = scores.shape[1] // _GROUP
    if groups <= 2 * width or scores.shape[1] % _GROUP:
        values, columns = scores.float().topk(width, dim=1)
        return values, columns
    grouped = scores.view(len(scores), groups, _GROUP)
    # The width best columns are in at most width groups: those with the highest maxima.
    chosen = grouped.amax(-1).float().topk(width, dim=1).indices  # (n, width)
    values = grouped.gather(1, chosen[:, :, None].expand(-1, -1, _GROUP)).flatten(1).float()
    columns = (chosen[:, :, None] * _GROUP + torch.arange(_GROUP, device=scores.device)).flatten(1)
    values, order = values.topk(width, dim=1)
    return values, columns.gather(1, order)


def _scored_again(
    queries: NDArray[np.floating],
    query_rows: NDArray[np.int64],
    passages: NDArray[np.floating],
    candidates: NDArray[np.int64],
    k: int,
    similarity: Similarity,
    ties: Ties | None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The ``k`` best by :func:`pair_scores` among the ``candidates`` ``(a, width)`` of ``query_rows`` ``(a,)``."""
    rows = np.empty((len(query_rows), k), dtype=np.int64)
    scores = np.empty((len(query_rows), k), dtype=np.float32)
    for part in blocks(len(query_rows), max(1, 4096 // candidates.shape[1])):
        exact = pair_scores(queries[query_rows[part]][:, None], passages[candidates[part]], similarity)
        rows[part], scores[part], _ = merge_top_k(candidates[part], exact, k, ties)
        release(passages)
    return rows, scores


def _of_all(
    query: NDArray[np.floating], passages: NDArray[np.floating], k: int, similarity: Similarity, ties: Ties | None
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The ``k`` best of all passages for one query ``(d,)``, by :func:`pair_scores`."""
    rows, scores = np.empty((1, 0), dtype=np.int64), np.empty((1, 0), dtype=np.float32)
    for part in blocks(len(passages), 4096):
        exact = pair_scores(query[None], passages[part], similarity)
        block = np.arange(part.start, part.stop)
        rows, scores, _ = merge_top_k(np.hstack([rows, block[None]]), np.hstack([scores, exact[None]]), k, ties)
    return rows[0], scores[0]


def ranks_of(
    rows: Sequence[int],
    query: NDArray[np.float32],
    vectors: NDArray[np.floating],
    similarity: Similarity,
    removed: NDArray[np.int64] | None = None,
    *,
    ties: Ties | None = None,
) -> list[int]:
    """Ranks, from 1, of some passages for one query among all ``vectors``, by one blockwise pass over them.

    These are the ranks in a full search by :func:`pair_scores`.

    Args:
        rows: Rows of the passages.
        query: ``(d,)``.
        vectors: Vectors of all passages ``(m, d)``, may be memory-mapped.
        similarity: How query and passages are compared.
        removed: Rows that take no rank; None: every row takes one.
        ties: Which of several passages of equal score rank first; None: those with the lowest rows.

    Returns:
        The rank of each passage, in the order of ``rows``.
    """
    prepared = similarity.prepare_array(query)
    places = np.asarray(rows, dtype=np.int64)
    scores = pair_scores(query[None], vectors[places], similarity)  # (r,)
    unit = (len(prepared) + 2) * 2.0**-24 * float(np.linalg.norm(prepared))
    above, equal = np.zeros(len(places), dtype=np.int64), [[place[None]] for place in places]
    for part in blocks(len(vectors), _PASSAGES):
        block = similarity.prepare_array(vectors[part])
        products = block @ prepared
        error = 2 * unit * float(np.linalg.norm(block, axis=1).max())  # of a product and of a score
        near = np.flatnonzero((np.abs(products[:, None] - scores) <= error).any(1))
        for some in blocks(len(near), 4096):  # too close to tell by products, which round by the shape of the block
            products[near[some]] = pair_scores(query[None], vectors[part][near[some]], similarity)
        if removed is not None:
            products[removed[(removed >= part.start) & (removed < part.stop)] - part.start] = -np.inf
        above += (products[:, None] > scores).sum(0)
        for number, score in enumerate(scores):
            equal[number].append(part.start + near[products[near] == score])
        release(vectors)
    for number, place in enumerate(places):
        same = np.unique(np.concatenate(equal[number]))[None]  # (1, c)
        order = same if ties is None else ties(same)
        above[number] += int((order < order[same == place]).sum())
    ranks: list[int] = (above + 1).tolist()
    return ranks
