"""An index and the artifacts it was made from, opened on first use, or all at once and kept open."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.canary import require_same_canary
from gnnretrieval.encoders.features import KIND as FEATURES
from gnnretrieval.encoders.features import Features, open_features
from gnnretrieval.encoders.function_encoder import Encode
from gnnretrieval.encoders.opening import encoder_of, refuse_endpoint
from gnnretrieval.encoders.settings import FUNCTION, VECTORS
from gnnretrieval.encoders.text_encoder import TextEncoder
from gnnretrieval.errors import ArtifactError
from gnnretrieval.graph.store import Graph, open_graph
from gnnretrieval.index.baseline import NAME as BASELINE
from gnnretrieval.index.baseline import Baseline
from gnnretrieval.index.explain import explainer_of
from gnnretrieval.index.explanations import Explainer
from gnnretrieval.index.faiss_index import Index
from gnnretrieval.index.hybrid import Ranker, RankingSettings
from gnnretrieval.index.known_questions import BestScores, KnownQuestions
from gnnretrieval.index.stored_questions import StoredQuestions
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.training.gnn.embeddings import KIND as EMBEDDINGS
from gnnretrieval.training.gnn.embeddings import Embeddings, open_embeddings
from gnnretrieval.training.gnn.model import GNNEncoderModel, open_model


class OpenedIndex:
    """An index, and its encoder, graph and model; arguments as of :class:`~gnnretrieval.index.retriever.Retriever`.

    Attributes:
        index: The index.
        device: Device that encodes questions.
        ranking: What ranks together with the index.
        place: Where the index was opened. A link there may lead to another version later.
        lock: For callers in several threads, to hold while one of them asks.
    """

    def __init__(
        self,
        index: Index,
        *,
        encoder: TextEncoder | Encode | None = None,
        endpoint: str | None = None,
        ranking: RankingSettings | None = None,
        device: str = "cpu",
    ) -> None:
        self.index, self.device = index, device
        self.ranking = ranking or RankingSettings()
        self.ranking.require_of(index.meta["system"], index.path)
        self._given, self._endpoint = encoder, endpoint
        self._older: OpenedIndex | None = None
        self.place = index.path
        self.lock = Lock()

    @cached_property
    def encoder(self) -> TextEncoder:
        """The encoder of questions.

        Raises:
            GnnRetrievalError: As :func:`gnnretrieval.encoders.opening.encoder_of`.
        """
        settings = self.index.encoder_settings
        refuse_endpoint(self._endpoint, settings, is_given=self._given is not None)
        if self._given is None and settings.checkpoint.startswith((VECTORS, FUNCTION)):
            return StoredQuestions(self._features)
        older = self._older
        meta, path = self.index.meta, self.index.path
        if older is not None and older._given is self._given and _same_encoder(older.index.meta, meta):
            require_same_canary(older.encoder, meta, path)
            return older.encoder
        return encoder_of(meta, path, self.device, given=self._given, endpoint=self._endpoint)

    @property
    def system(self) -> str:
        """What made the vectors: ``gnn-encoder``, ``gnn-encoder-one-vector``, ``dual-encoder`` or ``sentences``."""
        name: str = self.index.meta["system"]
        return name

    @property
    def num_passages(self) -> int:
        """Number of passages in the index."""
        return int(self.index.meta["num_passages"])

    @property
    def has_graph(self) -> bool:
        """Whether the passages were embedded over a graph, so that rankings can be compared and explained."""
        return EMBEDDINGS in self.index.meta["made_from"]

    @cached_property
    def graph(self) -> Graph:
        """The query-passage graph that the passages were embedded over, including passages removed from the index.

        Raises:
            ArtifactError: The index is not of a GNN-encoder, so it has no graph.
        """
        return open_graph(self._embeddings.made_from("graph"))

    @cached_property
    def shown_graph(self) -> Graph:
        """The graph without the passages removed from the index, as answers show it.

        Raises:
            ArtifactError: As :attr:`graph`.
        """
        return self.graph.view(hidden=self.index.removed) if len(self.index.removed) else self.graph

    @cached_property
    def _embeddings(self) -> Embeddings:
        if not self.has_graph:
            raise ArtifactError(
                f"{self.index.path}: an index of {self.system}, which has no graph. "
                "Give the index of a GNN-encoder's embeddings."
            )
        return open_embeddings(self.index.made_from(EMBEDDINGS))

    @cached_property
    def model(self) -> GNNEncoderModel:
        """The GNN-encoder that embedded the passages.

        Raises:
            ArtifactError: The index is not of a GNN-encoder, so it has no model.
        """
        return open_model(self._embeddings.made_from("gnn-encoder"))

    @cached_property
    def _explainer(self) -> Explainer:
        made = self._embeddings
        features = open_features(made.made_from("features")) if "features" in made.meta["made_from"] else None
        return explainer_of(self.model, self.shown_graph, features, questions=made.has_questions)

    @property
    def no_what_if(self) -> str | None:
        """Why :meth:`~gnnretrieval.index.retriever.Retriever.what_if` is refused, in one sentence; None: it answers."""
        return self._explainer.no_what_if if self.num_passages else "The index is empty: there is nothing to change."

    @cached_property
    def _baseline(self) -> Baseline:
        return Baseline.of(self.graph, self.index.path.resolve().parent / BASELINE, self.index.removed)

    @cached_property
    def _known_questions(self) -> KnownQuestions:
        return KnownQuestions(self.index.texts)

    @cached_property
    def _best_scores(self) -> BestScores:
        return BestScores(self.shown_graph)

    @cached_property
    def _encoder_before(self) -> TextEncoder:
        """The encoder of the graph's features; differs from the index's encoder if one was trained with the model."""
        if "features" not in self._embeddings.meta["made_from"]:
            return self.encoder
        older = self._older
        if older is not None and older.has_graph and _same_encoder(older.graph.meta, self.graph.meta):
            require_same_canary(older._encoder_before, self.graph.meta, self.graph.path)
            return older._encoder_before
        return encoder_of(self.graph.meta, self.graph.path, self.device, endpoint=self._endpoint)

    @cached_property
    def _ranker(self) -> Ranker:
        ranking = self.ranking
        by_questions = ranking.adaptive is not None and ranking.neighbors_by != "vectors"
        needed = by_questions and (self.has_graph or ranking.neighbors_by != "both")
        needed |= ranking.lexical is not None
        return Ranker(self.index, ranking, self.device, self.graph if needed else None)

    @property
    def _features(self) -> Features:
        """Features that the index was made from; for a GNN-encoder's index, through its embeddings or graph."""
        if not self.has_graph:
            return open_features(self.index.made_from(FEATURES))
        made = self._embeddings
        return open_features((made if "features" in made.meta["made_from"] else self.graph).made_from("features"))

    @cached_property
    def texts(self) -> TextStore:
        """The index's ids and texts, opened separately from those of searches, so that another thread may use them."""
        return self.index.open_texts()

    def keep_open(self, in_memory: int = 0) -> None:
        """Open every file that an answer reads, because later another version may be at the same paths, or nothing.

        Args:
            in_memory: If the files of all artifacts have at most this many bytes together, index and graph are read
                into memory instead of mapped, so that nobody can change or truncate what is served.

        Raises:
            ArtifactError: The index, its embeddings and its graph are not of one version.
        """
        made = [self.index, *([self._embeddings, self.graph, self.model] if self.has_graph else [])]
        for artifact in made[:2]:  # a model may have been trained over an earlier graph
            _require_inputs(artifact, made)
        fits = sum(_bytes_of(artifact) for artifact in made) <= in_memory
        self.index.keep_open(fits)
        _ = self.texts
        if isinstance(self.encoder, StoredQuestions):
            self.encoder.keep_open()
        if not self.ranking.is_plain:
            _ = self._ranker
        if self.has_graph:
            self.graph.keep_open(fits)
            if self.shown_graph is not self.graph:
                self.shown_graph.keep_open(fits)
            self._baseline.keep_open(fits)
            _ = self._encoder_before, self._best_scores
            if self.num_passages:
                _ = self._explainer
        self._older = None

    def is_current(self) -> bool:
        """Whether the opened artifacts are still the versions on disk."""
        return all(_hash_at(artifact.path) == artifact.hash for artifact in self._opened)

    def is_newest(self) -> bool:
        """Whether the index is the version that is opened now at its :attr:`place`."""
        return _hash_at(self.place) == self.index.hash

    def close(self) -> None:
        """Close the open files. Memory-mapped arrays close when this object is deleted."""
        self.texts.close()
        self.index.texts.close()
        for name in ("graph", "shown_graph", "_baseline"):
            if name in self.__dict__:
                self.__dict__[name].close()

    @property
    def _opened(self) -> list[Artifact]:
        names = ("_embeddings", "graph", "model")
        return [self.index, *(self.__dict__[name] for name in names if name in self.__dict__)]


def _same_encoder(older: Mapping[str, Any], newer: Mapping[str, Any]) -> bool:
    return all(older[name] == newer[name] for name in ("encoder", "checkpoint_hash"))


def _require_inputs(artifact: Artifact, others: Sequence[Artifact]) -> None:
    """Raise an :class:`ArtifactError` for an artifact that was made from another version of one of ``others``."""
    for other in others:
        kind = other.meta["kind"]
        if kind in artifact.meta["made_from"] and artifact.meta["inputs"].get(kind) != other.hash:
            raise ArtifactError(
                f"{artifact.path}: made of another version of {other.path} than is there now. "
                f"Bring the {artifact.meta['kind']} up to it (--changed), or make it again."
            )


def _bytes_of(artifact: Artifact) -> int:
    return sum((artifact.path / name).stat().st_size for name in artifact.meta["files"])


def _hash_at(path: Path) -> str | None:
    try:
        recorded: str = json.loads((path / "meta.json").read_text(encoding="utf-8"))["hash"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return recorded
