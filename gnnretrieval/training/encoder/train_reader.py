"""Training of a reader into an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.trained import MODEL, READER
from gnnretrieval.mining.examples import Examples
from gnnretrieval.platform.devices import as_device
from gnnretrieval.progress import say
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.training.encoder.artifact import train_into
from gnnretrieval.training.encoder.loop import EncoderLoop
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

    def train(directory: Path) -> dict[str, Any]:
        tower = ReaderTower(start, as_device(device), settings.max_tokens, settings.dropout)
        train_part, dev_part = list(examples.examples()), list(dev.examples())
        texts = reader_texts(dataset, [*train_part, *dev_part])
        held_out = {example.query for example in dev_part}
        task = ReaderTask([e for e in train_part if e.query not in held_out], dev_part, texts, tower, settings)
        left_out = f" ({task.without_answer:,} have no answer in a relevant passage)" if task.without_answer else ""
        say(f"training on {len(task.examples):,} queries{left_out}, {task.steps_per_epoch:,} steps per epoch")
        best = EncoderLoop({READING: tower}, task, settings, directory, as_device(device), ranks).run()
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
        }

    return train_into(
        out,
        READER,
        train,
        settings,
        dataset,
        inputs={"dataset": dataset.hash, "checkpoint": start.hash, "examples": examples.hash, "dev": dev.hash},
        made_from={"examples": examples.path, "dev": dev.path},
        device=device,
        ranks=ranks,
        overwrite=overwrite,
    )
