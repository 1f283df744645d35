"""Re-rankers score a question's candidate passages again: a cross-encoder, or late interaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.cross_encoder import CrossEncoder
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.encoders.features import KIND as FEATURES
from gnnretrieval.encoders.features import Features, open_features
from gnnretrieval.encoders.late_vectors import TokenVectors
from gnnretrieval.encoders.maxsim import maxsim_of
from gnnretrieval.encoders.opening import encoder_of
from gnnretrieval.encoders.settings import CrossEncoderSettings
from gnnretrieval.encoders.trained import ENCODER
from gnnretrieval.errors import ArtifactError, GnnRetrievalError
from gnnretrieval.storage.artifacts import kind_of


class Reranker(Protocol):
    """Scores candidate passages of questions."""

    @property
    def hash(self) -> str:
        """Hash of everything that the scores depend on."""

    def scores(self, queries: Sequence[str], candidates: Sequence[Sequence[str]]) -> list[list[float]]:
        """Scores of each question's candidates.

        Args:
            queries: Texts of the questions.
            candidates: Ids of the passages to score, for each question.
        """


class CrossEncoderReranker:
    """Scores by a cross-encoder's probability of relevance.

    Args:
        encoder: The cross-encoder.
        texts: Texts of the passages.
    """

    def __init__(self, encoder: CrossEncoder, texts: TextStore) -> None:
        self.encoder, self.texts = encoder, texts
        self.hash = encoder.hash

    def scores(self, queries: Sequence[str], candidates: Sequence[Sequence[str]]) -> list[list[float]]:
        """As :meth:`Reranker.scores`."""
        distinct = list(dict.fromkeys(id_ for passages in candidates for id_ in passages))
        rows = self.texts.rows_of_passages(distinct)
        place = {id_: number for number, id_ in enumerate(distinct)}
        pairs = [(number, place[id_]) for number, passages in enumerate(candidates) for id_ in passages]
        texts = self.texts.texts_of_passages([rows[id_] for id_ in distinct])
        encoded = self.encoder.encode_pairs(queries, texts, np.array(pairs, dtype=np.int64))
        probabilities = iter(encoded.probabilities.tolist())
        return [[next(probabilities) for _ in passages] for passages in candidates]


class MaxSimReranker:
    """Scores by MaxSim over the token vectors of features, or by their same tokens (COIL).

    Args:
        features: Features by late interaction.
        device: Device of the encoder and of the products.

    Raises:
        ArtifactError: The features have one vector per text, or their encoder has other weights now.
    """

    def __init__(self, features: Features, device: str = "cpu") -> None:
        self.features, self.device, self.hash = features, device, features.hash
        self._tokens, self._starts = features.tokens, np.asarray(features.token_starts)
        encoder = encoder_of(features.meta, features.path, device)
        assert isinstance(encoder, DualEncoder)
        self._encoder = encoder
        self._ids = features.token_ids if features.matches_same else None
        none = np.empty(0, dtype=np.int64)
        self._kept = (list[str](), TokenVectors(np.empty((0, 0), dtype=np.float32), none, none))
        self._row = {id_: row for row, id_ in enumerate(features.passage_ids())}

    def scores(self, queries: Sequence[str], candidates: Sequence[Sequence[str]]) -> list[list[float]]:
        """As :meth:`Reranker.scores`.

        Raises:
            ArtifactError: The features lack a candidate.
        """
        try:
            rows = [np.array([self._row[id_] for id_ in passages], dtype=np.int64) for passages in candidates]
        except KeyError as error:
            raise ArtifactError(
                f"{self.features.path}: these features have no passage {error}. Encode the dataset of the index."
            ) from None
        kept_queries, encoded = self._kept
        if kept_queries != list(queries):  # adaptive retrieval scores the same questions again
            encoded = self._encoder.encode_tokens(queries, "query")
            self._kept = (list(queries), encoded)
        vectors = encoded.vectors.reshape(len(queries), -1, self._encoder.dimension)
        token_ids = encoded.ids.reshape(len(queries), -1)
        scores = []
        for query, query_ids, passages in zip(vectors, token_ids, rows, strict=True):
            same = None if self._ids is None else (query_ids, self._ids)
            scores.append(maxsim_of(query, self._tokens, self._starts, passages, self.device, same).tolist())
        return scores


def open_reranker(name: str, texts: TextStore, pair_tokens: int, device: str = "cpu") -> Reranker:
    """The re-ranker ``name``: features by late interaction, or a cross-encoder's name or path.

    Args:
        name: Directory of features, or a cross-encoder.
        texts: Texts of the passages, which a cross-encoder reads.
        pair_tokens: Maximum number of tokens of a pair for a cross-encoder.
        device: Where to compute.

    Raises:
        GnnRetrievalError: It is neither.
    """
    if kind_of(name) == FEATURES:
        return MaxSimReranker(open_features(name), device)
    require_reranker(name)
    return CrossEncoderReranker(
        CrossEncoder(CrossEncoderSettings(checkpoint=name, max_tokens=pair_tokens), device), texts
    )


def require_reranker(name: str) -> None:
    """Check before any work that ``name`` is features, or a checkpoint that may be a cross-encoder's.

    Raises:
        GnnRetrievalError: It is neither.
    """
    kind = kind_of(name)
    if kind == ENCODER:
        raise GnnRetrievalError(
            f"{name}: this is an encoder, which reranks by the vectors that it made. Give the features of gnnretrieval "
            f"encoder encode DATASET --checkpoint {name}, if it was trained by encoder train colbert or coil."
        )
    if kind != FEATURES:
        find_checkpoint(name)
