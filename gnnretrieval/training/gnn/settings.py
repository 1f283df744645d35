"""Settings of training a GNN-encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from gnnretrieval.graph.mask import MaskUnit
from gnnretrieval.graph.subgraph import PassageEdges
from gnnretrieval.nn.graph_layers import GRAPH_LAYERS, WITHOUT_ATTENTION
from gnnretrieval.nn.settings import GNNEncoderSettings
from gnnretrieval.settings import OneOf, Settings

Candidates = Literal["batch", "corpus"]
Negatives = Literal["masked", "all"]
Layer = Annotated[str, OneOf("linear", *GRAPH_LAYERS)]
OF_JOINT = {"epochs": 5, "learning_rate": 5e-5, "negatives": "all"}  # defaults of mode = joint, the paper's (§4.3)
# with layer = linear and mode = joint: the defaults (learning_rate is the query encoder's), and what may be set too
OF_JOINT_LINEAR = {"epochs": 8, "learning_rate": 5e-5, "batch_size": 64}
OF_GRAPH_LAYERS = {"evidence": 0.05}  # default of all layers but linear
OF_QUERY_ENCODER = (*OF_JOINT_LINEAR, "warmup", "gradient_clip", "patience", "dual_encoder")
OF_ITS_ENCODER = ("encoder_dropout", "token_budget")  # of the same, in dual_encoder
OF_EVERY_LAYER = ("layer", "mode", "learn_from", "k", "evidence", "precision", "seed")
OF_LINEAR = (*OF_EVERY_LAYER, "passages")  # what may be set with layer = linear


class JointSettings(Settings):
    """The dual-encoder in joint training.

    Attributes:
        encoder_learning_rate: Peak learning rate of the dual-encoder, with mode = joint; 0: it does not change.
        encoder_dropout: Dropout in its layers, in training.
        gradient_cache: Encode a batch twice and keep one part of it in memory at a time: the same update in bounded
            memory.
        token_budget: Maximum number of tokens, with padding, that are encoded together.
        dev_passages: Number of passages that dev queries are ranked among during training: the relevant ones, the
            dual-encoder's best, and random others.
    """

    encoder_learning_rate: float = Field(2e-6, ge=0)
    encoder_dropout: float = Field(0.0, ge=0, lt=1)
    gradient_cache: bool = True
    token_budget: int = Field(4096, ge=1)
    dev_passages: int = Field(10_000, ge=1)


class TrainSettings(Settings):
    """Training of a GNN-encoder: linear models chosen on dev, or masked graph training (Algorithm 1).

    Attributes:
        layer: ``linear``: linear heads on both sides, messages without weights (label mean and rejection), a prior
            and local scaling, each added to the dual-encoder only if it gains on dev. ``gat``: the paper's graph
            attention and filter gate (eq. 2-10). ``gatv2``, ``transformer``, ``sage``, ``mean``, ``lightgcn``: PyTorch
            Geometric's convolution in place of graph attention. Not given: ``gat`` if mode = joint or any setting is
            given except mode, learn_from, k, passages, evidence, precision and seed; else ``linear``.
        mode: ``frozen``: only the GNN learns, over stored features; ``joint``: the dual-encoder learns with it, and the
            features of a step are recomputed (§3.4). With ``layer = linear``, ``joint`` then trains the query encoder
            and the head against the stored passage vectors, and the label mean follows.
        learn_from: Queries of the graph to train on: ``all``; ``unseen``: those that the dual-encoder did not learn
            from (all stay in the graph); ``auto``: ``unseen`` if at least 200 of these have a label, else ``all``.
            Queries held out without a dev split are always chosen by ``auto``.
        k: Use only each query's first k passages, of which label edges are the last; not given: all.
        passages: Passages that layer = linear trains on and ranks for dev questions: those with labels, the
            dual-encoder's best for dev, and others drawn at random; all passages are embedded. A part makes training
            faster, and leaves rejection out. Not given: all, or 200,000 if all do not fit into memory.
        passage_edges: Edges by which a passage attends to queries (eq. 8): ``all``; ``hard-negatives``: only those of
            queries that it is not relevant to, so that passages with and without their own queries move alike.
        epochs: Passes over the training queries, each with a new random split; 5 with mode = joint, 8 with
            layer = linear too. 0: only choose the context scale of a GNN-encoder that was trained over another
            dual-encoder.
        mask_ratio: ``β``, share of the queries that an epoch masks and trains on; not with mask_unit = none.
        mask_unit: Queries that are masked together: ``query``: each alone (the paper), ``passage``: those of a passage,
            or ``mixed``; ``none``: mask nothing, and train on every query without its label edges (the paper's
            ablation).
        batch_size: Masked queries per step.
        learning_rate: Peak learning rate, after linear warm-up and before linear decay to 0; 5e-5 with mode = joint.
        warmup: Share of the steps that warm up.
        weight_averaging: Decay of an exponential average of the weights, which is measured and kept; 0: none.
        identity_decay: Decay of the weights towards the identity, as weight decay towards 0.
        gradient_clip: Maximum norm of a gradient.
        candidates: Passages that the loss compares with a query's positive: ``batch``: the batch's positives and hard
            negatives (the paper); ``corpus``: every passage, only with a frozen dual-encoder.
        negatives: Candidates that are negatives: ``masked``: only passages with a label by a masked query, so that
            training cannot learn just whether a passage has queries of its own; ``all``: any (the paper, and with
            mode = joint).
        hard_negatives: Hard negatives per query, with ``candidates = batch``: mined ones, or irrelevant neighbours.
        neighbors: Maximum number of edges into a passage in training, a random sample; not given: all. Embedding always
            uses all.
        distillation: Share of distillation in the loss: KL divergence from the cross-encoder's probabilities on the
            edges of a masked query. The graph needs the edge feature ``probability``.
        scale: Factor on the similarity in the softmax; not given: the encoder's own.
        context_scales: Values of ``λ`` to choose from on dev, at least one above 0; 0, the dual-encoder, is always
            among them.
        dev_window: Choose epoch and context scale by the mean RR@10 on dev over this many epochs, up to the epoch; 1:
            by its own RR@10.
        evidence: Largest p-value of the gain on dev (one-sided, paired) at which it is used; above it, the dual-encoder
            is kept. The p-value is corrected for the settings that were tried, and 0.16 is one standard error. With
            layers other than linear it is not corrected, and the default is 0.05. 1: accept every gain.
        transfer_evidence: Significance level if epochs = 0 puts a GNN-encoder over another dual-encoder and its gain
            was significant (by ``evidence``) where it was trained; used if it is larger than ``evidence``.
        precision: Precision of the matrix products in training, of the GNN and of a dual-encoder that learns with it;
            weights, attention, sums and scores are float32, and so is embedding. ``auto``: bfloat16 if the processor
            supports it.
        patience: Stop after this many epochs without a better one on dev, counted after the warm-up; not given: never
            stop early. The last epochs, with their low learning rate, are mostly the best.
        seed: Seed of all random choices.
        encoder: Layers of the GNN-encoder.
        dual_encoder: Settings of the dual-encoder, with mode = joint.
    """

    layer: Layer = "linear"
    mode: Literal["frozen", "joint"] = "frozen"
    learn_from: Literal["all", "unseen", "auto"] = "all"
    k: int | None = Field(None, ge=1)
    passages: int | None = Field(None, ge=1)
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
    evidence: float = Field(0.16, gt=0, le=1)
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
        is_joint = values.get("mode") == "joint"
        layer = "gat" if is_joint or not set(values) <= set(OF_LINEAR) else "linear"
        layer = values.get("layer", layer)
        defaults: dict[str, Any] = {} if layer == "linear" else dict(OF_GRAPH_LAYERS)
        if is_joint:
            defaults |= OF_JOINT_LINEAR if layer == "linear" else OF_JOINT
        return {"layer": layer, **defaults, **values}

    @field_validator("context_scales")
    @classmethod
    def _something_to_choose(cls, scales: tuple[float, ...]) -> tuple[float, ...]:
        if not scales or min(scales) < 0 or max(scales) == 0:
            raise ValueError("give at least one scale above 0; 0, the dual-encoder, is always among them")
        return scales

    @model_validator(mode="after")
    def _fit_together(self) -> TrainSettings:
        if self.layer == "linear":
            allowed = {*OF_LINEAR, *(OF_QUERY_ENCODER if self.is_joint else ())}
            others = [
                name
                for name, field in type(self).model_fields.items()
                if name not in {*allowed, "encoder", "dual_encoder"} and getattr(self, name) != field.default
            ]
            others += _changed(self.encoder)
            if self.is_joint:
                others += [name for name in _changed(self.dual_encoder) if name not in OF_ITS_ENCODER]
            if others:
                raise ValueError(
                    f"{', '.join(others)}: not for layer = linear. Leave this out, or give another layer, such as gat"
                )
        if self.passages is not None and (self.layer != "linear" or self.is_joint):
            raise ValueError("passages: only for layer = linear with mode = frozen")
        if self.is_joint and self.candidates == "corpus":
            raise ValueError("mode = joint with candidates = corpus would encode the whole corpus at every step")
        if self.mode == "frozen" and self.dual_encoder != JointSettings():
            raise ValueError("settings of the dual-encoder need mode = joint: here it is frozen")
        return self

    @property
    def is_joint(self) -> bool:
        """Whether the dual-encoder learns too."""
        return self.mode == "joint"

    @property
    def unused(self) -> str | None:
        """What training does not use of its settings, and what to do. Models from before this check have such ones."""
        if self.layer in WITHOUT_ATTENTION and (self.encoder.heads > 1 or self.encoder.dropout):
            no_use = "has no attention, and no use for heads and dropout"
            return f"layer = {self.layer} {no_use}: leave them out, or give layer = gat"
        if self.mask_unit == "none" and self._is_changed("mask_ratio"):
            return "mask_unit = none masks nothing, and has no use for mask_ratio: leave one of them out"
        if self.candidates == "corpus" and self._is_changed("hard_negatives"):
            return (
                "candidates = corpus compares with every passage, and has no use for hard_negatives: leave "
                "hard_negatives out, or give candidates = batch"
            )
        if self.epochs and self._is_changed("transfer_evidence"):
            return "transfer_evidence is for epochs = 0, and has no effect here: leave it out, or give epochs = 0"
        return None

    def _is_changed(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).model_fields[name].default)


def _changed(group: Settings) -> list[str]:
    """Names of the settings that are not the default."""
    return [name for name, field in type(group).model_fields.items() if getattr(group, name) != field.default]


def as_before(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration without ``passages`` where it is not given: models from before this setting stay valid."""
    return {name: value for name, value in config.items() if name != "passages" or value is not None}
