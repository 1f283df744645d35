r"""MaxSim, the score of late interaction (`ColBERT <https://arxiv.org/abs/2004.12832>`_, eq. 3), exact and in blocks.

.. math:: s(q, p) = \sum_{i} \max_{j} E_q^i \cdot E_p^j

With :math:`j` only over the same token, and 0 where the passage lacks it, this is `COIL
<https://arxiv.org/abs/2104.07186>`_ (eq. 5), which :mod:`gnnretrieval.encoders.token_index` searches by inverted lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from gnnretrieval.encoders.exact_search import Ties, merge_top_k
from gnnretrieval.storage.arrays import blocks, release

Stored = Literal["float16", "int8"]
_TOKENS = 65536  # tokens of passages per block
_QUERIES = 16  # questions per block: 128 MiB of products with 32 vectors each


def maxsim(queries: Tensor, tokens: Tensor, counts: Tensor, same: Tensor | None = None) -> Tensor:
    """MaxSim ``(q, c)`` of questions and passages, with gradient.

    Args:
        queries: Vectors of the questions ``(q, l, d)``, the same number for each.
        tokens: Vectors of all passages' tokens ``(T, d)``, in order.
        counts: Number of tokens of each passage ``(c,)`` int64, at least 1.
        same: ``(T, q l)`` bool, whether a passage's token is that of the question, so that the two are compared; None:
            all are.

    Example:
        >>> queries = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])  # one question of two tokens
        >>> tokens = torch.tensor([[0.6, 0.8], [0.8, 0.6], [1.0, 0.0]])  # two passages, of two tokens and of one
        >>> [round(score, 4) for score in maxsim(queries, tokens, torch.tensor([2, 1]))[0].tolist()]
        [1.6, 1.0]
    """
    products = tokens @ queries.flatten(0, 1).T  # (T, q l)
    if same is not None:
        products = products.masked_fill(~same, float("-inf"))
    best = torch.segment_reduce(products, "max", lengths=counts, axis=0)  # (c, q l)
    if same is not None:
        best = best.masked_fill(best == float("-inf"), 0.0)
    return best.view(len(counts), *queries.shape[:2]).sum(-1).T


def stored(vectors: NDArray[np.float32], how: Stored) -> NDArray[np.generic]:
    """Unit vectors ``(T, d)`` as they are written.

    ``int8`` needs no scale: a vector's largest entry becomes ±127, and :func:`restored` gives it length 1 again.
    """
    if how == "float16":
        return vectors.astype(np.float16)
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    rounded: NDArray[np.int8] = np.rint(vectors * (127 / np.maximum(largest, 1e-12))).astype(np.int8)
    return rounded


def restored(vectors: NDArray[np.generic]) -> Tensor:
    """Unit vectors ``(T, d)`` float32 from :func:`stored` ones."""
    return F.normalize(torch.from_numpy(np.array(vectors)).float(), dim=-1)


def maxsim_top_k(
    queries: NDArray[np.floating],
    tokens: NDArray[np.generic],
    starts: NDArray[np.int64],
    k: int,
    *,
    device: str | torch.device = "cpu",
    advance: Callable[[int], None] = lambda count: None,
    ties: Ties | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The ``k`` passages of highest MaxSim for every question, by one pass over all tokens of the corpus.

    Args:
        queries: Vectors of the questions ``(n, l, d)``.
        tokens: Stored vectors of all passages' tokens ``(T, d)``, may be memory-mapped.
        starts: First token of each passage, and one past the last ``(m + 1,)``.
        k: Number of passages per question, at most ``m``.
        device: Device of the products.
        advance: Called with the number of passages that were scored.
        ties: As :func:`gnnretrieval.encoders.exact_search.merge_top_k`.

    Returns:
        Rows ``(n, k)`` int64 and scores ``(n, k)`` float32, highest score first.
    """
    questions = torch.from_numpy(np.asarray(queries, dtype=np.float32)).to(device)
    rows = np.zeros((len(questions), 0), dtype=np.int64)
    scores = np.zeros((len(questions), 0), dtype=np.float32)
    for passages in _passage_blocks(starts):
        block = restored(tokens[starts[passages.start] : starts[passages.stop]]).to(device)
        counts = torch.from_numpy(np.diff(starts[passages.start : passages.stop + 1])).to(device)
        parts = [maxsim(questions[part], block, counts).cpu().numpy() for part in blocks(len(questions), _QUERIES)]
        here = np.broadcast_to(np.arange(passages.start, passages.stop), (len(questions), len(counts)))
        new = np.concatenate(parts) if parts else np.zeros(here.shape, dtype=np.float32)
        rows, scores, _ = merge_top_k(np.hstack([rows, here]), np.hstack([scores, new]), k, ties)
        release(tokens)
        advance(len(counts))
    return rows, scores


def maxsim_of(
    query: NDArray[np.floating],
    tokens: NDArray[np.generic],
    starts: NDArray[np.int64],
    rows: NDArray[np.int64],
    device: str | torch.device = "cpu",
    ids: tuple[NDArray[np.integer], NDArray[np.integer]] | None = None,
) -> NDArray[np.float32]:
    """MaxSim ``(r,)`` of one question and some passages.

    Args:
        query: Vectors of the question ``(l, d)``.
        tokens: As in :func:`maxsim_top_k`.
        starts: As there.
        rows: Rows of the passages ``(r,)``.
        device: Device of the products.
        ids: Ids of the question's tokens ``(l,)`` and of all passages' ``(T,)``, if only the same ones are compared.
    """
    if not len(rows):
        return np.empty(0, dtype=np.float32)

    def of_rows(array: NDArray[np.generic]) -> NDArray[np.generic]:
        return np.concatenate([array[starts[row] : starts[row + 1]] for row in rows.tolist()])

    same = None
    block = of_rows(tokens)
    vectors = restored(block) if ids is None else torch.from_numpy(np.asarray(block, dtype=np.float32))
    if ids is not None:
        same = torch.from_numpy(of_rows(ids[1])[:, None] == np.asarray(ids[0])[None]).to(device)
    counts = torch.from_numpy(starts[rows + 1] - starts[rows]).to(device)
    question = torch.from_numpy(np.asarray(query, dtype=np.float32)).to(device)
    scores: NDArray[np.float32] = maxsim(question[None], vectors.to(device), counts, same)[0].cpu().numpy()
    return scores


def _passage_blocks(starts: NDArray[np.int64]) -> Iterator[slice]:
    """Runs of passages with at most ``_TOKENS`` tokens together, at least one passage each."""
    first, last = 0, len(starts) - 1
    while first < last:
        fits = int(np.searchsorted(starts, starts[first] + _TOKENS, side="right")) - 1
        stop = min(max(fits, first + 1), last)
        yield slice(first, stop)
        first = stop
