"""Masked graph training of a GNN-encoder over a frozen dual-encoder (§3.4, Algorithm 1)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gnnretrieval.graph.mask import mask_queries
from gnnretrieval.graph.store import GraphStore
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.losses import contrastive_loss
from gnnretrieval.making import scratch
from gnnretrieval.mining import sample_hard_negatives
from gnnretrieval.nn.gnn_encoder import GNNEncoder, GraphBatch
from gnnretrieval.progress import progress
from gnnretrieval.training.candidates import step_of
from gnnretrieval.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from gnnretrieval.training.dev import DevSet, choose_scale
from gnnretrieval.training.graph_tensors import GraphTensors, edge_moments
from gnnretrieval.training.optimizers import linear_schedule
from gnnretrieval.training.settings import CORPUS_CANDIDATES, TrainSettings

LOG, CHECKPOINT = "log.jsonl", "checkpoint.safetensors"


class GNNTraining:
    """One training run; :meth:`run` goes on from ``directory``'s checkpoint where there is one.

    Args:
        store: The graph.
        dev: Questions to choose the epoch and the context scale by.
        settings: How to train.
        directory: Where the checkpoint and the log go.
        device: Where to compute.
        hidden: ``(n,)`` True for queries kept out of the graph and of training throughout; None: none.
    """

    def __init__(
        self,
        store: GraphStore,
        dev: DevSet,
        settings: TrainSettings,
        directory: Path,
        device: str | torch.device = "cpu",
        hidden: NDArray[np.bool_] | None = None,
    ) -> None:
        self.store, self.dev, self.settings, self.directory = store, dev, settings, directory
        self.device = torch.device(device)
        self.similarity = store.similarity
        self.scale = settings.scale if settings.scale is not None else self.similarity.scale
        shown = store.among(None if hidden is None else ~hidden)
        self.shown = np.ones(store.num_queries, dtype=bool) if shown is None else shown
        self.labels = store.labels[self.shown[store.labels[:, 0]]]
        self.learnable = np.unique(self.labels[:, 0])  # a query without a label is in the graph, and never trained on
        self.tensors = GraphTensors(store, device)
        self.whole_corpus = settings.candidates == "corpus" or (
            settings.candidates == "auto"
            and store.num_passages <= CORPUS_CANDIDATES
            and store.num_queries <= 5 * CORPUS_CANDIDATES
        )
        torch.manual_seed(settings.seed)
        self.model = GNNEncoder(store.dimension, store.edge_dim, settings.encoder)
        mean, deviation = edge_moments(store, self.shown)
        self.model.edge_mean.copy_(torch.from_numpy(mean))
        self.model.edge_deviation.copy_(torch.from_numpy(deviation))
        self.model.to(self.device)
        self.average = copy.deepcopy(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings.learning_rate)
        self.steps_per_epoch = -(-round(settings.mask_ratio * len(self.learnable)) // settings.batch_size) or 1
        self.progress = Progress(0, 0, [])
        self.best = self._weights()
        self.scales = tuple(sorted({0.0, *settings.context_scales}))

    def run(self) -> dict[str, Tensor]:
        """Train to the end; returns the weights that did best on dev, their context scale among them."""
        checkpoint = scratch(self.directory) / CHECKPOINT
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        modules = {"model": self.model, "average": self.average}
        if checkpoint.exists():
            self.best, self.progress = load_checkpoint(checkpoint, modules, self.optimizer, self.device)
        with progress("training", self.settings.epochs, "epochs", self.progress.epoch) as meter:
            while self.progress.epoch < self.settings.epochs and not self._out_of_patience():
                record = self._epoch(self.progress.epoch)
                self.progress = Progress(self.progress.epoch + 1, self.progress.step, [*self.progress.history, record])
                if self._best_epoch() == record["epoch"]:
                    self.best = self._weights()
                    self.best["context_scale"] = torch.tensor(record["context_scale"], device=self.device)
                save_checkpoint(checkpoint, modules, self.optimizer, self.best, self.progress)
                self._write_log()
                meter.advance(note=f"loss {record['loss']:.3f}, dev RR@10 {100 * record['dev']:.1f}")
        self._write_log()
        return self.best

    def _epoch(self, epoch: int) -> dict[str, Any]:
        """Algorithm 1, lines 4-12."""
        settings = self.settings
        rng = np.random.default_rng([settings.seed, epoch])
        torch.manual_seed(int(rng.integers(2**62)))
        masked = np.zeros(self.store.num_queries, dtype=bool)  # Q_t
        labels = np.stack([np.searchsorted(self.learnable, self.labels[:, 0]), self.labels[:, 1]], axis=1)
        chosen = mask_queries(len(self.learnable), labels, settings.mask_ratio, settings.mask_unit, rng)
        masked[self.learnable[chosen]] = True
        visible = self.shown & ~masked  # Q_g
        everything = np.arange(self.store.num_passages) if self.whole_corpus else None
        graph = self.tensors.batch(everything, visible) if everything is not None else None
        losses = []
        queries = rng.permutation(np.flatnonzero(masked))
        for start in range(0, len(queries), settings.batch_size):
            batch = np.sort(queries[start : start + settings.batch_size])
            losses.append(self._step(batch, everything, graph, visible, rng))
        measured = self.dev.measure(self.average, self.store, self.scales, self.shown)
        scale, value = choose_scale(measured)
        return {
            "epoch": epoch + 1,
            "step": self.progress.step,
            "loss": sum(losses) / len(losses),
            "dev": value,
            "context_scale": scale,
            "dev_by_scale": {str(key): found for key, found in measured.items()},
        }

    def _step(
        self,
        queries: Rows,
        everything: Rows | None,
        graph: GraphBatch | None,
        visible: NDArray[np.bool_],
        rng: np.random.Generator,
    ) -> float:
        """One update on a batch of masked queries; returns its loss."""
        settings, store = self.settings, self.store
        negatives = np.empty(0, dtype=np.int64)
        if everything is None and settings.hard_negatives:
            negatives = sample_hard_negatives(store.neighbors, queries, self.labels, settings.hard_negatives, rng)
        step = step_of(queries, self.labels, everything, negatives)
        if graph is None:
            graph = self.tensors.batch(step.candidates, visible)
        self._set_learning_rate()
        self.model.train()
        embeddings = self.similarity.prepare(self.model(graph))  # (C, d)
        asked = self.similarity.prepare(self.tensors.gather(store.query_features, step.queries))  # (B, d)
        scores = self.scale * asked @ embeddings.T  # (B, C)
        positives = torch.from_numpy(step.positives).to(self.device)
        relevant = torch.from_numpy(step.relevant).to(self.device)
        loss = contrastive_loss(scores, positives, relevant)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), settings.gradient_clip)
        self.optimizer.step()
        self.progress = self.progress._replace(step=self.progress.step + 1)
        self._average_weights()
        return float(loss.detach())

    def _set_learning_rate(self) -> None:
        total = self.settings.epochs * self.steps_per_epoch
        factor = linear_schedule(self.progress.step, total, self.settings.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * factor

    @torch.no_grad()
    def _average_weights(self) -> None:
        """Exponential average, with the usual shorter memory over the first steps."""
        step = self.progress.step
        decay = min(self.settings.weight_averaging, step / (step + 9))
        for average, value in zip(self.average.parameters(), self.model.parameters(), strict=True):
            average.lerp_(value, 1 - decay)

    def _weights(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.average.state_dict().items()}

    def _best_epoch(self) -> int:
        """Number of the first epoch with the best dev measure."""
        best: int = max(self.progress.history, key=lambda record: record["dev"])["epoch"]
        return best

    def _out_of_patience(self) -> bool:
        history, patience = self.progress.history, self.settings.patience
        return bool(history) and history[-1]["epoch"] - self._best_epoch() >= patience

    def _write_log(self) -> None:
        lines = [json.dumps(record) for record in self.progress.history]
        (self.directory / LOG).write_text("\n".join(lines) + "\n", encoding="utf-8")
