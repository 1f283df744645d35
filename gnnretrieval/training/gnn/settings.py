"""Settings of training a GNN-encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from gnnretrieval.graph.mask import MaskUnit
from gnnretrieval.graph.subgraph import PassageEdges
from gnnretrieval.nn.graph_layers import GRAPH_LAYERS
from gnnretrieval.nn.settings import GNNEncoderSettings
from gnnretrieval.settings import OneOf, Settings

Candidates = Literal["batch", "corpus"]
Negatives = Literal["masked", "all"]
Layer = Annotated[str, OneOf("linear", *GRAPH_LAYERS)]
OF_JOINT = {"epochs": 5, "learning_rate": 5e-5, "negatives": "all"}  # the paper's (§4.3), where nothing is given
OF_EVERY_LAYER = ("layer", "mode", "learn_from", "k", "evidence", "precision", "seed")  # the rest is of layer = gat


class JointSettings(Settings):
    """The dual-encoder in joint training.

    Attributes:
        encoder_learning_rate: Peak of the dual-encoder's own learning rate, with mode = joint; 0: it stays as it is.
        encoder_dropout: In its layers while training.
        precision: Of its matrix products; float32 weights are what is updated: ``auto`` is bfloat16 where the processor
            computes in it.
        gradient_cache: Encode a batch twice and hold one part of it at a time: the same update in bounded memory.
        token_budget: Tokens, with padding, that are encoded together.
        dev_passages: Passages that dev queries are ranked among while training: the relevant ones, the dual-encoder's
            best, and others at random; all, where there are no more.
    """

    encoder_learning_rate: float = Field(2e-6, ge=0)
    encoder_dropout: float = Field(0.0, ge=0, lt=1)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    gradient_cache: bool = True
    token_budget: int = Field(4096, ge=1)
    dev_passages: int = Field(10_000, ge=1)


class TrainSettings(Settings):
    """How a GNN-encoder is trained; with ``layer = gat`` by masked graph training (Algorithm 1).

    Attributes:
        layer: ``linear``: one linear head on both sides and messages without weights of their own, the label mean and
            rejection, climbed to from the dual-encoder (:func:`gnnretrieval.training.gnn.ladder.climb`). ``gat``: the
            paper's graph attention and filter gate (eq. 2-10). ``gatv2``, ``transformer``, ``sage``, ``mean``,
            ``lightgcn``: PyTorch Geometric's convolution in its place. Not given: ``gat`` where any setting of it is
            given, which are all but mode, learn_from, k, evidence and seed, or with mode = joint.
        mode: ``frozen``: only the GNN learns, over stored features; ``joint``: the dual-encoder learns with it, and the
            features of a step are recomputed (§3.4).
        learn_from: Which of the graph's queries are trained on: ``all``; ``unseen``: those that the dual-encoder did
            not learn from (all are in the graph); ``auto``: so where at least 200 are left. What is held out
            where there is no dev split is always ``auto``.
        k: Only each query's first k passages, of which label edges are the last; not given: all that the graph has.
        passage_edges: By which edges a passage hears queries (eq. 8): ``all``; ``hard-negatives``: those of queries
            whose hard negative it is, none that is labelled with it: passages with queries of their own, and those
            without, are moved alike.
        epochs: Passes over the training queries, split anew in each; 5 with mode = joint. 0: only the
            context scale is chosen, of a GNN-encoder that was trained over another dual-encoder.
        mask_ratio: ``β``: share of the queries that an epoch masks and trains on.
        mask_unit: What is masked together: ``query`` (the paper), ``passage``, or ``mixed``; ``none``: nothing, every
            query is trained on with its label edges dropped (the paper's ablation).
        batch_size: Masked queries a step.
        learning_rate: Peak of the schedule: linear warm-up, then linear to zero; 5e-5 with
            mode = joint.
        warmup: Share of the steps that warm up.
        weight_averaging: Decay of the exponential average of the weights, which is what is measured and kept; 0: none.
        identity_decay: Pull of the weights towards their start, the identity, as weight decay is one towards 0.
        gradient_clip: Largest norm of a gradient.
        candidates: What a query's positive is told from: ``batch``: the batch's positives and hard negatives, as the
            paper; ``corpus``: every passage, where the dual-encoder is frozen.
        negatives: Which of them are negatives: ``masked``: only passages that a masked query is labelled with, so that
            each is as likely to be a positive, and a passage's having visible questions of its own, or none, tells
            nothing; ``all``: any, as the paper and with mode = joint.
        hard_negatives: Of each query, with ``candidates = batch``: mined ones, or neighbours that are not relevant.
        neighbors: Edges of a passage that training hears, drawn at random where it has more; not given: all. Embedding
            always hears all.
        distillation: Share of the loss that is the cross-encoder's: KL divergence from its probabilities on the edges
            of a masked query, which the graph must have (``edge_features`` with ``probability``).
        scale: Factor on the similarity in the softmax; not given: the encoder's own.
        context_scales: ``λ`` to choose from on dev, at least one above 0; 0, the dual-encoder, is always among them.
        dev_window: An epoch and its context scale are chosen by what they give on dev, mean of this many epochs, itself
            the last of them; 1: by its own.
        evidence: p-value up to which that gain on dev is believed (one-sided paired t-test); above it ``λ`` is 0: the
            dual-encoder stays as it was. 1: every gain is.
        transfer_evidence: The same where epochs = 0 puts a GNN-encoder over another dual-encoder than the one it was
            trained over, and its gain there was believed (by ``evidence``): it is used over this one if it is larger.
        precision: Of the GNN's matrix products in training; its weights, attention, sums and scores are float32, and so
            is embedding: ``auto`` is bfloat16 where the processor computes in it.
        patience: Epochs without a better one on dev, after the warm-up, before training stops early; not given: it does
            not. The last epochs, whose learning rate is low, are mostly the best ones.
        seed: Of every random choice.
        encoder: Shape of the GNN-encoder.
        dual_encoder: How the dual-encoder learns, with mode = joint.
    """

    layer: Layer = "linear"
    mode: Literal["frozen", "joint"] = "frozen"
    learn_from: Literal["all", "unseen", "auto"] = "all"
    k: int | None = Field(None, ge=1)
    passage_edges: PassageEdges = "all"
    epochs: int = Field(80, ge=0)
    mask_ratio: float = Field(0.2, gt=0, le=0.9)
    mask_unit: MaskUnit = "query"
    batch_size: int = Field(128, ge=1)
    learning_rate: float = Field(2e-3, gt=0)
    warmup: float = Field(0.1, ge=0, lt=1)
    weight_averaging: float = Field(0.0, ge=0, lt=1)
    identity_decay: float = Field(0.0, ge=0)
    gradient_clip: float = Field(1.0, gt=0)
    candidates: Candidates = "batch"
    negatives: Negatives = "masked"
    hard_negatives: int = Field(4, ge=0)
    neighbors: int | None = Field(None, ge=1)
    distillation: float = Field(0.0, ge=0, lt=1)
    scale: float | None = Field(None, gt=0)
    context_scales: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
    dev_window: int = Field(1, ge=1)
    evidence: float = Field(0.05, gt=0, le=1)
    transfer_evidence: float = Field(0.2, gt=0, le=1)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    patience: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0, lt=2**63)
    encoder: GNNEncoderSettings = GNNEncoderSettings()
    dual_encoder: JointSettings = JointSettings()

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_mode(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        mode = str(values.get("mode", "frozen"))
        is_gat = mode == "joint" or not set(values) <= set(OF_EVERY_LAYER)
        return {"layer": "gat" if is_gat else "linear", **(OF_JOINT if mode == "joint" else {}), **values}

    @field_validator("context_scales")
    @classmethod
    def _something_to_choose(cls, scales: tuple[float, ...]) -> tuple[float, ...]:
        if not scales or min(scales) < 0 or max(scales) == 0:
            raise ValueError("give one or more above 0; 0, the dual-encoder, is always among them")
        return scales

    @model_validator(mode="after")
    def _fit_together(self) -> TrainSettings:
        if self.layer == "linear":
            if self.mode == "joint":
                raise ValueError("mode = joint trains layer = gat")
            others = [
                name
                for name, field in type(self).model_fields.items()
                if name not in OF_EVERY_LAYER and getattr(self, name) != field.default
            ]
            if others:
                raise ValueError(f"{', '.join(others)}: of layer = gat, and this is layer = linear")
        if self.mode == "joint" and self.candidates == "corpus":
            raise ValueError("candidates = corpus would encode the whole corpus at every step of mode = joint")
        if self.mode == "frozen" and self.dual_encoder != JointSettings():
            raise ValueError("settings of the dual-encoder go with mode = joint: here it is frozen")
        return self

    @property
    def graph_layer(self) -> str:
        """The layer, which is not linear."""
        assert self.layer != "linear"
        return self.layer

    @property
    def is_joint(self) -> bool:
        """Whether the dual-encoder learns too."""
        return self.mode == "joint"
