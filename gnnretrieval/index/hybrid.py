"""Hybrid ranking: an index's rankings fused with BM25's, and the best passages reranked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.trec import Run, rank
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.errors import ArtifactError
from gnnretrieval.graph.store import Graph
from gnnretrieval.index.adaptive import ADAPTIVE, AdaptiveReranking, FirstOnly, Method, Neighbors
from gnnretrieval.index.faiss_index import KIND, PLACES, Index
from gnnretrieval.index.fuse import fuse, require_weights
from gnnretrieval.index.lexical import LexicalSetting, Questions, label_questions, lexical_index, neighbour_questions
from gnnretrieval.index.passage_neighbors import By, PassageNeighbors
from gnnretrieval.index.rerankers import Reranker, open_reranker
from gnnretrieval.index.search import bm25_run, index_run
from gnnretrieval.progress import progress
from gnnretrieval.settings import Settings
from gnnretrieval.storage.arrays import blocks
from gnnretrieval.storage.artifacts import kind_of, open_artifact
from gnnretrieval.storage.json_files import read_json

PIPELINES = "comparison-with-bm25.json"  # file in a run's directory that says how dev joins the rankings
NEEDED = {  # by setting, the one without which it has no effect
    **dict.fromkeys(("fuse", "weights", "candidates", "lexical"), "hybrid"),
    **dict.fromkeys(("rerank_depth", "pair_tokens", "adaptive"), "rerank"),
    **dict.fromkeys(("adaptive_batch", "neighbors", "neighbors_by"), "adaptive"),
}
_QUESTIONS = 64  # questions per call of the re-ranker


class RankingSettings(Settings):
    """What ranks passages together with the index.

    Attributes:
        system: The system whose index these settings were chosen for: ``gnn-encoder``, or
            ``gnn-encoder-one-vector``; not given: any.
        hybrid: Fuse the index's ranking with BM25's over the passages' texts.
        fuse: How they are fused: by reciprocal ranks (``rrf``), or by scores scaled to 0 … 1 (``weighted``).
        weights: Weights of the index and of BM25; not given: 1 each.
        lexical: BM25 over the passages with the training questions of the index's graph, by this setting; not given:
            over the passages alone, untuned.
        candidates: Number of passages taken from each of the two rankings, at least as many as are returned.
        rerank: What reranks the best passages: features by late interaction, or name or path of a cross-encoder.
        rerank_depth: Number of passages per question that it reranks; the others follow in their previous order.
        pair_tokens: Maximum number of tokens of a pair of question and passage, for a cross-encoder.
        adaptive: Rerank also the neighbours of the passages that score highest, within the same number of passages:
            ``gar`` or ``ladr`` (:mod:`gnnretrieval.index.adaptive`); not given: only the best of the first ranking.
        adaptive_batch: Number of passages that are scored before adaptive retrieval chooses the next.
        neighbors: Number of neighbours of a passage.
        neighbors_by: What makes passages neighbours: shared training ``questions``, near ``vectors``, or ``both``.
    """

    system: Literal["gnn-encoder", "gnn-encoder-one-vector"] | None = None
    hybrid: bool = False
    fuse: Literal["rrf", "weighted"] = "rrf"
    weights: tuple[float, ...] | None = None
    lexical: LexicalSetting | None = None
    candidates: int = Field(100, ge=1)
    rerank: str | None = None
    rerank_depth: int = Field(50, ge=1)
    pair_tokens: int = Field(192, ge=8)
    adaptive: Method | None = None
    adaptive_batch: int = Field(16, ge=1)
    neighbors: int = Field(16, ge=1)
    neighbors_by: By = "both"

    @field_validator("weights")
    @classmethod
    def _joins_two(cls, weights: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if weights is not None:
            require_weights(weights, 2)
        return weights

    @model_validator(mode="after")
    def _have_an_effect(self) -> Self:
        for name, needed in NEEDED.items():
            default = type(self).model_fields[name].default
            if getattr(self, name) != default and not getattr(self, needed):
                raise ValueError(f"{name} has no effect without {needed}")
        return self

    @classmethod
    def of_run(cls, path: str | Path) -> Self:
        """The best pipeline with the graph that ``gnnretrieval run`` chose on dev.

        Args:
            path: The run's directory, or its index.

        Raises:
            ArtifactError: The run has compared no pipelines, or chose one over another index of the run.
            InputError: The file of the comparison is damaged.
        """
        places = [Path(path) / PIPELINES, Path(path).resolve().parent / PIPELINES]
        place = next((path for path in places if path.is_file()), None)
        if place is None:
            raise ArtifactError(f"{places[0]}: there is no such file, in which gnnretrieval run writes its pipelines.")
        try:
            settings = read_json(place, "a comparison")["provenance"]["pipeline"]
        except (KeyError, TypeError):
            raise ArtifactError(f"{place}: it names no pipeline. Run the recipe again.") from None
        ranking = cls.parse(settings, place)
        if kind_of(path) == KIND:
            ranking.require_of(open_artifact(path, KIND, ("system",)).meta["system"], Path(path))
        return ranking

    def require_of(self, system: str, index: Path) -> None:
        """Refuse an index of another system than these settings were chosen for.

        Args:
            system: The index's system.
            index: Its path.

        Raises:
            ArtifactError: The index is of another system; the message names the one to give.
        """
        if self.system not in (None, system):
            right = index.parent / PLACES[self.system]
            raise ArtifactError(f"{index}: an index of {system}; the pipeline is over {self.system}. Give {right}.")

    @property
    def is_plain(self) -> bool:
        """Whether the index ranks alone."""
        return not self.hybrid and self.rerank is None

    @property
    def suffix(self) -> str:
        """Suffix of the system's name in a run."""
        bm25 = "+bm25" if self.lexical is None else "+bm25+questions"
        adaptive = "" if self.adaptive is None else f"+{self.adaptive}"
        return (bm25 if self.hybrid else "") + (f"{adaptive}+rerank" if self.rerank is not None else "")


class Ranker:
    """Ranks passages by an index, with BM25 and a re-ranker if the settings say so; all are loaded once.

    Args:
        index: The index, with the texts for BM25 and the re-ranker.
        settings: What ranks together with the index.
        device: Device of the re-ranker.
        graph: The index's graph, for ``settings.lexical`` and adaptive retrieval with neighbours by questions.

    Raises:
        GnnRetrievalError: The re-ranker cannot be opened.
    """

    def __init__(
        self,
        index: Index,
        settings: RankingSettings,
        device: str = "cpu",
        graph: Graph | None = None,
    ) -> None:
        self.index, self.settings = index, settings
        self._reranker: Reranker | None = None
        self._bm25 = None
        if settings.rerank is not None:
            self._reranker = open_reranker(settings.rerank, index.texts, settings.pair_tokens, device)
        self._neighbors: Neighbors = _no_neighbors
        if settings.adaptive is not None:
            self._neighbors = PassageNeighbors(index, graph, settings.neighbors, settings.neighbors_by)
        if settings.hybrid:
            self._ids: list[str] = []  # ids of BM25's passages, in its order
            if settings.lexical is None:
                self._bm25 = BM25(self._texts(), total=index.meta["num_passages"])
            else:
                assert graph is not None
                self._bm25 = self._with_questions(graph, settings.lexical)

    @property
    def reranker_hash(self) -> str | None:
        """Hash of the re-ranker; None: there is none."""
        return None if self._reranker is None else self._reranker.hash

    def run(self, queries: Mapping[str, str], vectors: NDArray[np.floating], depth: int) -> Run:
        """The run of questions, with at most ``depth`` passages each.

        Args:
            queries: Text of each question, by id.
            vectors: Vectors of the questions ``(q, d)``, in the same order.
            depth: Maximum number of passages per question.
        """
        settings = self.settings
        wanted = max(depth, settings.rerank_depth if self._reranker is not None else 0)
        if self._bm25 is None:
            run = index_run(self.index, list(queries), vectors, wanted)
        else:
            candidates = max(wanted, settings.candidates)
            by_index = index_run(self.index, list(queries), vectors, candidates)
            by_words = bm25_run(self._bm25, queries, self._ids, candidates)
            run = fuse([by_index, by_words], settings.fuse, weights=settings.weights, depth=wanted)
        if self._reranker is not None:
            run = self._reranked(queries, run)
        return {query: ranking[:depth] for query, ranking in run.items()}

    def _texts(self) -> Iterator[str]:
        for passage in self.index.texts.passages():
            self._ids.append(passage.id)
            yield passage.full_text

    def _with_questions(self, graph: Graph, setting: LexicalSetting) -> BM25:
        """BM25 over the index's passages with the graph's questions; a passage outside the graph has none."""
        ids = [passage.id for passage in self.index.texts.passages()]
        with graph.texts() as texts:
            rows = texts.rows_of_passages(ids)

        def placed(questions: Questions) -> Questions:
            """By the passage's place in the index instead of its row in the graph."""
            return {
                place: questions[row]
                for place, id_ in enumerate(ids)
                if (row := rows.get(id_)) is not None and row in questions
            }

        neighbours = placed(neighbour_questions(graph)) if setting.neighbour_weight else None
        return lexical_index(self._texts, len(ids), placed(label_questions(graph)), setting, neighbours)

    def _reranked(self, queries: Mapping[str, str], run: Run) -> Run:
        """The run, reranked: first the best of each ranking, or what adaptive retrieval chooses; the others follow."""
        reranked, query_ids = Run(), list(run)
        with progress("reranking", len(query_ids), "queries") as meter:
            for part in blocks(len(query_ids), _QUESTIONS):
                block = query_ids[part]
                rankings = self._scored([queries[query] for query in block], [run[query] for query in block])
                reranked.update(zip(block, rankings, strict=True))
                meter.advance(len(block))
        return reranked

    def _scored(self, texts: Sequence[str], rankings: Sequence[Sequence[ScoredPassage]]) -> list[list[ScoredPassage]]:
        assert self._reranker is not None
        settings = self.settings
        method: type[AdaptiveReranking]
        if settings.adaptive is None:
            method, batch = FirstOnly, settings.rerank_depth
        else:
            method, batch = ADAPTIVE[settings.adaptive], settings.adaptive_batch
        searches = [method(ranking, self._neighbors, settings.rerank_depth, batch) for ranking in rankings]
        while any(batches := [search.next() for search in searches]):
            for search, passages, scores in zip(searches, batches, self._reranker.scores(texts, batches), strict=True):
                search.receive(passages, scores)
        return [rank(search.ranking()) for search in searches]


def _no_neighbors(passages: Sequence[str]) -> list[list[str]]:
    return [[] for _ in passages]
