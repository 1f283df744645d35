"""Engines that find the nearest vectors of an index: FAISS, or an exact pass over the vectors by torch."""

from __future__ import annotations

from threading import Lock
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.exact_search import Ties, exact_top_k, merge_top_k
from gnnretrieval.encoders.faiss_search import import_faiss
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import ArtifactError
from gnnretrieval.index.kinds import core, inverted_lists, reason_of, set_search, vectors_of_graph
from gnnretrieval.storage.arrays import blocks

EngineName = Literal["faiss", "torch"]
RowsAndScores = tuple[NDArray[np.int64], NDArray[np.float32]]  # (q, k) each
_TIED = 2**22  # scores that are searched together for ties at the cut
_NOTHING = np.finfo(np.float32).min  # the score of row -1, as in FAISS


class Engine(Protocol):
    """Finds the nearest vectors."""

    def search(self, queries: NDArray[np.float32], k: int) -> RowsAndScores:
        """Rows ``(q, k)`` int64 and scores ``(q, k)`` float32 of the nearest vectors, best first.

        Args:
            queries: ``(q, d)``, prepared for the similarity.
            k: Number of vectors per query; if there are fewer, row -1 fills up.
        """


class FaissEngine:
    """Search by FAISS.

    Attributes:
        live: Number of vectors that a search can find.

    Args:
        index: The FAISS index, with all its shards joined.
        search: Search parameters to set, such as ``nprobe=32``.
        rows: Row by FAISS's number, -1 where a vector was replaced or removed; None: the number is the row.
        device: ``cuda``: search a copy on the GPU, if FAISS supports this kind of index there.
        ties: Which rows of equal score an exact search finds; None: the lowest.

    Raises:
        InputError: ``search`` cannot be set.
    """

    def __init__(
        self,
        index: Any,
        search: str = "",
        rows: NDArray[np.int64] | None = None,
        device: str = "cpu",
        ties: Ties | None = None,
    ) -> None:
        set_search(index, search)
        self.index = _on_gpu(index, device) if device != "cpu" else index
        self._rows, self._ties = rows, ties
        self._dead = 0 if rows is None else int((rows < 0).sum())
        self.live = int(index.ntotal) - self._dead
        self._on_cpu, self._lists = index, inverted_lists(index)
        self._is_exact = type(core(index)) in (import_faiss().IndexFlat, import_faiss().IndexFlatIP) and device == "cpu"
        self._all_vectors = vectors_of_graph(index)
        self._lock = Lock()

    def search(self, queries: NDArray[np.float32], k: int) -> RowsAndScores:
        """As :meth:`Engine.search`; if an approximate search finds too few vectors, all vectors are searched."""
        if self._rows is None and 0 < k <= self.live and len(queries):
            rows, scores = self._best_live(self.index, queries, k)
            if (rows[0, -1] if len(rows) == 1 else rows[:, -1].min()) >= 0:
                return rows, scores
        return self._search_all(queries, k)

    def search_once(self, queries: NDArray[np.float32], k: int) -> RowsAndScores:
        """As :meth:`search` for at most :attr:`live` vectors; row -1 fills up where an approximate one finds few."""
        return self._best_live(self.index, queries, k)

    def _search_all(self, queries: NDArray[np.float32], k: int) -> RowsAndScores:
        """Search for any ``k``, with dead vectors among the others or too few vectors in the lists that are probed."""
        rows = np.full((len(queries), k), -1, dtype=np.int64)
        scores = np.full((len(queries), k), _NOTHING, dtype=np.float32)
        most = min(k, self.live)
        if not most or not len(queries):
            return rows, scores
        rows[:, :most], scores[:, :most] = self._best_live(self.index, queries, most)
        short = rows[:, most - 1] < 0
        if not short.any():
            return rows, scores
        # an approximate search missed some of the first k: search all vectors for these queries
        if self._all_vectors is not None:
            rows[short, :most], scores[short, :most] = self._best_live(self._all_vectors, queries[short], most)
        elif self._lists is not None and self._lists.nprobe < self._lists.nlist:
            with self._lock:  # nprobe belongs to the index: meanwhile other threads' searches are only more thorough
                before = self._lists.nprobe
                set_search(self._on_cpu, f"nprobe={self._lists.nlist}")
                try:
                    rows[short, :most], scores[short, :most] = self._best_live(self._on_cpu, queries[short], most)
                finally:
                    set_search(self._on_cpu, f"nprobe={before}")
        return rows, scores

    def _best_live(self, index: Any, queries: NDArray[np.float32], k: int) -> RowsAndScores:
        """The ``k`` best vectors that are not replaced or removed; fetches more while too few of them are."""
        if self._is_exact:
            return self._exact(index, queries, k)
        if not self._dead:
            scores, numbers = self._by_faiss(index, queries, k)
            return numbers if self._rows is None else self._rows_of(numbers), scores
        width = k + min(self._dead, k)
        rows, scores = self._first_live(index, queries, width, k)
        while (short := rows[:, -1] < 0).any() and width < k + self._dead:
            width = min(k + self._dead, 4 * width)
            rows[short], scores[short] = self._first_live(index, queries[short], width, k)
        return rows, scores

    def _exact(self, index: Any, queries: NDArray[np.float32], k: int) -> RowsAndScores:
        """As :meth:`_best_live`. Where more rows have the score of the last one, :attr:`_ties` says which are found.

        FAISS takes any of these, and others if the index is in parts.
        """
        total = int(index.ntotal)
        width = min(total, k + 1 + min(self._dead, k))
        rows, scores = np.empty((len(queries), k), dtype=np.int64), np.empty((len(queries), k), dtype=np.float32)
        left = np.arange(len(queries))
        if not self._dead:  # most queries need no more than this
            found, numbers = self._by_faiss(index, queries, width)
            rows, scores = np.ascontiguousarray(numbers[:, :k]), np.ascontiguousarray(found[:, :k])
            rows = rows if self._rows is None else self._rows_of(rows)
            left = np.flatnonzero(found[:, k - 1] == found[:, -1]) if width > k else left[:0]
            width = min(total, 4 * width)
        while len(left):
            still = []
            for part in blocks(len(left), max(1, _TIED // width)):
                block = left[part]
                found, numbers = self._by_faiss(index, np.ascontiguousarray(queries[block]), width)
                own = numbers if self._rows is None else self._rows_of(numbers)
                live = np.where(own < 0, _NOTHING, found)
                whole = ((live > found[:, -1:]).sum(1) >= k) | (width == total)  # every row that ties is among them
                rows[block[whole]], scores[block[whole]], _ = merge_top_k(own[whole], live[whole], k, self._ties)
                still.append(block[~whole])
            left = np.concatenate(still)
            width = min(total, 4 * width)
        return rows, scores

    def _first_live(self, index: Any, queries: NDArray[np.float32], width: int, k: int) -> RowsAndScores:
        scores, numbers = self._by_faiss(index, queries, width)
        rows = self._rows_of(numbers)
        scores = np.where(rows < 0, _NOTHING, scores)
        order = np.argsort(rows < 0, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1)

    def _by_faiss(self, index: Any, queries: NDArray[np.float32], k: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Scores and numbers ``(q, k)`` by FAISS.

        Raises:
            ArtifactError: The index is damaged. FAISS reads a memory-mapped file only here.
        """
        try:
            scores, numbers = index.search(queries, k)
        except (RuntimeError, MemoryError) as error:
            reason = reason_of(error) if isinstance(error, RuntimeError) else "it wants more memory than there is"
            raise ArtifactError(f"FAISS cannot search this index ({reason}). Build it again.") from None
        in_order = np.sort(numbers, axis=1)
        if ((in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] >= 0)).any():
            raise ArtifactError("this index finds a vector twice: it is damaged. Build it again.")
        return scores, numbers

    def _rows_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        assert self._rows is not None
        if int(numbers.max(initial=-1)) >= len(self._rows):
            raise ArtifactError("this index finds a vector that it has no row of: it is damaged. Build it again.")
        rows: NDArray[np.int64] = np.where(numbers < 0, -1, self._rows[np.maximum(numbers, 0)])
        return rows


class TorchEngine:
    """Exact blockwise search over the vectors that the index was made from (:mod:`gnnretrieval.encoders.exact_search`).

    Attributes:
        live: Number of vectors that a search can find.

    Args:
        vectors: ``(m, d)``, may be memory-mapped; all are read for every batch of queries.
        similarity: How vectors are compared.
        removed: Rows to leave out, sorted.
        device: Device of the matrix products.
        ties: Which rows of equal score are found; None: the lowest.
    """

    def __init__(
        self,
        vectors: NDArray[np.floating],
        similarity: Similarity,
        removed: NDArray[np.int64],
        device: str = "cpu",
        ties: Ties | None = None,
    ) -> None:
        self._vectors, self._similarity, self._removed, self._device = vectors, similarity, removed, device
        self._ties, self.live = ties, len(vectors) - len(removed)

    def search(self, queries: NDArray[np.float32], k: int) -> RowsAndScores:
        """As :meth:`Engine.search`."""
        rows = np.full((len(queries), k), -1, dtype=np.int64)
        scores = np.full((len(queries), k), _NOTHING, dtype=np.float32)
        most = min(k, self.live)
        if not most or not len(queries):
            return rows, scores
        widest, width = most + len(self._removed), most + min(most, len(self._removed))
        while True:
            candidates, values = exact_top_k(
                queries, self._vectors, width, self._similarity, device=self._device, ties=self._ties
            )
            dead = np.isin(candidates, self._removed) if len(self._removed) else np.zeros(candidates.shape, dtype=bool)
            if width == widest or (~dead).sum(1).min() >= most:
                break
            width = min(widest, 4 * width)
        live = np.where(dead, _NOTHING, values)
        rows[:, :most], scores[:, :most], _ = merge_top_k(candidates, live, most, self._ties)
        return rows, scores

    search_once = search


class DistinctEngine:
    """Search of passages with several vectors: each is found once, and scores by the best of them.

    Args:
        engine: Finds vectors, of equal score any.
        passages: Row of each vector's passage ``(v,)``.
        ties: Which passages of equal score are found; None: those with the lowest rows.
    """

    def __init__(
        self, engine: FaissEngine | TorchEngine, passages: NDArray[np.int64], ties: Ties | None = None
    ) -> None:
        self._engine, self._passages, self._ties = engine, passages, ties
        self._each = -(-len(passages) // max(1, int(passages.max(initial=-1)) + 1))  # vectors of a passage, rounded up

    def search(self, queries: NDArray[np.float32], k: int) -> RowsAndScores:
        """As :meth:`Engine.search`, with rows of passages; searches for more vectors until ``k`` passages are sure."""
        rows = np.full((len(queries), k), -1, dtype=np.int64)
        scores = np.full((len(queries), k), _NOTHING, dtype=np.float32)
        total = self._engine.live
        left, width = np.arange(len(queries) if k and total else 0), min(total, k * (1 + self._each))
        while len(left):
            still = []
            for part in blocks(len(left), max(1, _TIED // width)):
                block = left[part]
                numbers, found = self._engine.search_once(np.ascontiguousarray(queries[block]), width)
                own = self._first_of_each(numbers)
                short = (numbers[:, -1] < 0) & ((own >= 0).sum(1) < k)
                if short.any():  # an approximate search found all that it can: search all vectors for these queries
                    numbers, found[short] = self._engine.search(np.ascontiguousarray(queries[block[short]]), width)
                    own[short] = self._first_of_each(numbers)
                best = np.where(own < 0, _NOTHING, found)
                # a passage that was not found scores no more than the last vector
                whole = ((best > found[:, -1:]).sum(1) >= k) | (width == total)
                most = min(k, width)
                rows[block[whole], :most], scores[block[whole], :most], _ = merge_top_k(
                    own[whole], best[whole], most, self._ties
                )
                still.append(block[~whole])
            left = np.concatenate(still)
            width = min(total, 4 * width)
        return rows, scores

    def _first_of_each(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row of the passage of each vector in its ranking ``(q, w)``; -1 for all but a passage's first."""
        if int(numbers.max(initial=-1)) >= len(self._passages):
            raise ArtifactError("this index finds a vector that it has no row of: it is damaged. Build it again.")
        rows = np.where(numbers < 0, -1, self._passages[np.maximum(numbers, 0)])
        order = np.argsort(rows, axis=1, kind="stable")
        grouped = np.take_along_axis(rows, order, 1)
        repeats = np.zeros(rows.shape, dtype=bool)
        np.put_along_axis(repeats, order[:, 1:], grouped[:, 1:] == grouped[:, :-1], 1)
        return np.where(repeats, -1, rows)


def _on_gpu(index: Any, device: str) -> Any:
    """A copy of the index on a GPU, or the index itself if FAISS lacks GPU support, or support for this kind."""
    faiss = import_faiss()
    if not hasattr(faiss, "StandardGpuResources"):  # faiss-cpu
        return index
    try:
        return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), int(device.partition(":")[2] or 0), index)
    except RuntimeError:  # HNSW and others exist on the CPU only
        return index
