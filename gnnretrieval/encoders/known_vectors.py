"""An encoder that looks up the vectors of texts in features, and encodes only texts that they lack."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.encoded_texts import TEXTS
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.opening import encoder_of
from gnnretrieval.encoders.prompts import Side
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.encoders.text_encoder import TextEncoder
from gnnretrieval.storage.provenance import sha256_of_json


class KnownVectors:
    """Encodes as the encoder of some features does, and takes the vectors of their texts from them.

    Args:
        features: Features by one encoder. A text in several of them has the vector of the last.
        sides: Sides whose vectors are looked up.
        device: Device of the encoder, which is opened for the first new text.

    Attributes:
        encoded: Number of texts that were encoded, by side.
    """

    def __init__(
        self, features: Sequence[Features], *, sides: Sequence[Side] = ("passage", "query"), device: str = "cpu"
    ) -> None:
        self._features, self._sides, self._device = list(features), tuple(sides), device
        self.encoded: dict[str, int] = {"passage": 0, "query": 0}

    @property
    def settings(self) -> EncoderSettings:
        """As :class:`TextEncoder`."""
        return EncoderSettings.parse(self._features[-1].meta["encoder"])

    @property
    def similarity(self) -> Similarity:
        """As :class:`TextEncoder`."""
        return self._features[-1].similarity

    @property
    def dimension(self) -> int:
        """As :class:`TextEncoder`."""
        return int(self._features[-1].meta["dimension"])

    @property
    def fingerprint(self) -> dict[str, str]:
        """As :class:`TextEncoder`."""
        return dict(self._features[-1].meta["checkpoint_hash"])

    @property
    def source(self) -> str:
        """As :class:`TextEncoder`."""
        return str(self._features[-1].meta["source"])

    def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        """As :class:`TextEncoder`."""
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        new = []
        for number, text in enumerate(texts):
            place = self._rows[side].get(sha256_of_json(text))
            if place is None:
                new.append(number)
            else:
                vectors[number] = self._arrays[side][place[0]][place[1]]
        if new:
            vectors[new] = self._encoder.encode([texts[number] for number in new], side)
            self.encoded[side] += len(new)
        return vectors

    @cached_property
    def _encoder(self) -> TextEncoder:
        last = self._features[-1]
        return encoder_of(last.meta, last.path, self._device)

    @cached_property
    def _arrays(self) -> dict[str, list[NDArray[np.float16]]]:
        return {
            "passage": [features.passages for features in self._features],
            "query": [features.queries for features in self._features],
        }

    @cached_property
    def _rows(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Place of each known text's vector by the text's hash and side: number of the features, and row."""
        rows: dict[str, dict[str, tuple[int, int]]] = {"passage": {}, "query": {}}
        for number, features in enumerate(self._features):
            with TextStore(features.path / TEXTS) as texts:
                if "passage" in self._sides:
                    for passage in texts.passages():
                        rows["passage"][sha256_of_json(passage.full_text)] = (number, passage.row)
                if "query" in self._sides:
                    for query in texts.queries():
                        rows["query"][sha256_of_json(query.text)] = (number, query.row)
        return rows
