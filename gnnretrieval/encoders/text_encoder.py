"""What an encoder is: the few things that the rest of the package asks of one, wherever its weights are."""

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

    :class:`~gnnretrieval.encoders.dual_encoder.DualEncoder` has its weights here,
    :class:`~gnnretrieval.encoders.endpoint.EndpointEncoder` asks an API, and
    :class:`~gnnretrieval.encoders.function_encoder.FunctionEncoder` calls a Python function.
    """

    @property
    def settings(self) -> EncoderSettings:
        """What stands for it in artifacts: its name, and how to open it again."""

    @property
    def similarity(self) -> Similarity:
        """How its vectors are compared."""

    @property
    def dimension(self) -> int:
        """Width ``d`` of a vector."""

    @property
    def fingerprint(self) -> dict[str, str]:
        """Hash by side, ``query`` and ``passage``: vectors of equal fingerprints can be compared."""

    @property
    def source(self) -> str:
        """In words, where it comes from."""

    def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        """Vectors ``(len(texts), d)``, of length 1 where the similarity is cosine."""
