"""The training loop of all encoders; dual-, sentence and cross-encoders are tasks for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gnnretrieval.encoders.loading import weights_dtype
from gnnretrieval.platform.devices import as_device
from gnnretrieval.progress import progress
from gnnretrieval.storage.artifacts import whole_file
from gnnretrieval.storage.durable import sync_tree
from gnnretrieval.storage.places import scratch
from gnnretrieval.training.cached_step import Batch, add_gradient
from gnnretrieval.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from gnnretrieval.training.encoder.settings import LoopSettings
from gnnretrieval.training.encoder.towers import Tower, Trained
from gnnretrieval.training.optimizers import linear_schedule, make_optimizer, require_finite_step
from gnnretrieval.training.ranks import ALONE, Ranks
from gnnretrieval.training.weights import MasterWeights

LOG, CHECKPOINT = "log.jsonl", "checkpoint.safetensors"
_LOG_EVERY = 10  # steps between lines of the log
_CHECKPOINT_EVERY = 1000  # steps between checkpoints, besides those at the end of an epoch


class Task(Protocol):
    """A training task: batches, and evaluation on dev."""

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches in an epoch."""

    def batch(self, epoch: int, number: int) -> Batch:
        """Batch ``number`` of an epoch; it depends only on the seed, the epoch and the number."""

    def before_step(self, step: int, towers: Mapping[str, Tower], directory: Path, ranks: Ranks) -> None:
        """Called before every step."""

    def measure(self, towers: Mapping[str, Tower]) -> dict[str, float]:
        """Measures on dev; the epoch is chosen by the first one."""


class EncoderLoop:
    """A training run. :meth:`run` continues from the checkpoint in ``directory`` if there is one.

    Args:
        towers: The towers to train, by name; a tower under two names is shared.
        task: The training task.
        settings: Settings of the loop.
        directory: Directory of log and checkpoint.
        device: Where to compute.
        ranks: The processes that train together; each has its own copy of the towers.
        beside: What the task's loss trains besides the towers, in float32.
    """

    def __init__(
        self,
        towers: Mapping[str, Tower],
        task: Task,
        settings: LoopSettings,
        directory: Path,
        device: torch.device,
        ranks: Ranks = ALONE,
        beside: Sequence[Trained] = (),
    ) -> None:
        self.towers, self.task, self.settings, self.ranks = towers, task, settings, ranks
        self.directory = Path(ranks.agree(str(directory)))  # that of the first process
        self.device = device
        self.weights = MasterWeights([*towers.values(), *beside], weights_dtype(settings.precision, device))
        self.optimizer = make_optimizer(
            settings.optimizer,
            list(self.weights.parameters.named_parameters()),
            settings.learning_rate,
            settings.weight_decay,
        )
        self.progress = Progress(0, 0, [])
        self.best: dict[str, Tensor] = {}
        self.total = settings.epochs * task.steps_per_epoch

    def run(self) -> dict[str, Any]:
        """Train to the end; the towers then have the weights that did best on dev, in float32.

        Returns:
            The record of the best measurement.
        """
        checkpoint = scratch(self.directory) / CHECKPOINT
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        modules: dict[str, nn.Module] = {"weights": self.weights.parameters}
        if self.ranks.agree(checkpoint.exists()):
            self.best, self.progress = load_checkpoint(checkpoint, modules, self.optimizer, self.device)
            self.weights.publish()
        self._shorten_log()
        per_epoch = self.task.steps_per_epoch
        with progress("training", self.total, "steps", self.progress.step) as meter:
            if self.progress.step == 0 and not self.progress.history:
                self._measure(0)
            while self.progress.step < self.total and not self._out_of_patience():
                step = self.progress.step
                loss = self.step(step)
                meter.advance(note=f"loss {loss:.3f}")
                if (step + 1) % per_epoch == 0:
                    epoch = (step + 1) // per_epoch
                    if epoch % self.settings.dev_every == 0 or step + 1 == self.total:
                        self._measure(epoch)
                if (step + 1) % per_epoch == 0 or (step + 1) % _CHECKPOINT_EVERY == 0:
                    if self.ranks.first:
                        sync_tree(self.directory, skip=checkpoint.parent)  # the log, which is not written again
                        save_checkpoint(checkpoint, modules, self.optimizer, self.best, self.progress)
                    self.ranks.agree(None)  # all processes wait for the checkpoint
        self.weights.restore(self.best)
        self.weights.to_float32()
        return self.best_record

    @property
    def best_record(self) -> dict[str, Any]:
        """Record of the best measurement on dev, the first of equal ones."""
        return max(self.progress.history, key=_first_measure)

    def step(self, step: int) -> float:
        """One update; returns the loss. Raises if it is not finite."""
        settings, per_epoch = self.settings, self.task.steps_per_epoch
        self.task.before_step(step, self.towers, self.directory, self.ranks)
        for tower in self.towers.values():
            tower.module.train()
        rate = settings.learning_rate * linear_schedule(step, self.total, settings.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        loss = add_gradient(
            self.towers,
            self.task.batch(step // per_epoch, step % per_epoch),
            cached=settings.gradient_cache,
            token_budget=settings.token_budget,
            ranks=self.ranks,
            seed=(settings.seed, step),
        )
        self.ranks.sum_gradients(self.weights.parameters)
        norm = float(nn.utils.clip_grad_norm_(self.weights.parameters, settings.gradient_clip))
        require_finite_step(step, loss, norm, "Give a lower learning_rate.")
        self.optimizer.step()
        self.weights.publish()
        self.progress = self.progress._replace(step=step + 1, epoch=(step + 1) // per_epoch)
        if (step + 1) % _LOG_EVERY == 0 or step + 1 == self.total:
            epoch = round((step + 1) / per_epoch, 4)
            record = {"step": step + 1, "epoch": epoch, "loss": loss, "learning_rate": rate}
            self._log({**record, "gradient_norm": norm})
        return loss

    def _measure(self, epoch: int) -> None:
        for tower in self.towers.values():
            tower.module.eval()
        with torch.no_grad():
            measures = self.ranks.agree(self.task.measure(self.towers) if self.ranks.first else None)
        record = {"step": self.progress.step, "epoch": epoch, "dev": measures}
        self.progress = self.progress._replace(history=[*self.progress.history, record])
        if self.best_record is record:
            self.best = self.weights.snapshot()
        self._log(record)

    def _log(self, record: dict[str, Any]) -> None:
        if self.ranks.first:
            with (self.directory / LOG).open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    def _shorten_log(self) -> None:
        """Remove the lines after the checkpoint from the log: the resumed run writes them again."""
        log = self.directory / LOG
        if self.ranks.first and log.exists():
            records = [line for line in log.read_text(encoding="utf-8").splitlines() if _is_until(line, self.progress)]
            with whole_file(log) as partial:
                partial.write_text("".join(f"{line}\n" for line in records), encoding="utf-8")

    def _out_of_patience(self) -> bool:
        history = self.progress.history
        return len(history) - 1 - history.index(self.best_record) >= self.settings.patience


class _WithPrecision(Protocol):
    @property
    def precision(self) -> str: ...

    def model_dump(self, *, mode: str) -> dict[str, Any]: ...


def with_precision(settings: _WithPrecision, device: str) -> dict[str, Any]:
    """The settings as JSON values, with the precision of this device in place of ``auto``."""
    reduced = weights_dtype(settings.precision, as_device(device)) == torch.bfloat16
    return {**settings.model_dump(mode="json"), "precision": "bfloat16" if reduced else "float32"}


def _first_measure(record: dict[str, Any]) -> float:
    return float(next(iter(record["dev"].values())))


def _is_until(line: str, progress: Progress) -> bool:
    """Whether a line of the log is complete and belongs to a step before the checkpoint."""
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return bool(record["step"] <= progress.step and (record["step"] > 0 or progress.history))
