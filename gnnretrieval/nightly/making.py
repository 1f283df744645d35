"""Making the artifacts of a version: a candidate from all events, or the old model over tonight's passages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data import Dataset
from gnnretrieval.data.beir import read_queries, write_qrels, write_queries
from gnnretrieval.data.dataset import CORPUS, QUERIES
from gnnretrieval.data.records import Qrel
from gnnretrieval.encoders.features import Features, encode_dataset, open_features
from gnnretrieval.encoders.known_vectors import KnownVectors
from gnnretrieval.encoders.trained import trained_settings
from gnnretrieval.errors import InputError
from gnnretrieval.feedback import import_feedback
from gnnretrieval.feedback.importing import NoLabelsError, WrittenCorpus, passages_source
from gnnretrieval.feedback.store import EventStore
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.store import Graph, open_graph
from gnnretrieval.index.faiss_index import build_index
from gnnretrieval.nn.label_messages import Messages
from gnnretrieval.recipes.recipe import Recipe
from gnnretrieval.storage.artifacts import open_artifact, share_file
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.places import META, discard
from gnnretrieval.storage.provenance import sha256_of_file
from gnnretrieval.training.gnn.embeddings import Embeddings, embed_passages, open_embeddings
from gnnretrieval.training.gnn.ladder import message_graph
from gnnretrieval.training.gnn.messages import TrainedMessages
from gnnretrieval.training.gnn.model import GNNEncoderModel, open_model
from gnnretrieval.training.gnn.train import train_gnn
from gnnretrieval.training.gnn.warm_start import continue_messages, keep_trained


class Version(NamedTuple):
    """The opened artifacts of a version."""

    path: Path
    dataset: Dataset
    features: Features
    graph: Graph
    model: GNNEncoderModel
    embeddings: Embeddings

    @classmethod
    def open(cls, place: Path) -> Version:
        """Open a version.

        Raises:
            ArtifactError: one of its artifacts is missing or damaged.
        """
        for name in ("index", "index-dual-encoder"):
            open_artifact(place / name, "index")
        return cls(
            place,
            Dataset.open(place / "dataset"),
            open_features(place / "features"),
            open_graph(place / "graph"),
            open_model(place / "model"),
            open_embeddings(place / "embeddings"),
        )


class Maker:
    """Makes versions of a search.

    Args:
        recipe: Settings of the stages.
        passages: Dataset or file of tonight's passages.
        device: Where to compute.

    Attributes:
        seconds: Seconds of each step.
        encoded: Number of texts that were encoded.
    """

    def __init__(self, recipe: Recipe, passages: Path, device: str) -> None:
        self.recipe, self.passages, self.device = recipe, passages, device
        self.seconds: dict[str, float] = {}
        self.encoded = 0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the time inside to :attr:`seconds` of the step."""
        begun = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - begun

    def dataset(self, store: EventStore, out: Path) -> Dataset:
        """The dataset of all stored events.

        Raises:
            NoLabelsError: they give no labels to train on.
        """
        logs = store.logs()
        if not logs:
            days = self.recipe.update.keep_days
            newer = "" if days is None else f" that are not older than keep_days = {days}"
            raise NoLabelsError(f"the store has no event: give a log with some{newer} (--events).")
        with self.step("judging"):
            made = import_feedback(logs, self.passages, out, self.recipe.feedback, overwrite=True)
            dataset = Dataset.open(made.path)
        if self.recipe.graph.split not in dataset.splits:
            raise NoLabelsError("no question of the training time has a relevant passage by its clicks.")
        return dataset

    def graph(
        self, dataset: Dataset, out: Path, known: Version | None, *, forgets: bool = False
    ) -> tuple[Features, Graph]:
        """Features and graph of a dataset. Vectors and neighbours in the version ``known`` are used again.

        Args:
            dataset: The dataset.
            out: Directory of the version.
            known: An earlier version; None: everything is made.
            forgets: Reuse only the vectors of passages, which no event can have changed.
        """
        with self.step("features"):
            features = self._features(dataset, out, [] if known is None else [known.features], forgets)
        with self.step("graph"):
            before = None if known is None or forgets else known.graph
            how: dict[str, Any] = {"known": before, "device": self.device, "overwrite": True}
            return features, build_graph(dataset, features, self.recipe.graph, out / "graph", **how)

    def _features(self, dataset: Dataset, out: Path, known: list[Features], forgets: bool) -> Features:
        encoder = self.recipe.encoder
        how: dict[str, Any] = {"device": self.device, "overwrite": True}
        trained = trained_settings(encoder)
        if not known or trained.sentences != "none" or trained.late_interaction is not None:
            self.encoded += len(dataset.passage_ids) + len(dataset.query_ids)
            return encode_dataset(dataset, encoder, out / "features", **how)
        looked_up = KnownVectors(known, sides=("passage",) if forgets else ("passage", "query"), device=self.device)
        made = encode_dataset(dataset, looked_up, out / "features", **how)
        self.encoded += sum(looked_up.encoded.values())
        return made

    def train(self, dataset: Dataset, features: Features, graph: Graph, out: Path) -> GNNEncoderModel:
        """A model from scratch. The ladder needs no evidence to keep a rung, because the gate decides."""
        settings = self.recipe.train.model_copy(update={"evidence": 1.0})
        with self.step("training"):
            return train_gnn(graph, dataset, features, settings, out / "model", device=self.device, overwrite=True)

    def go_on(self, dataset: Dataset, features: Features, graph: Graph, out: Path, before: Version) -> GNNEncoderModel:
        """The model of ``before``, trained further on new and changed labels, and on a replay of some others."""
        start = before.model.load_messages()
        fresh, replay = _fresh(graph, before.graph), self.recipe.update.replay
        seed = self.recipe.train.seed

        def trained() -> TrainedMessages:
            return continue_messages(message_graph(graph), start, fresh, seed=seed, replay=replay)

        with self.step("training"):
            how = {"replay": replay}
            return self._kept(trained, dataset, features, graph, out, how, before.model)

    def dual_encoder(self, dataset: Dataset, features: Features, graph: Graph, out: Path) -> GNNEncoderModel:
        """A model without messages, which ranks as the dual-encoder."""

        def identity() -> TrainedMessages:
            return TrainedMessages(None, Messages())

        return self._kept(identity, dataset, features, graph, out, {"kept": "the dual-encoder"}, None)

    def _kept(
        self,
        trained: Any,
        dataset: Dataset,
        features: Features,
        graph: Graph,
        out: Path,
        how: Mapping[str, Any],
        start: GNNEncoderModel | None,
    ) -> GNNEncoderModel:
        settings = self.recipe.train
        return keep_trained(trained, graph, dataset, features, settings, out / "model", how=how, start=start)

    def index(
        self, features: Features, graph: Graph, model: GNNEncoderModel, out: Path, kept: Embeddings | None = None
    ) -> Embeddings:
        """Embeddings and both indexes of a version."""
        with self.step("index"):
            how: dict[str, Any] = {"kept": kept, "one_vector": True, "device": self.device, "overwrite": True}
            embeddings = embed_passages(model, graph, out / "embeddings", **how)
            build_index(embeddings, out / "index", overwrite=True)
            build_index(features, out / "index-dual-encoder", overwrite=True)
        return embeddings

    def old_model(self, before: Version, out: Path, also: Features | None) -> Embeddings:
        """Embed tonight's passages by the model, questions and labels of ``before``; known passages keep their vectors.

        Args:
            before: The promoted version.
            out: Directory of the version that is made.
            also: Features with vectors of new passages; None: these are encoded.

        Raises:
            InputError: tonight's passages have none of the labelled ones.
        """
        with self.step("passages"):
            dataset = self._with_passages(before.dataset, out / "dataset")
            known = [before.features] if also is None else [also, before.features]
            features = self._features(dataset, out, known, False)
            how: dict[str, Any] = {"known": before.graph, "device": self.device, "overwrite": True}
            graph = build_graph(dataset, features, self.recipe.graph, out / "graph", **how)
            model = _copied(before.model, out / "model")
        return self.index(features, graph, model, out, before.embeddings)

    def _with_passages(self, before: Dataset, out: Path) -> Dataset:
        """The questions and judgements of ``before`` over tonight's passages."""
        source = passages_source(self.passages)

        def write(directory: Path) -> dict[str, Any]:
            known = WrittenCorpus(source, directory / CORPUS).keys
            qrels = {
                split: [
                    Qrel(query, passage, grade)
                    for query, judged in before.split(split).items()
                    if any(grade > 0 and passage in known for passage, grade in judged.items())
                    for passage, grade in judged.items()
                    if passage in known
                ]
                for split in before.splits
            }
            if not qrels.get(self.recipe.graph.split):
                raise InputError(
                    "no passage with a label is among these passages. Give them the ids that they had before, or "
                    "update into another directory (--out).",
                    source[0],
                )
            query_ids = {qrel.query_id for rows in qrels.values() for qrel in rows}
            queries = (row for row in read_queries(before.path / QUERIES) if row[0].id in query_ids)
            write_queries(directory / QUERIES, queries)
            for split, rows in qrels.items():
                if rows:
                    write_qrels(directory / "qrels" / f"{split}.tsv", rows)
            return {"counts": {"passages": len(known), "queries": len(query_ids)}}

        inputs = {"dataset": before.hash, "passages": sha256_of_file(source[0])}
        config = {"source": "passages of another night"}
        made = make_artifact(out, "dataset", inputs=inputs, config=config, write=write, overwrite=True)
        return Dataset.open(made.path)


def _fresh(graph: Graph, before: Graph) -> NDArray[np.bool_]:
    """Queries ``(n,)`` with other labels than in ``before``, or that ``before`` lacks."""
    known, now = _labels(before), _labels(graph)
    with graph.texts() as texts:
        return np.array([now.get(query) != known.get(query) for query in texts.query_ids()], dtype=np.bool_)


def _labels(graph: Graph) -> dict[str, set[str]]:
    """Ids of the relevant passages by the query's id."""
    relevant: dict[str, set[str]] = {}
    with graph.texts() as texts:
        queries, passages = texts.query_ids(), texts.passage_ids()
    for query, passage in graph.labels.tolist():
        relevant.setdefault(queries[query], set()).add(passages[passage])
    return relevant


def _copied(model: GNNEncoderModel, out: Path) -> GNNEncoderModel:
    """The same model at another place, in one step; its files are shared."""
    if (out / META).is_file() and open_model(out).hash == model.hash:
        return open_model(out)
    discard(out)
    partial = out.with_name(".model.copy")  # renamed when whole, so that a kill leaves no half model at ``out``
    shutil.rmtree(partial, ignore_errors=True)
    for name in (*model.meta["files"], META):
        (partial / name).parent.mkdir(parents=True, exist_ok=True)
        share_file(model.path / name, partial / name)
    partial.rename(out)
    return open_model(out)
