"""Writing edge vectors: as float16 or as int8 with one scale per edge, projected (PCA) or not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import DTypeLike, NDArray

from gnnretrieval.errors import InputError
from gnnretrieval.graph.edges.arrays import quantize
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.storage.arrays import blocks, load_array, release, save_array

VECTORS, SCALES, PROBABILITIES, PROJECTION = "edge_vectors", "edge_scales", "probabilities", "edge_projection"
_BLOCK = 65536  # vectors checked at a time
_MOST = {
    "float16": float(np.finfo(np.float16).max),
    "int8": float(np.finfo(np.float32).max),
}  # numbers that can be kept


def require_kept(vectors: NDArray[np.floating], form: str, path: Path) -> None:
    """Refuse edge vectors ``(n, k, d)`` of the user's file that cannot be kept in a form, such as ``float16``.

    Raises:
        InputError: A number is not finite, or is too large; the message names its edge.
    """
    flat = vectors.reshape(-1, vectors.shape[-1])
    for part in blocks(len(flat), _BLOCK):
        beyond = ~(np.abs(flat[part]) <= _MOST[form]).all(axis=1)  # NaN is in no range
        if beyond.any():
            edge = part.start + int(beyond.argmax())
            query, rank = divmod(edge, vectors.shape[1])
            wrong = "that is not finite"
            if np.isfinite(flat[edge]).all():
                wrong = f"beyond {_MOST[form]:,.0f}, the largest of {form}: scale the vectors"
                wrong += ", or take --edge-form int8" if form == "float16" else ""
            raise InputError(f"the vector of query {query}'s passage {rank} (both from 0) has a number {wrong}.", path)
        release(vectors)


class EdgeVectorFiles:
    """The files of edge vectors, in the form of the settings; edges may be written in any order.

    Args:
        directory: The store.
        settings: Form and dimensions.
        shape: ``(n, k)``.
        width: Width of the vectors before any projection.
        fresh: Create the files; else continue those of an interrupted run.
    """

    def __init__(
        self, directory: Path, settings: GraphSettings, shape: tuple[int, int], width: int, fresh: bool
    ) -> None:
        self._directory, self._reduced = directory, settings.edge_form == "int8"
        self.width = min(width, settings.edge_dimensions or width)
        self._stored = settings.edge_vectors != "none"
        kind = np.int8 if self._reduced else np.float16
        self._vectors = self._scales = self._probabilities = None
        if self._stored:
            self._vectors = self._open(VECTORS, (*shape, self.width), kind, fresh).reshape(-1, self.width)
        if self._stored and self._reduced:
            self._scales = self._open(SCALES, shape, np.float32, fresh).reshape(-1)
        if settings.reads_pairs:
            self._probabilities = self._open(PROBABILITIES, shape, np.float16, fresh).reshape(-1)
        self.projection: NDArray[np.float32] | None = None
        if self._stored and self.width < width and (directory / f"{PROJECTION}.npy").is_file():
            self.projection = np.array(load_array(directory / f"{PROJECTION}.npy"))

    def _open(self, name: str, shape: tuple[int, ...], kind: DTypeLike, fresh: bool) -> NDArray[Any]:
        path = self._directory / f"{name}.npy"
        if fresh:
            array = open_memmap(path, mode="w+", dtype=kind, shape=shape)
            if hasattr(os, "posix_fallocate"):
                with path.open("r+b") as file:  # a full disk raises an error here, not SIGBUS at a later write
                    os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
            return array
        return open_memmap(path, mode="r+")

    def fit_projection(self, sample: NDArray[np.float32]) -> None:
        """Fit the projection (PCA) to vectors ``(s, d)`` and keep it as ``edge_projection.npy`` ``(d + 1, width)``.

        A vector ``x`` is projected to ``x @ projection[:-1] + projection[-1]``.
        """
        mean = sample.mean(0)
        _, _, axes = np.linalg.svd((sample - mean).astype(np.float64), full_matrices=False)
        axes = axes[: self.width]
        axes = np.where(axes[:, :1] < 0, -axes, axes)  # fix the sign, which SVD leaves open
        components = np.zeros((sample.shape[1], self.width))
        components[:, : len(axes)] = axes.T
        self.projection = np.vstack([components, -mean @ components]).astype(np.float32)
        save_array(self._directory / f"{PROJECTION}.npy", self.projection)

    def put(
        self, edges: Rows, vectors: NDArray[np.floating] | None, probabilities: NDArray[np.floating] | None
    ) -> None:
        """Write the vectors ``(E, d)`` and probabilities ``(E,)`` of some edges, projected and quantised as set."""
        if self._vectors is not None and vectors is not None:
            if self.projection is not None:
                vectors = vectors @ self.projection[:-1] + self.projection[-1]
            if self._scales is not None:
                self._vectors[edges], self._scales[edges] = quantize(vectors)
            else:
                self._vectors[edges] = vectors
        if self._probabilities is not None and probabilities is not None:
            self._probabilities[edges] = probabilities

    def move(
        self,
        edges: Rows,
        stored: tuple[NDArray[Any] | None, NDArray[np.float32] | None],
        probabilities: NDArray[np.float16],
    ) -> None:
        """Write vectors and scales that are already in stored form (:meth:`EdgeArrays.stored`), and probabilities."""
        vectors, scales = stored
        if self._vectors is not None and vectors is not None:
            self._vectors[edges] = vectors
        if self._scales is not None and scales is not None:
            self._scales[edges] = scales
        if self._probabilities is not None:
            self._probabilities[edges] = probabilities

    def flush(self) -> None:
        """Flush the files to disk and release their pages."""
        for array in (self._vectors, self._scales, self._probabilities):
            if isinstance(array, np.memmap):
                array.flush()
                release(array)
