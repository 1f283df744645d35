"""Approximate top-k with a FAISS IVF index, with exact scores and measured recall."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.exact_search import exact_top_k, merge_top_k, pair_scores
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.platform.extras import extra
from gnnretrieval.progress import progress, say
from gnnretrieval.storage.arrays import blocks, release

_BLOCK = 65536  # passages added at a time
_QUERIES = 1024  # queries searched at a time
_TRAINING = 64  # training vectors per list
_CHECKED = 256  # queries whose recall is measured


@cache
def import_faiss() -> Any:
    """The module ``faiss``.

    Raises:
        GnnRetrievalError: It is not installed, or more than one of its packages (faiss-cpu, faiss-gpu) is.
    """
    installed = sorted(
        {
            name
            for distribution in metadata.distributions()
            if (name := (distribution.metadata["Name"] or "").lower()).startswith(("faiss-cpu", "faiss-gpu"))
        }
    )
    if len(installed) > 1:
        raise GnnRetrievalError(f"{' and '.join(installed)} own the same module: uninstall both, then install one.")
    return extra("faiss", "cpu", "An index", "or [gpu]")


def faiss_top_k(
    queries: NDArray[np.floating],
    passages: NDArray[np.floating],
    k: int,
    similarity: Similarity,
    probes: float,
    *,
    device: str = "cpu",
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Approximately the ``k`` passages of highest similarity for every query.

    The index holds float16 vectors in at most ``4 √m`` lists, in memory: ``2 m d`` bytes. Its candidates get the scores
    of :func:`gnnretrieval.encoders.exact_search.exact_top_k`, so that almost only passages in unsearched lists are
    missed. The recall of up to 256 queries is measured and printed.

    Args:
        queries: ``(n, d)``.
        passages: ``(m, d)``.
        k: Number of passages per query.
        similarity: How queries and passages are compared.
        probes: Share of the lists that are searched.
        device: Device of exact searches: for the recall, and for queries whose lists hold fewer than ``k`` passages.

    Returns:
        Rows ``(n, k)`` int64 and scores ``(n, k)`` float32, highest score first, equal scores by row.
    """
    faiss = import_faiss()
    n, (m, d) = len(queries), passages.shape
    lists = max(1, min(m // 39, round(4 * m**0.5)))
    quantizer = faiss.IndexFlatIP(d)
    index = faiss.IndexIVFScalarQuantizer(
        quantizer, d, lists, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
    )
    sample = np.unique(np.linspace(0, m - 1, min(m, _TRAINING * lists)).astype(np.int64))
    say(f"learning {lists:,} lists from {len(sample):,} passages")
    index.train(similarity.prepare_array(passages[sample]))
    with progress("indexing", m, "passages") as meter:
        for part in blocks(m, _BLOCK):
            index.add(np.ascontiguousarray(similarity.prepare_array(passages[part])))
            release(passages)
            meter.advance(part.stop - part.start)
    index.nprobe = max(1, round(probes * lists))
    rows, scores = np.empty((n, k), dtype=np.int64), np.empty((n, k), dtype=np.float32)
    short = np.zeros(n, dtype=bool)
    with progress("top-k", n, "queries") as meter:
        for part in blocks(n, _QUERIES):
            query_block = np.ascontiguousarray(similarity.prepare_array(queries[part]))
            _, candidates = index.search(query_block, min(m, k + 8))  # (b, k + 8), -1 where the lists hold fewer
            short[part] = (candidates >= 0).sum(1) < k
            exact = pair_scores(queries[part][:, None], passages[np.maximum(candidates, 0)], similarity)
            exact[candidates < 0] = -np.inf
            rows[part], scores[part], _ = merge_top_k(candidates, exact, k)
            release(passages)
            meter.advance(part.stop - part.start)
    if short.any():
        rows[short], scores[short] = exact_top_k(queries[short], passages, k, similarity, device=device)
    checked = np.unique(np.linspace(0, n - 1, min(n, _CHECKED)).astype(np.int64))
    best, _ = exact_top_k(queries[checked], passages, k, similarity, device=device)
    pairs = zip(rows[checked].tolist(), best.tolist(), strict=True)
    recall = np.mean([len({*retrieved} & {*nearest}) / k for retrieved, nearest in pairs])
    say(
        f"FAISS looked into {index.nprobe:,} of {lists:,} lists: recall of the exact top {k} {100 * recall:.1f} % "
        f"({len(checked)} queries)"
    )
    return rows, scores
