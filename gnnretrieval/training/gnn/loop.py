"""Masked graph training of a GNN-encoder (§3.4, Algorithm 1), over a frozen dual-encoder or jointly with it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gnnretrieval.encoders.loading import weights_dtype
from gnnretrieval.graph.mask import mask_queries
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows, Subgraph
from gnnretrieval.losses import contrastive_loss, listwise_distillation_loss
from gnnretrieval.nn.gnn_encoder import GNNEncoder, GraphBatch
from gnnretrieval.platform.devices import as_device
from gnnretrieval.platform.memory import require_memory
from gnnretrieval.progress import progress
from gnnretrieval.storage.places import scratch
from gnnretrieval.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from gnnretrieval.training.gnn.candidates import Step, step_of
from gnnretrieval.training.gnn.dev import DevSet, DevWindow, choose_scale
from gnnretrieval.training.gnn.examples import LearnedFrom, probability_column
from gnnretrieval.training.gnn.graph_tensors import GraphTensors, edge_moments
from gnnretrieval.training.gnn.held_out import first_copies
from gnnretrieval.training.gnn.joint import JointEncoders
from gnnretrieval.training.gnn.log import dev_note, write_log
from gnnretrieval.training.gnn.settings import TrainSettings
from gnnretrieval.training.optimizers import linear_schedule, require_finite_step
from gnnretrieval.training.ranks import ALONE, Ranks

LOG, CHECKPOINT = "log.jsonl", "checkpoint.safetensors"
_OF_PARAMETER = 4 * 7  # bytes: itself, its gradient, two of the optimizer's, its start, its average and the best one
ENCODER = "encoder."  # prefix of the dual-encoder's weights


class GNNTraining:
    """A training run. :meth:`run` continues from the checkpoint in ``directory`` if there is one.

    Args:
        store: The graph.
        dev: Dev questions, by which the epoch and the context scale are chosen.
        settings: Settings of the run.
        directory: Directory of checkpoint and log.
        device: Where to compute.
        hidden: ``(n,)`` bool, True for queries that are kept out of training and of its graph; None: none.
        learned: Positives and mined negatives; None: the labels of the store.
        encoders: The dual-encoder, with ``mode = joint``; None: it is frozen.
        start: Weights of a GNN-encoder to start from; None: the identity.
        ranks: The processes that train together. Over a frozen dual-encoder each embeds its share of the passages that
            a step scores, and all compute the same loss.
    """

    def __init__(
        self,
        store: Graph,
        dev: DevSet,
        settings: TrainSettings,
        directory: Path,
        device: str | torch.device = "cpu",
        hidden: NDArray[np.bool_] | None = None,
        *,
        learned: LearnedFrom | None = None,
        encoders: JointEncoders | None = None,
        start: Mapping[str, Tensor] | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.store, self.dev, self.settings, self.encoders, self.ranks = store, dev, settings, encoders, ranks
        self.directory = Path(ranks.agree(str(directory)))  # that of the first process
        self.device = as_device(device)
        self.similarity = store.similarity
        self.scale = settings.scale if settings.scale is not None else self.similarity.scale
        shown = store.among(None if hidden is None else ~hidden)
        self.shown = np.ones(store.num_queries, dtype=bool) if shown is None else shown
        self.learned = (learned or LearnedFrom.of(store)).among(self.shown)
        self.labels = self.learned.labels
        self.labelled = np.unique(self.labels[:, 0])  # queries without a label are only in the graph
        self.learnable = self.labelled[self.learned.taught[self.labelled]]
        self.first_copy = first_copies(store.query_features, np.arange(store.num_queries))
        self.dropped = store.label_edges(self.labels) if settings.mask_unit == "none" else None
        self.goes_on = encoders is not None or start is not None
        self.tensors = GraphTensors(store, device)
        self.reduced = weights_dtype(settings.precision, self.device) == torch.bfloat16
        self.whole_corpus = settings.candidates == "corpus"
        self.allowed: Rows | None = None  # passages that may be negatives in this epoch; None: all
        self.teacher = probability_column(store) if settings.distillation else None
        torch.manual_seed(settings.seed)
        self.model = self._new_model()
        self.identity = [parameter.detach().clone().to(self.device) for parameter in self.model.parameters()]
        self._begin_from(start)
        self.average = copy.deepcopy(self.model)
        groups = [{"params": list(self.model.parameters()), "lr": settings.learning_rate}]
        self.modules: dict[str, nn.Module] = {"model": self.model, "average": self.average}
        self.rates = [settings.learning_rate]
        if encoders is not None:
            self.rates.append(settings.dual_encoder.encoder_learning_rate)
            groups.append({"params": list(encoders.parameters), "lr": self.rates[1]})
            self.modules["encoder"] = encoders.parameters
        self.optimizer = torch.optim.Adam(groups, fused=True)
        masked = 1.0 if settings.mask_unit == "none" else settings.mask_ratio
        self.steps_per_epoch = -(-round(masked * len(self.learnable)) // settings.batch_size) or 1
        self.progress = Progress(0, 0, [])
        self.best = self._weights()
        self.scales = tuple(sorted({0.0, *settings.context_scales}))
        self.modules["window"] = self.window = DevWindow(settings.dev_window, self.scales, len(dev))
        self.pool = encoders.pool(dev) if encoders is not None else None
        self.base: NDArray[np.float64] | None = None  # RR@10 of each dev query by the unchanged dual-encoder

    def _new_model(self) -> GNNEncoder:
        """A model at the identity; raises if its training does not fit into memory."""
        store, settings = self.store, self.settings
        shape = (store.dimension, store.edge_dim, settings.encoder, settings.layer)
        needed = _OF_PARAMETER * GNNEncoder.num_parameters(*shape)
        require_memory(needed, f"training of {settings.layer} over {store.path}", "Use narrower vectors.")
        return GNNEncoder(*shape)

    def _begin_from(self, start: Mapping[str, Tensor] | None) -> None:
        """Load the weights to start from, with the moments of this graph's edge features and context scale 1."""
        mean, deviation = edge_moments(self.store, self.shown)
        if start is not None:
            self.model.load_state_dict(start)
        self.model.edge_mean.copy_(torch.from_numpy(mean))
        self.model.edge_deviation.copy_(torch.from_numpy(deviation))
        self.model.context_scale.fill_(1.0)
        self.model.to(self.device)

    def run(self) -> dict[str, Tensor]:
        """Train to the end; returns the weights that did best on dev, with their context scale.

        With ``mode = joint`` the dual-encoder's weights are included; their names start with ``encoder.``.
        """
        checkpoint = scratch(self.directory) / CHECKPOINT
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        if self.goes_on:
            self._measure_start()
        if self.ranks.agree(checkpoint.exists()):
            self.best, self.progress = load_checkpoint(checkpoint, self.modules, self.optimizer, self.device)
            if self.encoders is not None:
                self.encoders.weights.publish()
        per_epoch, dev = self.steps_per_epoch, ""
        total = self.settings.epochs * per_epoch
        with progress("training", total, "steps", self.progress.epoch * per_epoch) as meter:

            def advance(epochs: float, loss: float) -> None:
                meter.advance(round(epochs * per_epoch) - meter.done, f"loss {loss:.3f}{dev}")

            while self.progress.epoch < self.settings.epochs and not self._out_of_patience():
                record = self.epoch(self.progress.epoch, advance)
                self._keep(record)
                if self.ranks.first:
                    save_checkpoint(checkpoint, self.modules, self.optimizer, self.best, self.progress)
                    write_log(self.directory / LOG, self.progress.history)
                self.ranks.agree(None)  # all processes wait for the checkpoint
                dev = f", {dev_note(self.progress.history)}"
        if self.ranks.first:
            write_log(self.directory / LOG, self.progress.history)
        return self.best

    def _keep(self, record: dict[str, Any]) -> None:
        """Add the record of an epoch, and keep its weights if it is the best."""
        done = record["epoch"]
        self.progress = Progress(done, self.progress.step, [*self.progress.history, record])
        if self.best_record is record:
            self.best = self._weights()
            self.best["context_scale"] = torch.tensor(record["context_scale"], device=self.device)

    def epoch(self, epoch: int, advance: Callable[[float, float], None] = lambda epochs, loss: None) -> dict[str, Any]:
        """Train one epoch (Algorithm 1, lines 4-12) and measure it on dev; returns its record."""
        settings = self.settings
        rng = np.random.default_rng([settings.seed, epoch])
        torch.manual_seed(int(rng.integers(2**62)))
        masked = np.zeros(self.store.num_queries, dtype=bool)  # Q_t
        labels = np.stack([np.searchsorted(self.labelled, self.labels[:, 0]), self.labels[:, 1]], axis=1)
        chosen = mask_queries(len(self.labelled), labels, settings.mask_ratio, settings.mask_unit, rng)
        masked[self.labelled[chosen]] = True
        visible = self.shown  # Q_g
        if settings.mask_unit != "none":  # a copy of a masked question would give its answer away
            visible = visible & ~np.isin(self.first_copy, self.first_copy[masked])
        if settings.negatives == "masked":
            self.allowed = np.unique(self.labels[masked[self.labels[:, 0]], 1])
        everything: Rows | None = None
        if self.whole_corpus:  # with a teacher every passage is a candidate: the teacher scores any of them
            everything = self.allowed if self.teacher is None else None
            everything = np.arange(self.store.num_passages) if everything is None else everything
        graph = self._own_graph(everything, visible, rng) if everything is not None else None
        steps: list[dict[str, float]] = []
        queries = rng.permutation(np.flatnonzero(masked & self.learned.taught))
        # by passage an epoch may have far more steps than planned, which must not use up the others' learning rate
        planned = self.steps_per_epoch / max(1, -(-len(queries) // settings.batch_size))
        for start in range(0, len(queries), settings.batch_size):
            batch = np.sort(queries[start : start + settings.batch_size])
            place = epoch * self.steps_per_epoch + len(steps) * planned
            loss, norm = self._step(batch, everything, graph, visible, rng, place)
            done = epoch + min(1.0, (len(steps) + 1) * planned / self.steps_per_epoch)
            rate = self.optimizer.param_groups[0]["lr"]
            steps.append({"step": self.progress.step, "epoch": round(done, 4), "loss": loss})
            steps[-1] |= {"learning_rate": rate, "gradient_norm": norm}
            advance(done, loss)
        return {**self._measured(epoch + 1), "steps": steps}

    def _subgraph(self, passages: Rows, visible: NDArray[np.bool_], rng: np.random.Generator) -> Subgraph:
        sample = (self.settings.neighbors, rng) if self.settings.neighbors is not None else None
        return self.store.subgraph(passages, visible, dropped=self.dropped, sample=sample)

    def _own_graph(self, passages: Rows, visible: NDArray[np.bool_], rng: np.random.Generator) -> GraphBatch:
        """Tensors of this process's share of ``passages``; edges are sampled for all of them, by the same generator."""
        subgraph = self._subgraph(passages, visible, rng)
        alone = self.ranks.count == 1
        return self.tensors.tensors(subgraph if alone else subgraph.part(self.ranks.share(len(passages))))

    def _step(
        self,
        queries: Rows,
        everything: Rows | None,
        graph: GraphBatch | None,
        visible: NDArray[np.bool_],
        rng: np.random.Generator,
        place: float | None = None,
    ) -> tuple[float, float]:
        """One update on a batch of masked queries (Algorithm 1, lines 7-11); returns loss and norm of the gradient.

        ``place`` is that of the step in the schedule of the learning rate; None: the number of steps done.
        """
        settings, store = self.settings, self.store
        others = np.empty(0, dtype=np.int64)
        if everything is None and settings.hard_negatives:
            others = self.learned.draw_negatives(store.neighbors, queries, settings.hard_negatives, rng)
            others = others if self.allowed is None else np.intersect1d(others, self.allowed)
        if everything is None and self.teacher is not None:
            # the teacher has probabilities of the edges alone, so both ends must be candidates
            others = np.union1d(others, store.neighbors[queries].astype(np.int64))
        step = step_of(queries, self.labels, everything, others, self.allowed)
        self._set_learning_rate(self.progress.step if place is None else place)
        self.model.train()
        self.optimizer.zero_grad()
        if self.encoders is None:
            if graph is None:
                graph = self._own_graph(step.candidates, visible, rng)
            vectors = self.similarity.prepare(self.tensors.gather(store.query_features, queries))  # (b, d)
            of_step = self._loss(step, queries, vectors, graph)
            of_step.backward()  # type: ignore[no-untyped-call]
            self.ranks.sum_gradients(self.model.parameters())
            loss = float(of_step.detach())
        else:
            loss = self._joint_gradient(step, queries, self._subgraph(step.candidates, visible, rng))
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), settings.gradient_clip))
        require_finite_step(self.progress.step, loss, norm, "Give a lower learning_rate.")
        if self.encoders is not None:
            of_encoders = float(nn.utils.clip_grad_norm_(self.encoders.parameters, settings.gradient_clip))
            remedy = "Give a lower encoder_learning_rate or learning_rate."
            require_finite_step(self.progress.step, loss, of_encoders, remedy)
        self.optimizer.step()
        self._pull_to_identity()
        if self.encoders is not None:
            self.encoders.weights.publish()
        self.progress = self.progress._replace(step=self.progress.step + 1)
        self._average_weights()
        return loss, norm

    def _joint_gradient(self, step: Step, queries: Rows, subgraph: Subgraph) -> float:
        """Add the gradient with recomputed node features (Algorithm 1, lines 8-10); returns the loss."""
        encoders = self.encoders
        assert encoders is not None

        def loss(vectors: Tensor, passages: Tensor, adjacent: Tensor) -> Tensor:
            return self._loss(step, queries, vectors, self.tensors.tensors(subgraph, (passages, adjacent)))

        value = encoders.add_gradient(queries, step.candidates, subgraph.queries, loss, self.progress.step)
        for parameter in self.model.parameters() if self.ranks.count > 1 else ():
            if parameter.grad is not None:
                parameter.grad /= self.ranks.count  # every process has the GNN's whole gradient
        self.ranks.sum_gradients([*encoders.parameters, *self.model.parameters()])
        return value

    def _loss(self, step: Step, queries: Rows, vectors: Tensor, graph: GraphBatch) -> Tensor:
        """Loss of query vectors ``(b, d)`` over the graph (eq. 11, 12), with distillation if it is set."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.reduced):
            interactive = self.model(graph)
        embeddings = self.similarity.prepare(interactive)  # (C, d), float32
        if self.encoders is None:
            embeddings = self.ranks.rows_of_all(embeddings, len(step.candidates))
        rows = torch.from_numpy(np.searchsorted(queries, step.queries)).to(self.device)
        scores = self.scale * vectors[rows] @ embeddings.T  # (B, C)
        positives = torch.from_numpy(step.positives).to(self.device)
        relevant = torch.from_numpy(step.relevant).to(self.device)
        loss = contrastive_loss(scores, positives, relevant)
        if self.teacher is None:
            return loss
        neighbors = self.store.neighbors[queries].astype(np.int64)  # (b, k)
        column = torch.from_numpy(np.searchsorted(step.candidates, neighbors)).to(self.device)
        probability = torch.from_numpy(self.store.edge_arrays.cheap[queries, : self.store.k, self.teacher])
        teacher = torch.logit(probability.float(), eps=1e-4).to(self.device)
        student = (self.scale * vectors @ embeddings.T).gather(1, column)  # (b, k)
        distilled = listwise_distillation_loss(student, teacher, torch.ones_like(teacher, dtype=torch.bool))
        return (1 - self.settings.distillation) * loss + self.settings.distillation * distilled

    def _measure_start(self) -> None:
        """Measure the start and the unchanged dual-encoder on dev; epochs are compared with these."""
        self.progress = Progress(0, 0, [])
        self._keep({**self._measured(0), "steps": []})

    def _measured(self, epoch: int) -> dict[str, Any]:
        """The record of an epoch: dev RR@10 by context scale, and the best scale."""
        record = None
        if self.ranks.first:
            store, dev = self.store, self.dev
            if self.encoders is not None:
                store, dev = self.encoders.recomputed(dev, self.pool, self.shown)
            measured = dev.measure(self.average, store, self.scales, self.shown, self.pool)
            if self.base is None or self.encoders is None:
                self.base = measured[0.0]
            choice = choose_scale(self.window.with_this(measured), self.base, self.dev.parts)
            record = {
                "epoch": epoch,
                "step": self.progress.step,
                "dev": float(measured[choice.scale].mean()),
                "gain": choice.gain,
                "p": choice.p,
                "context_scale": choice.scale,
                "dual_encoder": float(self.base.mean()),
                "dev_by_scale": {str(scale): float(values.mean()) for scale, values in measured.items()},
            }
        agreed: dict[str, Any] = self.ranks.agree(record)
        return agreed

    def _set_learning_rate(self, place: float) -> None:
        total = self.settings.epochs * self.steps_per_epoch
        factor = linear_schedule(place, total, self.settings.warmup)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor

    @torch.no_grad()
    def _pull_to_identity(self) -> None:
        """Decoupled weight decay (Loshchilov and Hutter 2019), towards the identity start instead of 0."""
        if decay := self.settings.identity_decay:
            share = min(1.0, decay * self.optimizer.param_groups[0]["lr"])
            for parameter, identity in zip(self.model.parameters(), self.identity, strict=True):
                parameter.lerp_(identity, share)

    @torch.no_grad()
    def _average_weights(self) -> None:
        """Update the exponential average of the weights, with a shorter memory over the first steps."""
        step = self.progress.step
        decay = min(self.settings.weight_averaging, step / (step + 9))
        for average, value in zip(self.average.parameters(), self.model.parameters(), strict=True):
            average.lerp_(value, 1 - decay)

    def _weights(self) -> dict[str, Tensor]:
        weights = {name: value.detach().clone() for name, value in self.average.state_dict().items()}
        if self.encoders is not None:
            weights |= {f"{ENCODER}{name}": value for name, value in self.encoders.weights.snapshot().items()}
        return weights

    @property
    def best_record(self) -> dict[str, Any]:
        """Record of the epoch with the largest gain on dev (averaged over the dev window); the first of equal ones."""
        return max(self.progress.history, key=lambda record: record["gain"])

    def _out_of_patience(self) -> bool:
        history, patience = self.progress.history, self.settings.patience
        if patience is None or not history:
            return False
        warm = self.settings.warmup * self.settings.epochs
        return bool(history[-1]["epoch"] - max(self.best_record["epoch"], warm) >= patience)
