"""The Python API: open what a run made, search it, and explain the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index as index_of
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.runs.ranking import places_by_id
from gnnretrieval.data.runs.trec import Run
from gnnretrieval.data.text_store import PassageRow, QueryRow
from gnnretrieval.encoders.exact_search import ranks_of
from gnnretrieval.encoders.function_encoder import Encode
from gnnretrieval.encoders.reader import Reader
from gnnretrieval.encoders.text_encoder import TextEncoder
from gnnretrieval.encoders.trained import GNN_ENCODER
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError, nearest
from gnnretrieval.index.answering import Answer, read_hits
from gnnretrieval.index.comparison import EncoderComparison, moved_hits
from gnnretrieval.index.engines import EngineName
from gnnretrieval.index.explanations import Explanation
from gnnretrieval.index.faiss_index import KIND, PLACES, Index, open_index
from gnnretrieval.index.hybrid import RankingSettings
from gnnretrieval.index.neighborhood import describe
from gnnretrieval.index.opened import OpenedIndex
from gnnretrieval.index.search import Hit, hits_by_sentences, hits_of, hits_of_ranking
from gnnretrieval.index.stored_questions import StoredQuestions
from gnnretrieval.index.what_if import Asked, Change, WhatIf, what_if
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks
from gnnretrieval.storage.places import find

System = Literal["gnn-encoder", "gnn-encoder-one-vector", "dual-encoder"]
INDEX = PLACES[GNN_ENCODER]  # name of the index in a recipe's directory
DEPTH = 1000  # depth to which a passage's rank in the other ranking is looked up
_TRIES = 5  # openings of an index that another process replaces meanwhile
_FEW, _BLOCK = 64, 1024  # questions encoded without a progress bar; questions encoded at a time


class Why(NamedTuple):
    """Why a passage has its place in a ranking.

    Attributes:
        explanation: The training questions that moved it.
        rank_before: Its rank by the dual-encoder alone, from 1.
        matched: The training question by which it was found, from an index of several vectors a passage; None: its own
            vector.
    """

    explanation: Explanation
    rank_before: int
    matched: QueryRow | None = None


class Retriever(OpenedIndex):
    """Ranks passages for questions, compares with the dual-encoder's ranking, and explains what moved a passage.

    .. code-block:: python

        from gnnretrieval import Retriever

        retriever = Retriever.open("graphs/docstrings")
        for hit in retriever.search("solve a banded system", k=5):
            print(hit.rank, hit.id, hit.score)

    The command line and the server use it too. Encoder, graph and model are loaded on first use.

    Args:
        index: The index to search.
        encoder: The encoder of the index, such as a :class:`FunctionEncoder` or the function that made its vectors;
            None: the recorded one is opened.
        endpoint: Address of the endpoint that encodes questions, if it differs from the one recorded in the index or
            has to be allowed: see :func:`gnnretrieval.encoders.endpoint.allowed`.
        ranking: What ranks together with the index: BM25, a cross-encoder; None: the index alone.
        device: Device that encodes questions.
    """

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        encoder: TextEncoder | Encode | None = None,
        endpoint: str | None = None,
        ranking: RankingSettings | None = None,
        engine: EngineName = "faiss",
        device: str = "cpu",
        older: OpenedIndex | None = None,
    ) -> Self:
        """Open an index, or the index in the directory that ``gnnretrieval run`` or ``quickstart`` made.

        If the index's encoder is not available (imported vectors, or a function that is not given), only questions
        stored with the features can be searched, and vectors.

        Args:
            path: The index, or the run's directory.
            encoder: As :class:`Retriever`.
            endpoint: As :class:`Retriever`.
            ranking: As :class:`Retriever`.
            engine: ``faiss``: FAISS; ``torch``: an exact pass by torch.
            device: Device that encodes questions and, where the engine supports it, searches.
            older: The retriever of an earlier version of this index. Its encoders are reused if they are the same.

        Raises:
            ArtifactError: There is no index, or its encoder has other weights now.
            GnnRetrievalError: Its encoder cannot be opened.
        """
        place = index_in(path, ranking)
        index = _open_whole(place, engine, device)
        opened = cls(index, encoder=encoder, endpoint=endpoint, ranking=ranking, device=device)
        opened.place, opened._older = place, older
        _ = opened.encoder
        return opened

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.index.path)!r}: {self.num_passages:,} passages by {self.name})"

    @property
    def name(self) -> str:
        """Name of the ranking in runs, with what ranks together with the system."""
        return self.system + self.ranking.suffix

    def search(self, question: str, k: int = 10, system: System | None = None) -> list[Hit]:
        """The ``k`` best passages for a question, best first; fewer if there are fewer.

        Args:
            question: The question's text.
            k: Number of passages.
            system: ``dual-encoder`` with a GNN-encoder's index: the dual-encoder's ranking, without the graph, BM25 or
                a cross-encoder. None or the system of the index: the ranking as opened.

        Raises:
            InputError: The question is empty or not a text, ``k`` is below 1, or the system's name is unknown.
            ArtifactError: The index cannot rank by this system, such as by the dual-encoder alone without a graph.
        """
        if not isinstance(question, str):
            raise InputError(f"search takes one question, and this is a {_kind(question)}: search_all takes several.")
        return self.search_all([question], k, system)[0]

    def search_all(self, questions: Sequence[str], k: int = 10, system: System | None = None) -> list[list[Hit]]:
        """As :meth:`search`, for many questions together: the same passages, and the same scores up to rounding."""
        questions, k = _checked(questions, k)
        self._require_system(system)
        if not self.num_passages or not questions:
            return [[] for _ in questions]
        if system not in (None, self.system):
            return self._hits(*self._baseline.search(self._encode_before(questions), min(k, self.num_passages)))
        vectors = self.encode(questions)
        if self.ranking.is_plain:
            return self.search_vectors(vectors, k)
        numbered = {str(number): question for number, question in enumerate(questions)}
        run = self._ranker.run(numbered, vectors, k)
        return [hits_of_ranking(self.index.texts, run.get(number, [])) for number in numbered]

    def answer(self, question: str, reader: Reader) -> Answer:
        """The answer of a question: a span of one of its best passages (Karpukhin et al. 2020, section 6.1).

        Args:
            question: The question's text.
            reader: Reads the passages; its settings say how many, and how much the retrieval score weighs.

        Raises:
            InputError: As :meth:`search`.
            ArtifactError: None of the retrieved passages has a text.
        """
        hits = self.search(question, reader.settings.passages)
        answer = read_hits(reader, question, hits).answer(reader.settings.weight)
        if answer is None:
            raise ArtifactError(
                f"{self.index.path}: none of the {len(hits):,} retrieved passages has a text to find an answer in. "
                "Give an index with texts."
            )
        return answer

    def search_vectors(self, vectors: NDArray[np.floating], k: int = 10) -> list[list[Hit]]:
        """As :meth:`search_all` by the index alone, for vectors of questions ``(q, d)`` from its encoder.

        Raises:
            InputError: The vectors have another shape or are not finite floats, or ``k`` is below 1.
        """
        rows = self._finite(vectors)
        _, k = _checked([], k)
        if self.index.is_of_sentences:
            return [hits_by_sentences(self.index, vector[None], k) for vector in rows]
        return self._hits(*self.index.search(rows, min(k, self.num_passages)))

    def warm_up(self, k: int = 10) -> str:
        """Search once, so that the first real search need not load anything; returns the question, empty if none."""
        stored = self.encoder.any if isinstance(self.encoder, StoredQuestions) else "warm up"
        if stored is not None:
            self.search(stored, k)
        return stored or ""

    def run(self, queries: Mapping[str, str], depth: int = 100, *, vectors: NDArray[np.floating] | None = None) -> Run:
        """The run of some questions, which ``write_run`` writes and ``evaluate`` and ``compare`` read.

        Args:
            queries: Text of each question, by id.
            depth: Number of passages per question.
            vectors: Vectors of the questions ``(q, d)``; None: they are encoded.

        Raises:
            InputError: A question is empty or not a text, ``depth`` is below 1, or the vectors are not one finite
                vector of floats for each question.
        """
        questions, depth = _checked([*queries.values()], depth)
        rows = self.encode(questions) if vectors is None else self._finite(vectors)
        if len(rows) != len(questions):
            raise InputError(f"{len(rows):,} vectors for {len(questions):,} questions: give one each, in their order.")
        return self._ranker.run(queries, rows, depth)

    def compare(self, question: str, k: int = 10) -> EncoderComparison:
        """The rankings of a question by dual-encoder and GNN-encoder, each passage with its rank in the other.

        Raises:
            InputError: The question is empty or not a text, or ``k`` is below 1.
            ArtifactError: This index has no graph.
        """
        return self.compare_all([question], k)[0]

    def compare_all(self, questions: Sequence[str], k: int = 10) -> list[EncoderComparison]:
        """As :meth:`compare`, for many questions together."""
        questions, k = _checked(questions, k)
        baseline = self._baseline
        if not self.num_passages:
            return [EncoderComparison([], [], 0) for _ in questions]
        depth = min(max(k, DEPTH), self.num_passages)
        after = self.encode(questions)
        before = after if self._encoder_before is self.encoder else self._encode_before(questions)
        by_dual_encoder = zip(*baseline.search(before, depth), strict=True)
        by_gnn_encoder = zip(*self.index.search(after, depth), strict=True)
        comparisons = []
        for question, first, second in zip(questions, by_dual_encoder, by_gnn_encoder, strict=True):
            hits = moved_hits(self.index.texts, first, second, k)
            below = self._best_scores.share_below(float(first[1][0]))
            comparisons.append(EncoderComparison(*hits, depth, self._known_questions.relevant(question), below))
        if not self.index.has_questions:
            return comparisons
        return [
            one._replace(
                gnn_encoder=[moved._replace(matched=self._matched(moved.hit, by)) for moved in one.gnn_encoder]
            )
            for one, by in zip(comparisons, after, strict=True)
        ]

    def _matched(self, hit: Hit, vector: NDArray[np.float32]) -> QueryRow | None:
        """The training question by which a question's vector ``(d,)`` finds a hit; None: its own vector."""
        row = self._explainer.nearest_question(hit.row, vector)
        return None if row is None else self.texts.query(row)

    def what_if(self, question: str, change: Change, k: int = 10) -> WhatIf:
        """The ranking of a question as it is, and after a change of the graph around one passage; nothing is saved.

        Raises:
            InputError: The question is empty, or there is no such passage or training question.
            NoWhatIf: The change cannot be computed, such as with a model that kept no messages.
            ArtifactError: This index has no graph.
        """
        return what_if(self, self.asked_all([(question, change)])[0], change, k)

    def asked_all(self, items: Sequence[tuple[str, Change]]) -> list[Asked]:
        """What changes need of encoder and index, for :func:`gnnretrieval.index.what_if.what_if` in another thread.

        Raises:
            InputError: A question is empty or not a text.
            ArtifactError: This index has no graph.
        """
        asked, width = [], self.graph.k
        depth = min(DEPTH, self.num_passages)
        for question, change in items:
            vectors = self.encode([question, *change.asked])
            rows, scores = self.index.search(vectors[:1], depth)
            neighbors = np.empty((0, width), dtype=np.int64)
            if change.asked:
                neighbors, _ = self._baseline.search(self._encode_before(change.asked), min(width, self.num_passages))
            asked.append(Asked(vectors[0], (rows[0], scores[0]), vectors[1:], neighbors))
        return asked

    def explain(self, passage_id: str, most: int = 5) -> Explanation:
        """Explain a passage's embedding: its ``most`` heaviest training questions, the gate and ``λ``.

        Raises:
            InputError: There is no passage with this id.
            ArtifactError: This index has no graph.
        """
        return self._explainer.explain(self.passage(passage_id).row, most)

    def why(self, question: str, hits: Sequence[Hit], most: int = 5) -> list[Why]:
        """Explain why each hit of a question has its place in the ranking.

        Raises:
            ArtifactError: This index has no graph.
        """
        if not hits:
            return []
        graph, rows, vector = self.graph, [hit.row for hit in hits], self._encode_before([question])[0]
        with graph.texts() as texts:

            def by_id(tied: NDArray[np.int64]) -> NDArray[np.int64]:
                return places_by_id(tied, texts.ids_of_passages)

            given = (rows, vector, graph.passage_features, graph.similarity, self.index.removed)
            ranks = ranks_of(*given, ties=by_id)
        return [
            Why(self._explainer.explain(hit.row, most), rank, self._matched(hit, vector))
            for hit, rank in zip(hits, ranks, strict=True)
        ]

    def neighborhood(self, id_: str, is_query: bool = False, *, most: int = 10, hops: int = 2) -> dict[str, Any]:
        """A passage with its training questions and their other passages; or a training question with its passages.

        Returns:
            As :func:`gnnretrieval.index.neighborhood.describe`, with attention.

        Raises:
            InputError: The graph has no such node.
            ArtifactError: This index has no graph.
        """
        return describe(self.shown_graph, id_, is_query, most=most, hops=hops, explainer=self._explainer)

    def passage(self, id_: str) -> PassageRow:
        """The passage with the id ``id_``.

        Raises:
            InputError: There is no such passage.
        """
        return self.texts.passage_by_id(id_)

    def query(self, id_: str) -> QueryRow:
        """The training question with the id ``id_``.

        Raises:
            InputError: There is no such question.
        """
        return self.texts.query_by_id(id_)

    def _require_system(self, system: str | None) -> None:
        if system is None or system == self.system or (system == "dual-encoder" and self.has_graph):
            return
        known = [self.system] + (["dual-encoder"] if self.has_graph else [])
        if system in get_args(System):
            raise ArtifactError(f"{self.index.path}: an index of {self.system}, which is no {system}.")
        raise InputError(f"there is no system {system!r}.{nearest(system, known)} Present: {', '.join(known)}.")

    def encode(self, questions: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of questions ``(q, d)`` float32, for :meth:`search_vectors` and :meth:`run`.

        Raises:
            InputError: A question is empty or not a text.
        """
        questions, _ = _checked(questions, 1)
        if len(questions) <= _FEW:
            return self.encoder.encode(questions, "query")
        vectors = np.empty((len(questions), self.encoder.dimension), dtype=np.float32)
        with progress("encoding queries", len(questions), "queries") as meter:
            for part in blocks(len(questions), _BLOCK):
                vectors[part] = self.encoder.encode(questions[part], "query")
                meter.advance(part.stop - part.start)
        return vectors

    def _encode_before(self, questions: Sequence[str]) -> NDArray[np.float32]:
        if self._encoder_before is self.encoder:
            return self.encode(questions)
        return self._encoder_before.encode(questions, "query")

    def _finite(self, vectors: NDArray[np.floating]) -> NDArray[np.floating]:
        """Vectors of questions ``(q, d)``; errors as :meth:`search_vectors`."""
        rows = np.asarray(vectors)
        if rows.ndim != 2 or rows.shape[1] != self.index.meta["dimension"]:
            raise InputError(f"an array {rows.shape}; wanted (questions, {self.index.meta['dimension']}).")
        if rows.dtype.kind != "f" or not np.isfinite(rows).all():
            raise InputError("questions' vectors must be finite floats.")
        return rows

    def _hits(self, rows: NDArray[np.int64], scores: NDArray[np.float32]) -> list[list[Hit]]:
        """Hits of each question from rows and scores ``(q, k)``."""
        return [hits_of(self.index.texts, *ranking) for ranking in zip(rows, scores, strict=True)]


def _open_whole(place: Path, engine: EngineName, device: str) -> Index:
    """The index with all its files open, of one version, even if another replaces it meanwhile."""
    for _ in range(_TRIES):
        index = open_index(place, engine=engine, device=device)
        try:
            index.keep_open()
        except (GnnRetrievalError, OSError):
            if open_index(place).hash == index.hash:
                raise
        else:
            if open_index(place).hash == index.hash:
                return index
    raise ArtifactError(f"{place}: it was replaced {_TRIES} times while it was opened. Try again.")


def index_in(path: str | Path, ranking: RankingSettings | None = None) -> Path:
    """``path``, or the path of the index if ``path`` is a run's directory: the one that ``ranking`` was chosen for."""
    path = Path(path)
    name = INDEX if ranking is None or ranking.system is None else PLACES[ranking.system]
    return path / name if not (path / "meta.json").exists() and find(path / name, KIND).is_dir() else path


def _checked(questions: Sequence[str], k: int) -> tuple[list[str], int]:
    """The questions as a list, and ``k`` as Python's integer: arrays and data frames hold numpy's."""
    if isinstance(questions, str):
        raise InputError("search_all takes a list of questions, and this is one: give [question], or call search.")
    questions = [*questions]
    try:
        k = int(index_of(k))
    except TypeError:
        raise InputError(f"k is {k!r}: give a whole number.") from None
    if k < 1:
        raise InputError(f"k is {k}: give 1 or more.")
    for question in questions:
        if not isinstance(question, str):
            raise InputError(f"a question is a text, and this is a {_kind(question)}.")
        if not question.strip():
            raise InputError("the question is empty: give some words.")
        try:
            question.encode()
        except UnicodeEncodeError:  # how Python shows bytes of another encoding, from a terminal or a pipe
            raise InputError(f"the question {question!r} is not UTF-8: give it in UTF-8.") from None
    return questions, k


def _kind(value: object) -> str:
    return type(value).__name__
