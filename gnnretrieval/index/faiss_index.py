"""A FAISS index over passage vectors, exact or approximate, with measured recall, and ids and texts beside it."""

from __future__ import annotations

import shutil
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.runs.ranking import places_by_id
from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.exact_search import Ties
from gnnretrieval.encoders.faiss_search import import_faiss
from gnnretrieval.encoders.features import KIND as FEATURES
from gnnretrieval.encoders.features import Features, encoder_records, open_features
from gnnretrieval.encoders.part_files import SENTENCE_STARTS
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.encoders.trained import GNN_ENCODER
from gnnretrieval.errors import ArtifactError, InputError, counted
from gnnretrieval.index.building import IndexPlan, joined, open_shards, plan_of, shard_files, write_shards
from gnnretrieval.index.engines import DistinctEngine, Engine, EngineName, FaissEngine, TorchEngine
from gnnretrieval.index.faiss_files import require_fits
from gnnretrieval.index.kinds import EXACT
from gnnretrieval.index.measuring import cheapest, measure, queries_of, sample_of
from gnnretrieval.index.part_shards import build_parts, unit_of, vectors_of
from gnnretrieval.index.settings import TARGET, IndexSettings
from gnnretrieval.shards.engines import Sharding
from gnnretrieval.storage.array_checks import require_offsets, require_rows
from gnnretrieval.storage.arrays import load_array, save_array
from gnnretrieval.storage.artifacts import Artifact, open_artifact, relative_to, share_file
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.purged import require_unpurged
from gnnretrieval.training.gnn.embeddings import Embeddings, open_embeddings

if TYPE_CHECKING:
    from gnnretrieval.index.report import IndexReport

KIND = "index"
TEXTS = "texts.sqlite"
ONE_VECTOR = f"{GNN_ENCODER}-one-vector"  # the system of an index that has fewer vectors than training kept
PLACES = {GNN_ENCODER: "index", ONE_VECTOR: "index-one-vector"}  # directory in a run by system
ROWS, REMOVED = "rows.npy", "removed.npy"


class Index(Artifact):
    """An index on disk. Its rows are those of the vectors it was made from; a removed passage's row stays unused.

    Where passages have several vectors (:attr:`has_questions`), rows are those of passages.
    """

    engine_name: EngineName = "faiss"
    device: str = "cpu"
    in_memory: bool = False

    @classmethod
    def open(cls, path: str | Path) -> Index:
        """As :func:`open_index`."""
        return open_index(path)

    @classmethod
    def build(
        cls,
        source: Embeddings | Features,
        out: str | Path,
        settings: IndexSettings | None = None,
        *,
        overwrite: bool = False,
    ) -> Index:
        """As :func:`build_index`."""
        return build_index(source, out, settings, overwrite=overwrite)

    def __repr__(self) -> str:
        kind = f"{counted(self.meta['num_passages'], 'passage')} by {self.meta['system']}, {self.config['factory']}"
        return f"Index({str(self.path)!r}: {kind})"

    def inspect(self) -> IndexReport:
        """What the index is, and what was measured."""
        from gnnretrieval.index.report import IndexReport

        return IndexReport.of(self)

    @cached_property
    def faiss(self) -> Any:
        """The FAISS index with all shards joined, memory-mapped unless ``in_memory``.

        Its numbers are rows, or positions in :attr:`rows_by_number`.
        """
        whole = joined(open_shards([self.path / name for name in self.files], in_memory=self.in_memory))
        rows = self.rows_by_number
        if rows is None:
            most = self.meta.get("num_sentences", self.meta["num_passages"] + len(self.removed))
        else:
            most = len(rows)
        require_fits(whole, self.meta["dimension"], most, self.path)
        return whole

    @property
    def files(self) -> list[str]:
        """Names of the FAISS files, one per shard."""
        return shard_files(self.meta.get("shards", 1))

    @cached_property
    def engine(self) -> Engine:
        """The engine that finds its nearest vectors."""
        if self.engine_name == "torch":
            removed = self.vector_rows(self.removed)
            if not self.has_questions:
                return TorchEngine(self.vectors, self.similarity, removed, self.device, self._ties)
            engine = TorchEngine(self.all_vectors, self.similarity, removed, self.device)
            return DistinctEngine(engine, self.rows_of_vectors, self._ties)
        return self._faiss_engine(self.rows_by_number)

    def _faiss_engine(self, rows: NDArray[np.int64] | None) -> Engine:
        if rows is None or not self.has_questions:
            return FaissEngine(self.faiss, self.meta.get("search", ""), rows, self.device, self._ties)
        numbers = np.where(rows < 0, -1, np.arange(len(rows))) if (rows < 0).any() else None
        engine = FaissEngine(self.faiss, self.meta.get("search", ""), numbers, self.device)
        return DistinctEngine(engine, rows, self._ties)

    @property
    def _ties(self) -> Ties | None:
        """Passages of equal score are found in the order of law 1; sentences, which have no ids, by row."""
        if self.is_of_sentences:
            return None
        texts = self.texts  # not the index: an engine that refers to it would keep its files open
        return lambda rows: places_by_id(rows, texts.ids_of_passages)

    def engine_without(self, passages: NDArray[np.int64]) -> Engine:
        """As :attr:`engine`, by FAISS, without some passages that are still in the index."""
        rows = self.rows_by_number
        if rows is None:
            rows = np.arange(self.meta["num_passages"] + len(self.removed))
        rows[np.isin(rows, passages)] = -1
        return self._faiss_engine(rows)

    @cached_property
    def texts(self) -> TextStore:
        """Ids and texts by row, without removed passages; only :meth:`TextStore.passage_ids` includes those."""
        return self.open_texts()

    def open_texts(self) -> TextStore:
        """As :attr:`texts`, opened separately for one thread."""
        return TextStore(self.path / TEXTS, hidden=self.removed.tolist())

    @property
    def encoder_settings(self) -> EncoderSettings:
        """Settings of the encoder of questions."""
        return EncoderSettings.parse(self.meta["encoder"], self.path / "meta.json")

    @cached_property
    def similarity(self) -> Similarity:
        """How questions and passages are compared."""
        return Similarity.parse(self.meta["similarity"], self.path / "meta.json")

    @property
    def is_of_sentences(self) -> bool:
        """Whether its vectors are those of sentences."""
        return "num_sentences" in self.meta

    @property
    def has_questions(self) -> bool:
        """Whether a passage has several vectors, its own and one for each training question."""
        return "num_vectors" in self.meta

    @property
    def is_exact(self) -> bool:
        """Whether it compares a question with every vector, without compression."""
        return bool(self.config["factory"] == EXACT)

    @cached_property
    def removed(self) -> NDArray[np.int64]:
        """Rows of the removed passages ``(r,)``, sorted."""
        if REMOVED not in self.meta["files"]:
            return np.empty(0, dtype=np.int64)
        rows: NDArray[np.int64] = np.array(load_array(self.path / REMOVED, (None,), np.int64))
        require_rows(rows, self.meta["num_passages"] + len(rows), self.path / REMOVED)
        return rows

    @cached_property
    def sentence_starts(self) -> NDArray[np.int64]:
        """As :attr:`gnnretrieval.encoders.features.Features.sentence_starts`.

        Raises:
            ArtifactError: It is an index of whole passages.
        """
        if not self.is_of_sentences:
            raise ArtifactError(f"{self.path}: an index of whole passages. Build one with --sentences.")
        shape = (self.meta["num_passages"] + len(self.removed) + 1,)
        starts: NDArray[np.int64] = load_array(self.path / SENTENCE_STARTS, shape, np.int64)
        require_offsets(starts, self.meta["num_sentences"], self.path / SENTENCE_STARTS)
        return starts

    @cached_property
    def _source(self) -> Embeddings | Features:
        """What it was made from.

        Raises:
            ArtifactError: It has moved or changed since.
        """
        kind = next(iter(self.meta["made_from"]))
        place = self.made_from(kind)
        source = open_features(place) if kind == FEATURES else open_embeddings(place)
        if source.hash != self.meta["inputs"][kind]:
            raise ArtifactError(
                f"{self.path}: {place} has changed since it was indexed. Bring the index up to it "
                "(index build --changed), or build it again."
            )
        return source

    @cached_property
    def vectors(self) -> NDArray[np.floating]:
        """The vectors it was made from ``(m, d)``, memory-mapped: of passages or sentences, by row.

        Of passages with several vectors it is each one's own.

        Raises:
            ArtifactError: The artifact it was made from has moved or changed since.
        """
        return vectors_of(self._source, self.is_of_sentences, own=True)

    @property
    def all_vectors(self) -> NDArray[np.floating]:
        """All vectors it was made from ``(v, d)``, memory-mapped.

        Raises:
            ArtifactError: As :attr:`vectors`.
        """
        return vectors_of(self._source, self.is_of_sentences)

    @property
    def rows_of_vectors(self) -> NDArray[np.int64]:
        """Row of the passage of each of :attr:`all_vectors` ``(v,)``, where these are not of sentences.

        Raises:
            ArtifactError: As :attr:`vectors`.
        """
        rows = self._source.rows if isinstance(self._source, Embeddings) else None
        return np.arange(len(self.vectors)) if rows is None else rows

    def keep_open(self, in_memory: bool = False) -> None:
        """Open every file now, because another version may be at the same paths later.

        Args:
            in_memory: Read the vectors instead of mapping them, so that nobody can change or truncate them.
        """
        if in_memory != self.in_memory:
            self.in_memory = in_memory
            for opened in ("faiss", "engine"):
                self.__dict__.pop(opened, None)
        _ = self.engine, self.removed, self.texts
        if self.is_of_sentences:
            self.__dict__["sentence_starts"] = np.array(self.sentence_starts)

    def search(self, queries: NDArray[np.floating], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Rows ``(q, k)`` and scores ``(q, k)`` of the vectors nearest to ``queries`` ``(q, d)``, best first.

        If there are fewer than ``k``, row -1 fills up.
        """
        return self.engine.search(np.ascontiguousarray(self.similarity.prepare_array(queries)), k)

    def vector_rows(self, passages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of the vectors of some passages ``(r,)``: the passages' rows, or those of their sentences.

        Of passages with several vectors they are FAISS's numbers, also of vectors that were removed before.
        """
        if self.has_questions and (rows := self.rows_by_number) is not None:
            return np.flatnonzero((rows < 0) | np.isin(rows, passages))
        if not self.is_of_sentences:
            return passages
        starts = self.sentence_starts
        parts = [np.arange(starts[row], starts[row + 1]) for row in passages.tolist()]
        return np.concatenate(parts) if parts else passages

    @property
    def rows_by_number(self) -> NDArray[np.int64] | None:
        """Rows by FAISS's number, with -1 for a replaced or removed vector; None if the numbers are the rows.

        Raises:
            ArtifactError: They are damaged.
        """
        if ROWS not in self.meta["files"]:
            return None
        rows: NDArray[np.int64] = np.array(load_array(self.path / ROWS, (None,), np.int64))
        if self.has_questions:
            require_rows(rows + 1, self.meta["num_passages"] + len(self.removed) + 1, self.path / ROWS)
        return rows


def open_index(path: str | Path, *, engine: EngineName = "faiss", device: str = "cpu") -> Index:
    """Open the index at ``path``.

    Args:
        path: Its directory.
        engine: ``faiss``: as it was built; ``torch``: an exact pass over the vectors that it was made from.
        device: Device that searches; FAISS uses it if it has GPU support for this kind.

    Raises:
        ArtifactError: As :func:`gnnretrieval.storage.artifacts.open_artifact`.
    """
    artifact = open_artifact(
        path,
        KIND,
        ("encoder", "similarity", "checkpoint_hash", "system", "made_from", "num_passages", "dimension", "bytes"),
    )
    index = Index(artifact.path, artifact.meta)
    index.require_recorded(*index.files, *([ROWS] if index.has_questions else []))
    index.engine_name, index.device = engine, device
    return index


def build_index(
    source: Embeddings | Features,
    out: str | Path,
    settings: IndexSettings | None = None,
    *,
    sentences: bool = False,
    sharding: Sharding | None = None,
    overwrite: bool = False,
) -> Index:
    """Index the passages of ``source``: a GNN-encoder's embeddings or a dual-encoder's features.

    Of embeddings with vectors of training questions all vectors are indexed, and a passage scores by the best of its
    vectors. Recall is then of vectors.

    Recall against exact search and search times are measured on a sample of queries and kept in ``meta.json``
    (``measured``). The search setting of an approximate index is chosen on other queries.

    Args:
        source: Embeddings or features.
        out: Directory of the index.
        settings: The kind of index, and how it is searched; None: the defaults.
        sentences: Index the sentences of features instead; passages are then ranked by their sentences
            (:mod:`gnnretrieval.index.sentence_search`).
        sharding: Who builds the parts of the index (``settings.parts``; the number in ``sharding`` is not used); the
            files are the same. None: this process.
        overwrite: Replace an index that was made from other vectors or with other settings.

    Raises:
        InputError: FAISS cannot make this kind of index of these vectors, no search setting reaches the target recall,
            or the memory is too small.
        GnnRetrievalError: FAISS is not installed, or there are no vectors of sentences.
    """
    import_faiss()
    require_unpurged(source)
    settings = settings or IndexSettings()
    vectors = vectors_of(source, sentences)
    plan = plan_of(settings, len(vectors), int(vectors.shape[1]))
    rows = source.rows if isinstance(source, Embeddings) else None

    def write(directory: Path) -> dict[str, Any]:
        if sharding is None:
            write_shards(vectors, source.similarity, plan, directory, unit_of(source, sentences))
        else:
            build_parts(source, sentences, plan, directory, sharding)
        share_file(source.path / TEXTS, directory / TEXTS)
        if rows is not None:
            save_array(directory / ROWS, rows)
        if sentences:
            share_file(source.path / SENTENCE_STARTS, directory / SENTENCE_STARTS)
        opened = joined(open_shards([directory / name for name in plan.files]))
        try:
            measured = _measured(opened, source, vectors, settings, plan)
        except InputError:  # no setting reaches the target recall: there is nothing to resume
            shutil.rmtree(directory)
            raise
        return {
            "similarity": source.similarity.model_dump(),
            **encoder_records(source.meta),
            "system": system_of(source, sentences),
            "num_passages": source.meta["num_passages"],
            **({"num_sentences": len(vectors)} if sentences else {}),
            **({} if rows is None else {"num_vectors": len(rows)}),
            **({"shards": len(plan.files)} if len(plan.files) > 1 else {}),
            "dimension": int(vectors.shape[1]),
            "bytes": sum((directory / name).stat().st_size for name in plan.files),
            **measured,
            "made_from": {source.meta["kind"]: relative_to(out, source.path)},
        }

    artifact = make_artifact(
        out,
        KIND,
        inputs={source.meta["kind"]: source.hash},
        config=_config(settings, plan, sentences),
        write=write,
        seed=settings.seed,
        overwrite=overwrite,
    )
    return Index(artifact.path, artifact.meta)


def system_of(source: Embeddings | Features, sentences: bool) -> str:
    """Name of the system that an index of ``source`` is."""
    if isinstance(source, Embeddings):
        return ONE_VECTOR if source.is_reduced else GNN_ENCODER
    return "sentences" if sentences else "dual-encoder"


def _config(settings: IndexSettings, plan: IndexPlan, of_sentences: bool) -> dict[str, Any]:
    """Settings that determine the index's content.

    An exact index in one shard keeps the settings of versions without other kinds, so that its fingerprint stays.
    """
    config: dict[str, Any] = {"factory": plan.factory, "metric": "inner product"}
    if of_sentences:
        config["vectors"] = "sentences"
    if len(plan.files) > 1:
        config["shards"] = len(plan.files)
    if plan.factory != EXACT:
        config |= settings.model_dump(include={"search", "target_recall", "training", "seed"})
    return config


def _measured(
    index: Any,
    source: Embeddings | Features,
    vectors: NDArray[np.floating],
    settings: IndexSettings,
    plan: IndexPlan,
) -> dict[str, Any]:
    """Entries of ``meta.json``: the search setting of a FAISS index, and the figures measured with it."""
    queries, what = queries_of(source, settings.seed)
    chosen_by, reported = sample_of(queries, vectors, source.similarity)
    search, figures = settings.search or "", dict[str, Any]()
    if settings.search is None and plan.factory != EXACT and len(chosen_by.queries):
        target = settings.target_recall or TARGET
        strict = settings.target_recall is not None
        search = cheapest(index, chosen_by, vectors, source.similarity, target, strict=strict).search
        figures["target_recall"] = target
    if not len(reported.queries):
        return {"search": search}
    figures |= measure(FaissEngine(index, search), reported, vectors, source.similarity)
    figures |= {"sample": f"{len(reported.queries)} {what}", "threads": import_faiss().omp_get_max_threads()}
    return {"search": search, "measured": figures}
