"""The artifact of a trained GNN-encoder."""

from __future__ import annotations

import math
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file

from gnnretrieval.data.runs.trec import Run, read_run
from gnnretrieval.data.text_store import PassageRow, TextStore
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.encoded_texts import TEXTS as FEATURE_TEXTS
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.encoders.trained import GNN_ENCODER, JOINT, PASSAGE, QUERY
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.graph.store import Graph
from gnnretrieval.nn.gnn_encoder import GNNEncoder
from gnnretrieval.nn.label_messages import Messages
from gnnretrieval.nn.settings import GNNEncoderSettings
from gnnretrieval.storage.artifacts import Artifact, open_artifact
from gnnretrieval.training.gnn.messages import QUESTION_WEIGHTS, WEIGHTS, TrainedMessages

if TYPE_CHECKING:
    from gnnretrieval.training.gnn.embeddings import Embeddings

KIND = GNN_ENCODER
HELD_OUT_RUN, HELD_OUT_DEPTH = "held-out.run", 100
_MOST_ROUNDS = 1000  # of rejection, or passes of updates; training chooses a few
_NONE = PassageRow(-1, "", "", "")


class GNNEncoderModel(Artifact):
    """A trained GNN-encoder on disk."""

    @classmethod
    def open(cls, path: str | Path) -> GNNEncoderModel:
        """As :func:`open_model`."""
        return open_model(path)

    def embed(
        self,
        out: str | Path,
        graph: Graph | None = None,
        *,
        one_vector: bool = False,
        device: str = "cpu",
        overwrite: bool = False,
    ) -> Embeddings:
        """As :func:`gnnretrieval.training.gnn.embeddings.embed_passages`, over ``graph`` (None: the model's graph)."""
        from gnnretrieval.graph.store import open_graph
        from gnnretrieval.training.gnn.embeddings import embed_passages

        store = graph or open_graph(self.made_from("graph"))
        return embed_passages(self, store, out, one_vector=one_vector, device=device, overwrite=overwrite)

    def __repr__(self) -> str:
        dev = self.meta.get("dev", {})
        shown = f", dev RR@10 {100 * dev['chosen']['RR@10']:.1f}" if "chosen" in dev else ""
        return f"GNNEncoderModel({str(self.path)!r}: layer {self.config.get('layer', 'gat')}{shown})"

    @property
    def similarity(self) -> Similarity:
        """Similarity of queries and its embeddings.

        It is the dual-encoder's, except that a folded head, a prior or local scaling always needs the dot product.
        """
        similarity = Similarity.parse(self.meta["similarity"], self.path / "meta.json")
        if self.is_linear and not Messages(**self.meta["messages"]).keeps_lengths:
            return Similarity(normalize=False, scale=similarity.scale)
        return similarity

    @property
    def held_out_run(self) -> Run:
        """Rankings of the training questions that it was chosen by, by a model that did not learn from them.

        They are :data:`HELD_OUT_DEPTH` passages deep. Empty with a dev split, and where training does not write them:
        with graph layers, in joint training, or on a part of the corpus.
        """
        file = self.path / HELD_OUT_RUN
        return read_run(file) if file.is_file() else {}

    @property
    def question_weight(self) -> float:
        """Weight of a passage's nearest training question that dev chose (:meth:`load_questions`).

        0: dev chose none, or it was not asked.
        """
        return float(self.meta.get("questions", {}).get("questions", 0.0))

    @property
    def settings(self) -> GNNEncoderSettings:
        """Settings of its layers."""
        return GNNEncoderSettings.parse(self.config.get("encoder", {}), self.path / "meta.json")

    @property
    def has_encoder(self) -> bool:
        """Whether a dual-encoder was trained with it; it then embeds from that encoder's features."""
        return JOINT in self.meta

    @property
    def is_linear(self) -> bool:
        """Whether its layer is linear. It then has messages (:meth:`load_messages`) and no graph layers."""
        return "messages" in self.meta

    def load_messages(self) -> TrainedMessages:
        """Head and messages of a model with layer = linear.

        Raises:
            InputError: The weights are damaged.
        """
        return self._messages("messages", WEIGHTS)

    def load_questions(self) -> TrainedMessages:
        """Head and messages for several vectors a passage (:func:`gnnretrieval.nn.label_messages.several_vectors`).

        Dev chose them for it, so they differ from those of :meth:`load_messages`.

        Raises:
            ArtifactError: Dev chose none (:attr:`question_weight`).
            InputError: The weights are damaged.
        """
        if not self.question_weight:
            raise ArtifactError(
                f"{self.path}: training kept no vectors of training questions, because they gained nothing on dev, or "
                "there is no dev split."
            )
        self.require_recorded(QUESTION_WEIGHTS)
        return self._messages("questions", QUESTION_WEIGHTS)

    def _messages(self, entry: str, weights: str) -> TrainedMessages:
        meta = self.path / "meta.json"
        try:
            messages = TypeAdapter(Messages).validate_python(self.meta[entry])
        except ValidationError as error:
            raise InputError(f"{entry}: {error.errors()[0]['msg']}. Train again.", meta) from None
        finite = all(math.isfinite(value) for value in messages if not isinstance(value, str))
        if not (finite and 0 <= messages.rounds <= _MOST_ROUNDS and 0 <= messages.passes <= _MOST_ROUNDS):
            raise InputError(f"{messages} is more than any training chooses. Train again.", meta)
        return TrainedMessages.load(self.path / weights, messages)

    def load(self, device: str | torch.device = "cpu") -> GNNEncoder:
        """The trained module in evaluation mode, for every layer except linear.

        Raises:
            InputError: The weights are damaged.
        """
        shape = (self.meta["dimension"], self.meta["edge_dim"], self.settings, self.config.get("layer", "gat"))
        try:
            weights = load_file(self.path / WEIGHTS)
            widest = max((size for tensor in weights.values() for size in tensor.shape), default=0)
            if max(shape[:2]) > widest:  # a module so wide would take memory before its weights turn out not to fit
                raise ValueError(f"they are {widest} wide at most, and meta.json says {max(shape[:2])}")
            model = GNNEncoder(*shape)
            model.load_state_dict(weights)
        except (SafetensorError, RuntimeError, ValueError, TypeError, KeyError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"these weights cannot be loaded ({reason}). Train again.", self.path / WEIGHTS) from None
        return model.to(device).eval()

    def view(self, store: Graph, features: Features | None = None) -> Graph:
        """View of the store with the edges that this model was trained with, and its dual-encoder's features.

        Args:
            store: The graph.
            features: Features of the same dataset by the dual-encoder that was trained with this model, for eq. 7-10;
                None: there is no such encoder.

        Raises:
            ArtifactError: The features are missing or not needed, or come from another encoder or other texts.
        """
        view = store.view(k=self.config.get("k"), passage_edges=self.config.get("passage_edges", "all"))
        if self.has_encoder != (features is not None):
            raise ArtifactError(
                f"{self.path}: its dual-encoder was trained with it. Encode the dataset with this one (encoder encode "
                f"DATASET --checkpoint {self.path} --out features) and give its features."
                if self.has_encoder
                else f"{self.path}: trained over a frozen dual-encoder. The graph has its features: give no others."
            )
        if features is None:
            return view
        if features.meta["checkpoint_hash"] != self.checkpoint_hash:
            raise ArtifactError(f"{features.path}: these features are not by the encoder of {self.path}.")
        with store.texts() as texts, TextStore(features.path / FEATURE_TEXTS) as others:
            if not all(a.id == b.id for a, b in zip_longest(texts.passages(), others.passages(), fillvalue=_NONE)):
                raise ArtifactError(
                    f"{features.path}: these features have other passages than {store.path}. Encode its passages."
                )
            queries = texts.query_ids()
        return view.with_features(features.passages, features.queries[features.rows_of(queries)])

    @property
    def checkpoint_hash(self) -> dict[str, str]:
        """Hashes of the dual-encoder that encodes queries for its embeddings."""
        if not self.has_encoder:
            hashes: dict[str, str] = self.meta["checkpoint_hash"]
            return hashes
        passage = find_checkpoint(str(self.path / PASSAGE)).hash
        query = self.path / QUERY
        return {"query": find_checkpoint(str(query)).hash if query.is_dir() else passage, "passage": passage}

    def is_over(self, store: Graph) -> bool:
        """Whether the features of ``store`` are by the dual-encoder that this model was trained over."""
        return bool(store.meta["checkpoint_hash"] == self.meta["checkpoint_hash"])

    def require_fits(self, store: Graph, any_encoder: bool = False) -> None:
        """Check that a store has this model's widths and, unless ``any_encoder``, its dual-encoder's features.

        Raises:
            ArtifactError: The store does not fit.
        """
        if (store.dimension, store.edge_dim) != (self.meta["dimension"], self.meta["edge_dim"]):
            raise ArtifactError(
                f"{self.path}: trained for features of {self.meta['dimension']} and edges of {self.meta['edge_dim']} "
                f"dimensions, but {store.path} has {store.dimension} and {store.edge_dim}. Train over this graph."
            )
        if store.edge_names != self.meta["edge_features"]:
            raise ArtifactError(
                f"{self.path}: trained with the edge features {', '.join(self.meta['edge_features']) or 'none'}, but "
                f"{store.path} has {', '.join(store.edge_names) or 'none'}. Train over this graph."
            )
        if not any_encoder and not self.is_over(store):
            raise ArtifactError(
                f"{self.path}: trained over another dual-encoder than that of {store.path}. "
                "Train over this graph, or give the graph it was trained over."
            )


def open_model(path: str | Path) -> GNNEncoderModel:
    """Open the GNN-encoder at ``path``; raises as :func:`gnnretrieval.storage.artifacts.open_artifact`."""
    artifact = open_artifact(
        path, KIND, ("dimension", "edge_dim", "edge_features", "similarity", "checkpoint_hash", "made_from")
    )
    artifact.require_recorded(WEIGHTS)
    return GNNEncoderModel(artifact.path, artifact.meta)
