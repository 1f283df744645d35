"""The Python API: open what a run made, search it, and ask why."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.text_store import PassageRow, QueryRow, TextStore
from gnnretrieval.data.trec import rank_rows
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.encoders.features import open_features
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.graph.store import GraphStore, open_graph
from gnnretrieval.index.baseline import Baseline
from gnnretrieval.index.explain import Explainer, Explanation, explainer_of
from gnnretrieval.index.faiss_index import TEXTS, PassageIndex, open_index
from gnnretrieval.index.neighborhood import describe
from gnnretrieval.index.search import Hit, Searcher
from gnnretrieval.training.embeddings import KIND as EMBEDDINGS
from gnnretrieval.training.embeddings import Embeddings, open_embeddings
from gnnretrieval.training.model import open_model

System = Literal["gnn-encoder", "dual-encoder"]
INDEX, BASELINE = "index", "index-dual-encoder"  # what a recipe calls them
DEPTH = 1000  # passages looked through for a passage's rank in the other ranking
_FEW = 64  # questions that are encoded without a bar of progress


class MovedHit(NamedTuple):
    """A passage found, and where the other encoder has it.

    Attributes:
        hit: As this encoder ranks it.
        elsewhere: Its rank by the other encoder, from 1; None where it is below :attr:`Comparison.depth`.
    """

    hit: Hit
    elsewhere: int | None


class Comparison(NamedTuple):
    """One question's ranking by the dual-encoder alone and by the GNN-encoder.

    Attributes:
        dual_encoder: Best first.
        gnn_encoder: Best first.
        depth: How many passages of each ranking were looked through.
    """

    dual_encoder: list[MovedHit]
    gnn_encoder: list[MovedHit]
    depth: int


class Retriever:
    """Ranked passages for questions, beside the dual-encoder's ranking, and the questions that moved them.

    .. code-block:: python

        from gnnretrieval import Retriever

        retriever = Retriever.open("graphs/docstrings")
        for hit in retriever.search("solve a banded system", k=5):
            print(hit.rank, hit.id, hit.score)

    The encoder and the index are loaded at once; the graph and the model when they are first asked for.

    Args:
        index: What is searched.
        device: Where questions are encoded.

    Raises:
        GnnRetrievalError: as :class:`gnnretrieval.index.search.Searcher`.
    """

    def __init__(self, index: PassageIndex, device: str = "cpu") -> None:
        self.index = index
        self._searcher = Searcher(index, device)

    @classmethod
    def open(cls, path: str | Path, *, device: str = "cpu") -> Self:
        """Open an index, or the one in the directory that ``gnnretrieval run`` or ``quickstart`` made.

        Raises:
            ArtifactError: there is none.
            GnnRetrievalError: its encoder is not at hand.
        """
        return cls(open_index(index_in(path)), device)

    @property
    def system(self) -> str:
        """What made the vectors: ``gnn-encoder``, ``dual-encoder`` or ``sentences``."""
        name: str = self.index.meta["system"]
        return name

    @property
    def num_passages(self) -> int:
        """How many passages are searched."""
        return int(self.index.meta["num_passages"])

    @property
    def has_graph(self) -> bool:
        """Whether the passages were embedded over a graph, so that rankings can be compared and explained."""
        return EMBEDDINGS in self.index.meta["made_from"]

    def search(self, question: str, k: int = 10, system: System | None = None) -> list[Hit]:
        """The ``k`` best passages for a question, best first; fewer where there are fewer.

        Args:
            question: Some words.
            k: How many.
            system: ``dual-encoder``: as it ranks without the graph; None: as the index does.

        Raises:
            InputError: the question is empty, or ``k`` is below 1.
            ArtifactError: the dual-encoder's ranking is asked of an index that no graph stands behind.
        """
        return self.search_all([question], k, system)[0]

    def search_all(self, questions: Sequence[str], k: int = 10, system: System | None = None) -> list[list[Hit]]:
        """As :meth:`search`, for many questions together; the same passages and scores as one by one."""
        _require(questions, k)
        if not self.num_passages:
            return [[] for _ in questions]
        if system is not None and system != self.system:
            if system != "dual-encoder":
                raise ArtifactError(f"{self.index.path}: an index of {self.system}, which is no {system}.")
            rows, scores = self._baseline.search(self._encode_before(questions), min(k, self.num_passages))
        elif self.index.is_of_sentences:
            return [self._searcher.hits(vector[None], k) for vector in self._encode(questions)]
        else:
            rows, scores = self.index.search(self._encode(questions), min(k, self.num_passages))
        return [self._hits(*ranking, k) for ranking in zip(rows, scores, strict=True)]

    def compare(self, question: str, k: int = 10) -> Comparison:
        """The two rankings of a question, each passage with its rank in the other.

        Raises:
            InputError: as :meth:`search`.
            ArtifactError: no graph stands behind this index.
        """
        return self.compare_all([question], k)[0]

    def compare_all(self, questions: Sequence[str], k: int = 10) -> list[Comparison]:
        """As :meth:`compare`, for many questions together."""
        _require(questions, k)
        baseline = self._baseline
        if not self.num_passages:
            return [Comparison([], [], 0) for _ in questions]
        depth = min(max(k, DEPTH), self.num_passages)
        after = self._encode(questions)
        before = after if self._encoder_before is self._searcher.encoder else self._encode_before(questions)
        found = zip(*baseline.search(before, depth), *self.index.search(after, depth), strict=True)
        comparisons = []
        for dual_rows, dual_scores, gnn_rows, gnn_scores in found:
            dual, gnn = self._hits(dual_rows, dual_scores, k), self._hits(gnn_rows, gnn_scores, k)
            dual_ranks, gnn_ranks = _ranks(dual_rows, dual), _ranks(gnn_rows, gnn)
            comparisons.append(
                Comparison(
                    [MovedHit(hit, gnn_ranks.get(hit.row)) for hit in dual],
                    [MovedHit(hit, dual_ranks.get(hit.row)) for hit in gnn],
                    depth,
                )
            )
        return comparisons

    def explain(self, passage_id: str, most: int = 5) -> Explanation:
        """Why a passage's embedding is what it is: the ``most`` heaviest questions, the gate and ``λ``.

        Raises:
            InputError: there is no such passage.
            ArtifactError: no graph stands behind this index.
        """
        return self._explainer.explain(self.passage(passage_id).row, most)

    def neighborhood(self, id_: str, is_query: bool = False, *, most: int = 10, hops: int = 2) -> dict[str, Any]:
        """A passage with the questions that found it and their other passages, or a training question likewise.

        Returns:
            As :func:`gnnretrieval.index.neighborhood.describe`, with attention.

        Raises:
            InputError: there is no such node.
            ArtifactError: no graph stands behind this index.
        """
        return describe(self.graph, id_, is_query, most=most, hops=hops, explainer=self._explainer)

    def passage(self, id_: str) -> PassageRow:
        """The passage called ``id_``; :class:`InputError` where there is none."""
        with TextStore(self.index.path / TEXTS) as texts:
            return texts.passage_by_id(id_)

    def query(self, id_: str) -> QueryRow:
        """The training question called ``id_``; :class:`InputError` where there is none."""
        with TextStore(self.index.path / TEXTS) as texts:
            return texts.query_by_id(id_)

    @cached_property
    def graph(self) -> GraphStore:
        """The query-passage graph that the passages were embedded over.

        Raises:
            ArtifactError: there is none: it is a dual-encoder's index.
        """
        return open_graph(self._embeddings.made_from("graph"))

    @cached_property
    def _embeddings(self) -> Embeddings:
        if not self.has_graph:
            raise ArtifactError(
                f"{self.index.path}: an index of {self.system}, behind which no graph stands. "
                "Give the index of a GNN-encoder's embeddings."
            )
        return open_embeddings(self.index.made_from(EMBEDDINGS))

    @cached_property
    def _explainer(self) -> Explainer:
        made = self._embeddings
        its = open_features(made.made_from("features")) if "features" in made.meta["made_from"] else None
        return explainer_of(open_model(made.made_from("gnn-encoder")), self.graph, its)

    @cached_property
    def _baseline(self) -> Baseline:
        return Baseline.of(self.graph, self.index.path.resolve().parent / BASELINE)

    @cached_property
    def _encoder_before(self) -> DualEncoder:
        """The encoder of the graph's features: another than the index's where one was trained with the model."""
        if "features" not in self._embeddings.meta["made_from"]:
            return self._searcher.encoder
        return DualEncoder(self.graph.encoder_settings, self._searcher.encoder.device)

    def _encode(self, questions: Sequence[str]) -> NDArray[np.float32]:
        if len(questions) > _FEW:
            return self._searcher.encode_all(questions)
        return self._searcher.encoder.encode(questions, "query")

    def _encode_before(self, questions: Sequence[str]) -> NDArray[np.float32]:
        if self._encoder_before is self._searcher.encoder:
            return self._encode(questions)
        return self._encoder_before.encode(questions, "query")

    def _hits(self, rows: NDArray[np.int64], scores: NDArray[np.float32], k: int) -> list[Hit]:
        """The first ``k`` of one question's rows, ranked (law 1)."""
        passages = [self.index.texts.passage(row) for row in rows[:k].tolist() if row >= 0]
        by_id = {passage.id: passage for passage in passages}
        (ranked,) = rank_rows(np.arange(len(passages))[None], scores[None, : len(passages)], [*by_id])
        return [
            Hit(rank, by_id[id_].row, id_, by_id[id_].title, by_id[id_].text, score)
            for rank, (id_, score) in enumerate(ranked, 1)
        ]


def index_in(path: str | Path) -> Path:
    """``path``, or the index in the directory of a run at ``path``."""
    path = Path(path)
    return path / INDEX if not (path / "meta.json").exists() and (path / INDEX).is_dir() else path


def _ranks(rows: NDArray[np.int64], hits: Sequence[Hit]) -> dict[int, int]:
    """Rank by row: of the hits as they are ranked, of the others as they were found."""
    return {row: rank for rank, row in enumerate(rows.tolist(), 1) if row >= 0} | {hit.row: hit.rank for hit in hits}


def _require(questions: Sequence[str], k: int) -> None:
    if k < 1:
        raise InputError(f"k is {k}: give 1 or more.")
    if any(not question.strip() for question in questions):
        raise InputError("the question is empty: give some words.")
