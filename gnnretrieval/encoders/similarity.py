"""The one similarity of vectors (law 3), in training, scoring and indexing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.settings import Settings

COSINE_SCALE = 20.0  # where no scale is given
_SHORTEST = 1e-12


class Similarity(Settings):
    """``s(q, p) = E_Q(q)ᵀ h_p`` (eq. 1), on unit vectors for a cosine encoder.

    Attributes:
        normalize: Whether vectors are scaled to length 1 before they are compared (cosine).
        scale: Factor on the similarity in a softmax (1 / temperature).
    """

    normalize: bool
    scale: float

    def scale_of_mean(self, passages: float, queries: float) -> float:
        """Factor in a softmax over vectors of a dot product that were divided by their mean lengths.

        An encoder without a scale of its own (1) has a factor of at least 20, as a cosine encoder: with vectors of
        length 1 and a factor of 1, all scores in the softmax would be nearly equal.
        """
        scale = self.scale * passages * queries
        return max(scale, COSINE_SCALE) if self.scale == 1.0 else scale

    def prepare(self, vectors: Tensor) -> Tensor:
        """Vectors ``(…, d)`` in float32, ready to be compared by dot product and indexed: of length 1 for cosine."""
        return F.normalize(vectors.float(), dim=-1) if self.normalize else vectors.float()

    def prepare_array(self, vectors: NDArray[np.floating]) -> NDArray[np.float32]:
        """As :meth:`prepare`, for an array."""
        rows = np.asarray(vectors, dtype=np.float32)
        if not self.normalize:
            return rows
        if rows.size == rows.shape[-1]:  # one question: the same bits in fewer calls, for a short search
            single: NDArray[np.float32] = rows / max(math.sqrt(np.add.reduce(rows * rows, axis=None)), _SHORTEST)
            return single
        lengths: Any = np.sqrt(np.add.reduce(rows * rows, axis=-1, keepdims=True))
        unit: NDArray[np.float32] = rows / np.maximum(lengths, _SHORTEST)
        return unit


def similarity_of(settings: EncoderSettings, *, says_dot: bool) -> Similarity:
    """The similarity of an encoder.

    Args:
        settings: Settings of the encoder.
        says_dot: Whether the checkpoint declares the dot product as its similarity; used with ``similarity = auto``.
    """
    kind: str = settings.similarity
    if settings.token_match == "same" or settings.sparse:
        kind = "dot"
    elif kind == "auto":
        kind = "dot" if says_dot and settings.late_interaction is None else "cosine"
    scale = settings.scale if settings.scale is not None else COSINE_SCALE if kind == "cosine" else 1.0
    return Similarity(normalize=kind == "cosine", scale=scale)
