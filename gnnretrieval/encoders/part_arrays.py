"""Arrays of features: a vector per text, and where they have them, one per sentence (DCSR) or token (ColBERT)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.encoded_texts import EncodedTexts
from gnnretrieval.encoders.part_files import (
    QUERY_TOKEN_IDS,
    QUERY_TOKEN_STARTS,
    QUERY_TOKENS,
    SENTENCE_STARTS,
    SENTENCES,
    TOKEN_IDS,
    TOKEN_STARTS,
    TOKENS,
)
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import ArtifactError
from gnnretrieval.storage.array_checks import require_offsets
from gnnretrieval.storage.arrays import load_array


class PartArrays(EncodedTexts):
    """The arrays of :class:`gnnretrieval.encoders.features.Features`."""

    @property
    def sentences(self) -> NDArray[np.float16]:
        """Vectors ``(S, d)`` of all passages' sentences, memory-mapped.

        Raises:
            ArtifactError: Passages were read whole.
        """
        self._require_sentences()
        return self._vectors(SENTENCES, "num_sentences")

    @property
    def sentence_starts(self) -> NDArray[np.int64]:
        """Offsets ``(m + 1,)`` in :attr:`sentences`: passage ``i`` has the rows ``starts[i]:starts[i + 1]``.

        Raises:
            ArtifactError: Passages were read whole.
        """
        self._require_sentences()
        return self._starts(SENTENCE_STARTS, "num_passages", "num_sentences")

    @property
    def tokens(self) -> NDArray[np.generic]:
        """Stored vectors ``(T, d)`` of all passages' tokens, float16 or int8, memory-mapped; late interaction's.

        Raises:
            ArtifactError: Texts have one vector.
        """
        self._require_tokens()
        how = EncoderSettings.parse(self.meta["encoder"], self.path / "meta.json").token_storage
        array: NDArray[np.generic] = load_array(
            self.path / TOKENS, (self.meta["num_passage_tokens"], self.meta["dimension"]), how
        )
        return array

    @property
    def token_starts(self) -> NDArray[np.int64]:
        """Offsets ``(m + 1,)`` in :attr:`tokens`; errors as there."""
        self._require_tokens()
        return self._starts(TOKEN_STARTS, "num_passages", "num_passage_tokens")

    @property
    def query_tokens(self) -> NDArray[np.float16]:
        """Vectors ``(n, l, d)`` of all queries' tokens, memory-mapped; errors as :attr:`tokens`."""
        self._require_tokens()
        count, total, width = (self.meta[name] for name in ("num_queries", "num_query_tokens", "dimension"))
        starts = self._starts(QUERY_TOKEN_STARTS, "num_queries", "num_query_tokens")
        if len(set(np.diff(starts).tolist())) > 1:
            raise ArtifactError(f"{self.path / QUERY_TOKEN_STARTS}: queries of several lengths. Encode again.")
        array: NDArray[np.float16] = load_array(self.path / QUERY_TOKENS, (total, width), np.float16)
        return array.reshape(count, total // max(1, count), width)

    @property
    def matches_same(self) -> bool:
        """Whether a question's token meets only the same token of a passage (COIL)."""
        return QUERY_TOKEN_IDS in self.meta["files"]

    @property
    def token_ids(self) -> NDArray[np.int32]:
        """Ids ``(T,)`` of :attr:`tokens` in the vocabulary, memory-mapped; only where :attr:`matches_same`."""
        array: NDArray[np.int32] = load_array(self.path / TOKEN_IDS, (self.meta["num_passage_tokens"],), np.int32)
        return array

    @property
    def query_token_ids(self) -> NDArray[np.int32]:
        """Ids ``(n, l)`` of :attr:`query_tokens`, memory-mapped; only where :attr:`matches_same`."""
        count, total = self.meta["num_queries"], self.meta["num_query_tokens"]
        array: NDArray[np.int32] = load_array(self.path / QUERY_TOKEN_IDS, (total,), np.int32)
        return array.reshape(count, total // max(1, count))

    def _starts(self, name: str, texts: str, parts: str) -> NDArray[np.int64]:
        starts: NDArray[np.int64] = load_array(self.path / name, (self.meta[texts] + 1,), np.int64)
        require_offsets(starts, self.meta[parts], self.path / name)
        return starts

    def _vectors(self, name: str, count: str) -> NDArray[np.float16]:
        shape = (self.meta[count], self.meta["dimension"])
        array: NDArray[np.float16] = load_array(self.path / name, shape, np.float16)
        return array

    @property
    def has_sentences(self) -> bool:
        """Whether passages were read by sentences."""
        return "num_sentences" in self.meta

    @property
    def has_tokens(self) -> bool:
        """Whether every token has a vector, for late interaction."""
        return "num_passage_tokens" in self.meta

    def _require_tokens(self) -> None:
        if not self.has_tokens:
            raise ArtifactError(
                f"{self.path}: its texts have one vector each. Late interaction needs one per token: encode with a "
                "checkpoint of encoder train colbert."
            )

    def _require_sentences(self) -> None:
        if not self.has_sentences:
            raise ArtifactError(
                f"{self.path}: its passages were read whole, and have no vectors of sentences. "
                "Encode with --sentences token (or mean)."
            )
