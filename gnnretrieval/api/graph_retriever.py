"""From passages, questions and labels to a retriever in one call."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self

from gnnretrieval.api.training import train
from gnnretrieval.baselines.rankings import rank_baselines
from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.from_objects import qrels_of, queries_of
from gnnretrieval.data.runs.trec import Run, require_writable_ids
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.function_encoder import Encode, as_encoder
from gnnretrieval.encoders.opening import open_encoder
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.text_encoder import TextEncoder
from gnnretrieval.errors import InputError, nearest
from gnnretrieval.evaluation import Comparison, compare, parse_measures
from gnnretrieval.graph.build import require_k
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.store import Graph
from gnnretrieval.index.baseline import NAME as BASELINE
from gnnretrieval.index.faiss_index import build_index, open_index
from gnnretrieval.index.retriever import INDEX, Retriever
from gnnretrieval.index.search import bm25_run
from gnnretrieval.settings import DEFAULT_MEASURES
from gnnretrieval.training.gnn.embeddings import embed_passages
from gnnretrieval.training.gnn.held_out import require_new_queries
from gnnretrieval.training.gnn.settings import TrainSettings

_DEPTH = 100  # least number of passages per question in the runs that are measured


class GraphRetriever(Retriever):
    """A retriever over a graph of your questions: :meth:`fit` makes it, ``open`` opens it again.

    .. code-block:: python

        from gnnretrieval import GraphRetriever

        retriever = GraphRetriever.fit(passages, queries, qrels, test=test_qrels, out="work")
        retriever.search("solve a banded system")
        retriever.why("solve a banded system", retriever.search("solve a banded system"))
        retriever.evaluate()
    """

    _workspace: TemporaryDirectory[str] | None = None

    @classmethod
    def fit(
        cls,
        passages: Any,
        queries: Any,
        qrels: Any,
        *,
        encode: str | EncoderSettings | TextEncoder | Encode | None = None,
        vectors: tuple[Any, Any] | None = None,
        similarity: Literal["cosine", "dot"] = "cosine",
        dev: Any = None,
        test: Any = None,
        k: int = 5,
        one_vector: bool = False,
        seed: int = 0,
        out: str | Path | None = None,
        device: str = "cpu",
        overwrite: bool = False,
    ) -> Self:
        """Encode, build the graph, train over it, embed and index.

        Each step writes an artifact into ``out``, with the names that ``gnnretrieval run`` uses. After an interruption,
        the same call continues. ``gnnretrieval serve OUT`` serves the result.

        Args:
            passages: Passages, see :func:`gnnretrieval.data.from_objects.passages_of`.
            queries: All queries, see :func:`gnnretrieval.data.from_objects.queries_of`; those of ``dev`` and ``test``
                are among them.
            qrels: Judgements of the training queries, see :func:`gnnretrieval.data.from_objects.qrels_of`.
            encode: The dual-encoder: a checkpoint's name or path, an endpoint's settings, an encoder, or a function
                from texts to vectors; None: all-MiniLM-L6-v2.
            vectors: Instead of an encoder, vectors of the passages ``(m, d)`` and of the queries ``(n, d)``, in their
                order. The retriever then takes stored questions as text, and new ones as vectors.
            similarity: How to compare the vectors of ``vectors`` or of a function.
            dev: Judgements of the queries to choose settings by; None: some training queries are held out.
            test: Judgements of the queries for :meth:`evaluate`.
            k: How many retrieved passages a training query is joined to.
            one_vector: Make one vector a passage. Otherwise a passage has one more for each of its training queries,
                if training found on dev that this helps
                (:func:`gnnretrieval.nn.label_messages.several_vectors`). The index is larger then.
            seed: Seed of training.
            out: Directory of the artifacts; None: a temporary one, deleted with the retriever.
            device: Where to compute.
            overwrite: Replace artifacts in ``out`` that were made from other inputs.

        Raises:
            InputError: the objects do not fit, a query of ``test`` is also one of ``qrels`` or ``dev``, an id has white
                space and there is a ``test``, a setting has no such value, both ``encode`` and ``vectors`` are given,
                or ``similarity`` is given with neither ``vectors`` nor a function.
            GnnRetrievalError: ``k`` is larger than the number of passages, or a step fails.
        """
        if encode is not None and vectors is not None:
            raise InputError("encode and vectors are both given: give one of them.")
        if vectors is not None and not (isinstance(vectors, tuple | list) and len(vectors) == 2):
            raise InputError("vectors must be a pair: (vectors of the passages, vectors of the queries).")
        encoder = as_encoder(encode, similarity)
        if similarity != "cosine" and vectors is None and encoder is encode:
            raise InputError("similarity goes with vectors or a function; for a checkpoint, set it in EncoderSettings.")
        of_graph, of_training = GraphSettings.parse({"k": k}), TrainSettings.parse({"seed": seed})
        workspace = TemporaryDirectory(prefix="gnnretrieval-") if out is None else None
        place = Path(workspace.name if workspace is not None else str(out))
        how: dict[str, Any] = {"overwrite": overwrite}
        dataset = Dataset.from_records(passages, queries, qrels, place / "dataset", dev=dev, test=test, **how)
        require_k(of_graph.k, dataset)
        if test is not None:
            require_new_queries(dataset, "test", dataset.split("train").keys())
            require_writable_ids([*dataset.passage_ids, *dataset.split("test")], dataset.path)
        if vectors is not None:
            features = Features.from_vectors(dataset, *vectors, place / "features", similarity=similarity, **how)
        else:
            features = Features.encode(dataset, encoder or EncoderSettings(), place / "features", device=device, **how)
        graph = Graph.build(dataset, features, place / "graph", of_graph, device=device, **how)
        model = train(graph, place / "model", of_training, device=device, **how)
        embeddings = embed_passages(model, graph, place / "embeddings", one_vector=one_vector, device=device, **how)
        build_index(features, place / BASELINE, **how)
        index = build_index(embeddings, place / INDEX, **how)
        opened = None if encoder is None or isinstance(encoder, str | EncoderSettings) else encoder
        if isinstance(encoder, EncoderSettings) and encoder.api.endpoint is not None:
            opened = open_encoder(encoder)  # with the key that was named here
        retriever = cls(index, encoder=opened, device=device)
        retriever._workspace = workspace
        return retriever

    def evaluate(
        self,
        queries: Any = None,
        qrels: Any = None,
        *,
        split: str = "test",
        measures: Iterable[str] = DEFAULT_MEASURES,
        baselines: bool = True,
    ) -> Comparison:
        """Compare the GNN-encoder with BM25, the dual-encoder and simple uses of the same labels, with paired tests.

        The questions are the given ones, or those of a split that :meth:`fit` received (``test``). On a split, the
        tests are against the dense baseline that is best on dev. On given questions, or without ``baselines``, there
        are no baselines, and the tests are against the dual-encoder.

        Args:
            queries: New questions, see :func:`gnnretrieval.data.from_objects.queries_of`.
            qrels: Their judgements, see :func:`gnnretrieval.data.from_objects.qrels_of`.
            split: The split to report on, where no questions are given.
            measures: Names by ir-measures or trec_eval. Rankings are as deep as they look, and at least 100.
            baselines: Also rank by the baselines. This takes about as long as training.

        Raises:
            InputError: there is no such split, its questions are in the graph or choose settings, questions are given
                without judgements, a judgement is of an unknown question or passage, or a measure is unknown.
        """
        if (queries is None) != (qrels is None):
            raise InputError("questions and their judgements go together: give queries and qrels, or neither.")
        dataset, against = self.graph.dataset(), "dual-encoder"
        if queries is not None:
            asked, judged, name = queries_of(queries), qrels_of(qrels), "given questions"
            for what, known, ids in (
                ("question", {query.id for query in asked}, judged),
                ("passage", set(dataset.passage_ids), [id_ for labels in judged.values() for id_ in labels]),
            ):
                unknown = next((id_ for id_ in ids if id_ not in known), None)
                if unknown is not None:
                    raise InputError(f"judgements: there is no {what} {unknown!r}.{nearest(unknown, known)}")
        else:
            asked, judged, name = dataset.queries_of(split), dataset.split(split), split
            with self.graph.texts() as texts:
                require_new_queries(dataset, split, set(texts.query_ids()))
        parsed = parse_measures(measures)
        depth = max([_DEPTH, *(measure.params["cutoff"] for measure in parsed if "cutoff" in measure.params)])
        depth += len(self.index.removed)  # which are taken out of the rankings below
        runs = self._runs(dataset, {query.id: query.text for query in asked}, depth)
        if queries is None and baselines:
            name_of = f"baselines-{split}" + ("" if depth == _DEPTH else f"-{depth}")
            place = self.index.path.resolve().parent / name_of
            seed = int(self.model.meta["seed"] or 0)
            made = rank_baselines(self.graph, dataset, self.graph.features(), split, place, depth=depth, seed=seed)
            runs, against = {**made.runs(), **runs}, made.best_dense
        runs = self._without_removed(runs)
        return compare(judged, runs, against, parsed, name, {"index": self.index.hash, "dataset": dataset.hash})

    def _without_removed(self, runs: dict[str, Run]) -> dict[str, Run]:
        """The runs without the passages removed from the index, which BM25 and the dual-encoder still rank."""
        if not len(self.index.removed):
            return runs
        with self.graph.texts() as texts:
            ids = texts.passage_ids()
        removed = {ids[row] for row in self.index.removed.tolist()}
        return {
            name: {query: [hit for hit in hits if hit[0] not in removed] for query, hits in run.items()}
            for name, run in runs.items()
        }

    def _runs(self, dataset: Dataset, asked: dict[str, str], depth: int) -> dict[str, Run]:
        bm25 = BM25((passage.full_text for passage in dataset.passages()), total=len(dataset.passage_ids))
        vectors = self.encode([*asked.values()])
        before = vectors if self._encoder_before is self.encoder else self._encode_before([*asked.values()])
        dual = Retriever(open_index(self.index.path.resolve().parent / BASELINE))
        return {
            "bm25": bm25_run(bm25, asked, dataset.passage_ids, depth),
            "dual-encoder": dual.run(asked, depth, vectors=before),
            self.name: self.run(asked, depth, vectors=vectors),
        }
