"""The interface of encoders, wherever their weights are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.prompts import Side
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.similarity import Similarity


class TextEncoder(Protocol):
    """Encodes queries with ``E_Q`` and passages with ``E_P``.

    :class:`~gnnretrieval.encoders.dual_encoder.DualEncoder` computes with a checkpoint's weights,
    :class:`~gnnretrieval.encoders.endpoint.EndpointEncoder` calls an API, and
    :class:`~gnnretrieval.encoders.function_encoder.FunctionEncoder` calls a Python function.
    """

    @property
    def settings(self) -> EncoderSettings:
        """Its settings, which artifacts keep to name it and to open it again."""

    @property
    def similarity(self) -> Similarity:
        """How its vectors are compared."""

    @property
    def dimension(self) -> int:
        """Width ``d`` of a vector."""

    @property
    def fingerprint(self) -> dict[str, str]:
        """Hash by side, ``query`` and ``passage``: vectors of encoders with equal hashes can be compared."""

    @property
    def source(self) -> str:
        """Where it comes from, in words."""

    def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        """Vectors ``(len(texts), d)`` float32, of length 1 if the similarity is cosine."""
