"""Questions with stored vectors: the only ones that can be searched as text if an index's encoder is not available."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.encoded_texts import TEXTS
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.prompts import Side
from gnnretrieval.encoders.settings import VECTORS, EncoderSettings
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import InputError


class UnknownQuestion(InputError):
    """Raised for a question that is not stored, where only stored questions can be encoded."""


class StoredQuestions:
    """Encodes the questions of a dataset by looking up their vectors; refuses all others.

    Args:
        features: Vectors of all queries, with their texts.
    """

    def __init__(self, features: Features) -> None:
        self._features = features
        self.settings = EncoderSettings.parse(features.meta["encoder"], features.path / "meta.json")
        self.fingerprint: dict[str, str] = features.meta["checkpoint_hash"]

    @property
    def similarity(self) -> Similarity:
        """The similarity of the features."""
        return self._features.similarity

    @property
    def dimension(self) -> int:
        """Width ``d`` of a vector."""
        return int(self._features.meta["dimension"])

    @property
    def source(self) -> str:
        """Where the vectors come from, in words."""
        return "stored vectors"

    @property
    def any(self) -> str | None:
        """A stored question; None if there is none."""
        return next(iter(self._row_of), None)

    @cached_property
    def _vectors(self) -> NDArray[np.float16]:
        return self._features.queries

    @cached_property
    def _row_of(self) -> dict[str, int]:
        with TextStore(self._features.path / TEXTS) as texts:
            return {plain(query.text): query.row for query in texts.queries()}

    def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        """Vectors ``(len(texts), d)`` float32 of stored questions.

        Raises:
            UnknownQuestion: A question is not stored, or ``side`` is ``passage``.
        """
        unknown = next((text for text in texts if plain(text) not in self._row_of), None)
        if unknown is not None or side == "passage":
            name = self.settings.checkpoint.removeprefix(VECTORS)
            raise UnknownQuestion(
                f"{unknown!r} is none of the {len(self._row_of):,} stored questions, and the encoder ({name}) is not "
                "here to encode another. Ask a stored one, give a vector (search_vectors; search --vectors), or open "
                "with an encoder (encoder=…)."
            )
        rows = [self._row_of[plain(text)] for text in texts]
        return np.asarray(self._vectors[rows], dtype=np.float32)

    def keep_open(self) -> None:
        """Open every file now, because another version may be at the same paths later."""
        _ = self._row_of, self._vectors


def plain(text: str) -> str:
    """A question with each run of white space as one space, for comparison."""
    return " ".join(text.split())
