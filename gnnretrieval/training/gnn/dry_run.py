"""Dry run: estimate the steps, time and memory of training from a few steps of it (law 11)."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.features import Features
from gnnretrieval.errors import counted
from gnnretrieval.graph.inspection.memory_needs import TrainingShape, memory_needs
from gnnretrieval.graph.store import Graph
from gnnretrieval.mining.examples import Examples
from gnnretrieval.nn.label_messages import Heads, Messages, Sides
from gnnretrieval.nn.passage_updates import BATCH, updated
from gnnretrieval.pages.quantities import in_time
from gnnretrieval.platform.devices import as_device
from gnnretrieval.training.gnn.embedding import gated_contexts
from gnnretrieval.training.gnn.head import train_heads
from gnnretrieval.training.gnn.joint_messages import JOINT_SIDES, QueryEncoderTraining
from gnnretrieval.training.gnn.judged import FOLDS, Judged
from gnnretrieval.training.gnn.ladder import (
    HEADS,
    MOST_PASSES,
    MOST_SETTINGS,
    MOST_WITH_QUESTIONS,
    SIDES,
    TRAINED_MEANS,
    UPDATE_SIZES,
    head_steps,
    steps_of_heads,
)
from gnnretrieval.training.gnn.loop import GNNTraining
from gnnretrieval.training.gnn.message_memory import bytes_of_messages
from gnnretrieval.training.gnn.messages import is_few, training_part
from gnnretrieval.training.gnn.model import GNNEncoderModel
from gnnretrieval.training.gnn.settings import TrainSettings
from gnnretrieval.training.gnn.train import TrainingPlan

STEPS = 3  # timed steps; the first one warms up
_TIMES = 4  # as many steps of a head
_PASSAGES = 2000  # passages embedded to time a measurement on dev


def rehearse(
    store: Graph,
    dataset: Dataset,
    features: Features,
    settings: TrainSettings,
    *,
    examples: Sequence[Examples] = (),
    start: GNNEncoderModel | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Run a few steps of :func:`gnnretrieval.training.gnn.train.train_gnn` without keeping anything.

    With layer = linear, time a few steps of a head, in joint training also of the query encoder, and one measurement
    on dev.

    Returns:
        ``queries`` (to train on), ``dev_queries``, ``steps_per_epoch``, ``steps``, ``candidates`` (passages that a step
        scores), ``timed_steps`` (at most 12), ``step_seconds`` (median), ``dev_seconds`` (estimated from a sample),
        ``hours`` (in all, without early stopping) and ``memory`` in bytes: ``estimate`` (:func:`memory_needs`; None in
        joint training, where the dual-encoder needs memory too) and ``peak`` (of the process in these steps).

    Raises:
        GnnRetrievalError: As :func:`gnnretrieval.training.gnn.train.train_gnn`.
    """
    plan = TrainingPlan.of(store, dataset, features, settings, examples, start)
    if settings.layer == "linear":
        return _rehearse_query_encoder(plan, device) if settings.is_joint else _rehearse_linear(plan, device)
    with tempfile.TemporaryDirectory() as place:
        training = plan.training(Path(place), device)
        times: list[float] = []
        scored = _time_steps(training, times)
        dev = _dev_seconds(training)
    steps = settings.epochs * training.steps_per_epoch
    seconds = float(np.median(times[1:] or times))
    return {
        "queries": len(training.learnable),
        "dev_queries": len(training.dev),
        "steps_per_epoch": training.steps_per_epoch,
        "steps": steps,
        "candidates": scored,
        "timed_steps": len(times),
        "step_seconds": seconds,
        "dev_seconds": dev,
        "hours": (steps * seconds + settings.epochs * dev) / 3600,
        "memory": {"estimate": _estimate(training), "peak": _peak(training.device)},
    }


def _rehearse_query_encoder(plan: TrainingPlan, device: str) -> dict[str, Any]:
    settings, times = plan.settings, []
    ladder = _rehearse_linear(plan, device, JOINT_SIDES, has_updates=False)
    with tempfile.TemporaryDirectory() as place:
        taught = plan.learned.taught
        made = QueryEncoderTraining.of(plan.store, plan.held_out, settings, Path(place), taught, device=device)
        for step in range(min(STEPS, made.loop.total)):
            begun = time.perf_counter()
            made.loop.step(step)
            times.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        made.dev.measure()
        dev = time.perf_counter() - begun
    seconds = float(np.median(times[1:] or times))
    return {
        "queries": len(made.task.examples),
        "dev_queries": len(plan.held_out.relevant),
        "steps_per_epoch": made.task.steps_per_epoch,
        "steps": made.loop.total,
        "candidates": min(plan.store.num_passages, settings.batch_size * made.task.top),
        "timed_steps": len(times),
        "step_seconds": seconds,
        "dev_seconds": dev,
        "hours": ladder["hours"] + (made.loop.total * seconds + (1 + settings.epochs) * dev) / 3600,
        "memory": {"estimate": None, "peak": _peak(torch.device(device))},
    }


def _rehearse_linear(
    plan: TrainingPlan, device: str, sides: Sequence[Sides] = SIDES, *, has_updates: bool = True
) -> dict[str, Any]:
    store = plan.store
    part = training_part(store, plan.held_out, plan.settings, torch.from_numpy(plan.learned.taught))
    held_out, taught = part.held_out, part.taught
    graph = part.graph.to(as_device(device))
    if held_out.hidden is not None:
        graph = graph.without(torch.from_numpy(held_out.hidden))
    head = Messages(STEPS, trained_mean=TRAINED_MEANS[-1], sides=sides[-1])

    def train(steps: int) -> Heads:
        seed = plan.settings.seed
        return train_heads(graph, steps, sides=head.sides, mean=head.trained_mean, seed=seed, taught=taught)

    judged = Judged.of(graph, {head: train(STEPS)}, held_out.queries, held_out.relevant)
    few, more = _seconds(lambda: train(STEPS)), _seconds(lambda: train((1 + _TIMES) * STEPS))
    step = max(0.0, more - few) / (_TIMES * STEPS)  # without what comes before the first step
    rounds = int(part.is_whole)
    dearest = head._replace(mean=head.trained_mean, rounds=rounds, step_size=0.1 * rounds)
    dev = _seconds(lambda: judged.measure(dearest))
    passes = MOST_PASSES * (has_updates and part.is_whole)
    update = _seconds(lambda: updated(graph, graph.passages, graph.queries, [1], UPDATE_SIZES[0])) if passes else 0.0
    folds = FOLDS * is_few(held_out)
    steps = steps_of_heads(head_steps(graph, taught), folds, len(sides))
    labelled = np.unique(store.labels[:, 0])
    settings_tried = MOST_SETTINGS + MOST_WITH_QUESTIONS * held_out.is_split
    tries = settings_tried * dev + passes * (1 + held_out.is_split) * update
    at_once = min(torch.get_num_threads(), HEADS) if graph.device.type == "cpu" else 1
    return {
        "queries": int(plan.learned.taught[labelled].sum()),
        "dev_queries": len(held_out.relevant),
        "steps_per_epoch": -(-len(graph.labels) // BATCH),
        "steps": steps,
        "candidates": min(BATCH, store.num_passages),
        "timed_steps": _TIMES * STEPS,
        "step_seconds": step,
        "dev_seconds": dev,
        "settings": settings_tried,
        "hours": (steps * step / at_once + (1 + folds) * tries) / 3600,
        "memory": {
            "estimate": bytes_of_messages(store.dimension, len(graph.passages) + len(graph.queries)),
            "peak": _peak(graph.device),
        },
    }


def _seconds(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _time_steps(training: GNNTraining, times: list[float]) -> int:
    """Append the seconds of a few steps to ``times``; returns the number of passages that the last step scored."""
    last = [0.0]
    scored = [training.store.num_passages]
    forward = training.model.register_forward_hook(lambda module, given, out: scored.append(len(out)))

    class Enough(Exception):
        pass

    def advance(epochs: float, loss: float) -> None:
        now = time.perf_counter()
        times.append(now - last[0])
        last[0] = now
        if len(times) == STEPS or len(times) % training.steps_per_epoch == 0:  # stop before dev, which is timed apart
            raise Enough

    for epoch in range(STEPS):
        last[0] = time.perf_counter()
        with suppress(Enough):
            training.epoch(epoch, advance)
        if len(times) >= STEPS:
            break
    forward.remove()
    return scored[-1]


def _dev_seconds(training: GNNTraining) -> float:
    """Estimated seconds of a measurement on dev, from a sample of the passages that it embeds."""
    store, pool = training.store, training.pool
    rows = np.arange(store.num_passages) if pool is None else pool
    sample = np.sort(np.random.default_rng(0).permutation(rows)[:_PASSAGES])
    begun = time.perf_counter()
    if training.encoders is not None:
        store, _ = training.encoders.recomputed(training.dev, sample, training.shown)
    for _ in gated_contexts(training.average, store, training.device, training.shown, only=sample):
        pass
    return (time.perf_counter() - begun) * len(rows) / len(sample)


def _estimate(training: GNNTraining) -> int | None:
    if training.encoders is not None:
        return None
    store, settings = training.store, training.settings
    degrees = store.degrees().astype(np.float64)
    shape = TrainingShape(settings.batch_size, settings.hard_negatives, settings.mask_ratio)
    needs = memory_needs(
        store.num_passages,
        store.num_queries,
        store.k,
        store.dimension,
        store.edge_dim,
        queries_per_candidate=float((degrees**2).mean() / max(degrees.mean(), 1e-12)),
        shape=shape,
    )
    return needs.training_corpus if training.whole_corpus else needs.training_batch


def _peak(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def dry_run_lines(figures: dict[str, Any], settings: TrainSettings) -> list[str]:
    """The figures of :func:`rehearse` as lines for the user."""
    memory = figures["memory"]
    if settings.layer == "linear" and not settings.is_joint:
        return [
            f"{counted(figures['queries'], 'training query')}, {counted(figures['dev_queries'], 'dev query')}",
            f"{counted(figures['steps'], 'step')} of heads, {figures['step_seconds']:.3g} s each; at most "
            f"{figures['settings']} settings, each measured on dev in {figures['dev_seconds']:.3g} s: "
            f"{in_time(3600 * figures['hours'])} in all",
            f"peak memory of the process so far {_gib(memory['peak'])}; about {_gib(memory['estimate'])} for the "
            "vectors",
            "a dry run: nothing was made",
        ]
    estimate = "" if memory["estimate"] is None else f"; {_gib(memory['estimate'])} by the formula"
    stops, most = "", "up to " if settings.layer == "linear" else ""
    if settings.patience is not None:
        stops = f"; it may stop early, after {counted(settings.patience, 'epoch')} without a better one"
    return [
        f"{counted(figures['queries'], 'training query')}, {counted(figures['dev_queries'], 'dev query')}",
        f"{counted(settings.epochs, 'epoch')} of {counted(figures['steps_per_epoch'], 'step')}: {figures['steps']:,} "
        f"steps of {counted(settings.batch_size, 'query')}, each against {most}{figures['candidates']:,} passages",
        f"{figures['step_seconds']:.3g} s per step, about {figures['dev_seconds']:.3g} s per measurement on dev: "
        f"{in_time(3600 * figures['hours'])} in all{stops}",
        f"peak memory of the process in {figures['timed_steps']} steps {_gib(memory['peak'])}{estimate}",
        "a dry run: nothing was made",
    ]


def _gib(count: int) -> str:
    return f"{count / 2**30:.2g} GiB"
