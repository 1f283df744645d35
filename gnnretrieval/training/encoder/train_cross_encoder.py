"""Training of a cross-encoder into an artifact, with probabilities calibrated on dev."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.trained import CROSS_ENCODER, MODEL
from gnnretrieval.errors import counted
from gnnretrieval.mining.examples import Examples
from gnnretrieval.platform.devices import as_device
from gnnretrieval.progress import say
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.training.encoder.artifact import train_into
from gnnretrieval.training.encoder.calibration import (
    IDENTITY,
    apply_calibration,
    area_under_curve,
    expected_calibration_error,
    fit_calibration,
)
from gnnretrieval.training.encoder.cross_task import PAIR, CrossEncoderTask, PairTower
from gnnretrieval.training.encoder.loop import EncoderLoop
from gnnretrieval.training.encoder.pair_data import Texts
from gnnretrieval.training.encoder.settings import CrossEncoderTrainSettings
from gnnretrieval.training.ranks import ALONE, Ranks


def train_cross_encoder(
    dataset: Dataset,
    examples: Examples,
    dev: Examples,
    checkpoint: str,
    settings: CrossEncoderTrainSettings,
    out: str | Path,
    *,
    device: str = "cpu",
    ranks: Ranks = ALONE,
    overwrite: bool = False,
) -> Artifact:
    """Train a cross-encoder (RocketQA, step 2). After an interruption, the same call continues.

    Args:
        dataset: The dataset with the texts.
        examples: Examples of training queries: positives, and negatives from the retriever's top-k.
        dev: The same for dev queries, to choose the epoch and to calibrate the probability.
        checkpoint: Checkpoint of an encoder or a cross-encoder.
        settings: Settings of training.
        out: Directory of the artifact.
        device: Where to compute.
        ranks: The processes that train together.
        overwrite: Replace a cross-encoder made from other inputs.

    Returns:
        The trained cross-encoder; on all but the first process an artifact without metadata.

    Raises:
        GnnRetrievalError: Training or dev examples lack positives or negatives, or the checkpoint cannot be trained.
    """
    start = find_checkpoint(checkpoint)

    def train(directory: Path) -> dict[str, Any]:
        tower = PairTower(start, as_device(device), settings.max_tokens, settings.dropout)
        if settings.calibrate:
            apply_calibration(tower.module, IDENTITY)  # fails before training if the head cannot be calibrated
        train_part, dev_part = list(examples.examples()), list(dev.examples())
        both = [*train_part, *dev_part]
        texts = Texts.of(
            dataset,
            (example.query for example in both),
            (c.passage for e in both for c in (*e.positives, *e.negatives)),
        )
        held_out = {example.query for example in dev_part}
        task = CrossEncoderTask([e for e in train_part if e.query not in held_out], dev_part, texts, tower, settings)
        say(f"training on {counted(len(task.examples), 'query')}, {counted(task.steps_per_epoch, 'step')} per epoch")
        best = EncoderLoop({PAIR: tower}, task, settings, directory, as_device(device), ranks).run()
        if not ranks.first:
            return {}
        calibration = _calibrate(task, tower) if settings.calibrate else None
        say(
            f"kept epoch {best['epoch']}: dev RR@10 among its candidates {100 * best['dev']['RR@10']:.1f}"
            + (f", area under the ROC curve {calibration['auc']:.3f}" if calibration else "")
        )
        tower.save(directory / MODEL)
        return {
            "max_tokens": settings.max_tokens,
            "started_from": {"checkpoint": start.name, "source": start.source},
            "examples": {"queries": len(task.examples), "dev_queries": len(task.dev)},
            "dev": {"best": best, "calibration": calibration},
        }

    return train_into(
        out,
        CROSS_ENCODER,
        train,
        settings,
        dataset,
        inputs={"dataset": dataset.hash, "checkpoint": start.hash, "examples": examples.hash, "dev": dev.hash},
        made_from={"examples": examples.path, "dev": dev.path},
        device=device,
        ranks=ranks,
        overwrite=overwrite,
    )


def _calibrate(task: CrossEncoderTask, tower: PairTower) -> dict[str, Any]:
    """Calibrate the weights on the dev pairs; returns the calibration and the errors before and after."""
    tower.module.eval()
    logits, labels = task.dev_logits()
    fitted = fit_calibration(logits, labels)
    apply_calibration(tower.module, fitted)
    before, after = (
        expected_calibration_error(1 / (1 + np.exp(-scores)), labels)
        for scores in (logits, fitted.slope * logits + fitted.intercept)
    )
    return {
        "pairs": len(labels),
        "auc": area_under_curve(logits, labels),
        "slope": fitted.slope,
        "intercept": fitted.intercept,
        "expected_calibration_error": {"before": before, "after": after},
    }
