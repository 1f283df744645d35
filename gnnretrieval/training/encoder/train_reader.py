"""Training of a reader into an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.trained import MODEL, READER
from gnnretrieval.mining.examples import Examples
from gnnretrieval.progress import say
from gnnretrieval.storage.artifacts import Artifact, relative_to
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.training.encoder.loop import EncoderLoop, with_precision
from gnnretrieval.training.encoder.reader_task import READING, ReaderTask, ReaderTower, reader_texts
from gnnretrieval.training.encoder.settings import ReaderTrainSettings
from gnnretrieval.training.ranks import ALONE, Ranks


def train_reader(
    dataset: Dataset,
    examples: Examples,
    dev: Examples,
    checkpoint: str,
    settings: ReaderTrainSettings,
    out: str | Path,
    *,
    device: str = "cpu",
    ranks: Ranks = ALONE,
    overwrite: bool = False,
) -> Artifact:
    """Train a reader (Karpukhin et al. 2020, section 6.1). After an interruption, the same call continues.

    Args:
        dataset: The dataset with the texts, and the answers (``metadata.answers`` in ``queries.jsonl``).
        examples: Examples of training queries: positives, and negatives from the retriever's top-k.
        dev: The same for dev queries, to choose the epoch by exact match.
        checkpoint: Checkpoint of an encoder or a reader.
        settings: Settings of training.
        out: Directory of the artifact.
        device: Where to compute.
        ranks: The processes that train together.
        overwrite: Replace a reader made from other inputs.

    Returns:
        The trained reader; on all but the first process an artifact without metadata.

    Raises:
        GnnRetrievalError: No training query has its answer in a relevant passage, no dev query has an answer, or the
            checkpoint cannot be trained.
    """
    start = find_checkpoint(checkpoint)

    def write(directory: Path) -> dict[str, Any]:
        ranks.begin()
        torch.manual_seed(settings.seed)
        tower = ReaderTower(start, torch.device(device), settings.max_tokens, settings.dropout)
        train_part, dev_part = list(examples.examples()), list(dev.examples())
        texts = reader_texts(dataset, [*train_part, *dev_part])
        held_out = {example.query for example in dev_part}
        task = ReaderTask([e for e in train_part if e.query not in held_out], dev_part, texts, tower, settings)
        left_out = f" ({task.without_answer:,} have no answer in a relevant passage)" if task.without_answer else ""
        say(f"training on {len(task.examples):,} queries{left_out}, {task.steps_per_epoch:,} steps per epoch")
        best = EncoderLoop({READING: tower}, task, settings, directory, torch.device(device), ranks).run()
        if not ranks.first:
            return {}
        measures = ", ".join(f"{name} {100 * value:.1f}" for name, value in best["dev"].items())
        say(f"kept epoch {best['epoch']}: dev {measures}")
        tower.save(directory / MODEL)
        return {
            "max_tokens": settings.max_tokens,
            "started_from": {"checkpoint": start.name, "source": start.source},
            "examples": {
                "queries": len(task.examples),
                "without_answer": task.without_answer,
                "dev_queries": len(task.dev),
            },
            "dev": {"best": best},
            "dataset": dataset.provenance(),
            "made_from": {
                "dataset": relative_to(out, dataset.path),
                "examples": relative_to(out, examples.path),
                "dev": relative_to(out, dev.path),
            },
        }

    if not ranks.first:
        write(Path(out))
        return Artifact(Path(out), {})
    return make_artifact(
        out,
        READER,
        inputs={"dataset": dataset.hash, "checkpoint": start.hash, "examples": examples.hash, "dev": dev.hash},
        config={"train": with_precision(settings, device), "ranks": ranks.count},
        write=write,
        seed=settings.seed,
        overwrite=overwrite,
    )
