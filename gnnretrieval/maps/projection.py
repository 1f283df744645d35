"""Projections to two dimensions: PCA and UMAP, each fit once and applied to all vectors."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.errors import InputError
from gnnretrieval.platform.extras import extra
from gnnretrieval.storage.arrays import blocks

Floats = NDArray[np.float32]

_BLOCK = 8192  # vectors held in float64 at a time
_NEIGHBORS = 15  # neighbours in UMAP, and the number of passages that it needs more than


class Projection(Protocol):
    """A projection that was fit.

    Attributes:
        variance_kept: Share of the fitted vectors' variance that the two axes keep, 0 to 1; None: it has no axes.
    """

    variance_kept: float | None

    def apply(self, vectors: Floats) -> Floats:
        """Points ``(b, 2)`` of vectors ``(b, d)``."""


class PCA:
    """The two directions of most variance of ``vectors`` ``(n, d)``. Signs are fixed, so that a rerun is equal."""

    def __init__(self, vectors: Floats) -> None:
        count, width = vectors.shape
        self._mean = vectors.mean(0, dtype=np.float64)
        scatter = np.zeros((width, width))
        for part in blocks(count, _BLOCK):
            centred = vectors[part] - self._mean
            scatter += centred.T @ centred
        variances, directions = np.linalg.eigh(scatter)
        axes = np.zeros((width, 2))
        axes[:, : min(width, 2)] = directions[:, ::-1][:, :2]
        largest = axes[np.abs(axes).argmax(0), [0, 1]]
        self._axes = axes * np.where(largest < 0, -1.0, 1.0)
        total = float(variances.clip(0).sum())
        self.variance_kept: float | None = float(variances[-2:].clip(0).sum()) / total if total > 0 else 1.0

    def apply(self, vectors: Floats) -> Floats:
        """Points ``(b, 2)`` of vectors ``(b, d)``."""
        points: Floats = ((vectors - self._mean) @ self._axes).astype(np.float32)
        return points


class UMAP:
    """UMAP of ``vectors`` ``(n, d)``, in one thread so that a rerun is equal.

    Raises:
        GnnRetrievalError: umap-learn is not installed.
        InputError: There are too few vectors.
    """

    variance_kept: float | None = None

    def __init__(self, vectors: Floats, seed: int) -> None:
        module = extra("umap", "umap", "--method umap", "or leave it out: the map is by PCA then")
        if len(vectors) <= 2 * _NEIGHBORS:
            raise InputError(
                f"UMAP wants more than {_NEIGHBORS} passages, and was given {len(vectors) // 2}. Give a larger sample "
                "(--sample), or leave out the method (--method): PCA takes any number."
            )
        self._umap: Any = module.UMAP(n_neighbors=_NEIGHBORS, random_state=seed, n_jobs=1)
        self._umap.fit(vectors)

    def apply(self, vectors: Floats) -> Floats:
        """Points ``(b, 2)`` of vectors ``(b, d)``."""
        points: Floats = np.asarray(self._umap.transform(vectors), dtype=np.float32)
        return points
