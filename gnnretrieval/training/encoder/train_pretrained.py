"""Pre-training of an encoder on a dataset's passages, into an artifact that training can start from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.learned_from import write_learned_from
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.trained import ENCODER, PASSAGE
from gnnretrieval.errors import GnnRetrievalError, counted
from gnnretrieval.platform.devices import as_device
from gnnretrieval.progress import say
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.training.encoder.artifact import train_into
from gnnretrieval.training.encoder.dual_towers import Start
from gnnretrieval.training.encoder.loop import EncoderLoop
from gnnretrieval.training.encoder.pretrain_task import TEXT, PretrainTask, PretrainTower
from gnnretrieval.training.encoder.settings import PretrainSettings
from gnnretrieval.training.ranks import ALONE, Ranks


def pretrain(
    dataset: Dataset,
    encoder: EncoderSettings,
    settings: PretrainSettings,
    out: str | Path,
    *,
    device: str = "cpu",
    ranks: Ranks = ALONE,
    overwrite: bool = False,
) -> Artifact:
    """Pre-train an encoder on passages alone. After an interruption, the same call continues.

    Args:
        dataset: The passages.
        encoder: The encoder to start from.
        settings: Settings of training.
        out: Directory of the artifact.
        device: Where to compute.
        ranks: The processes that train together.
        overwrite: Replace an encoder made from other inputs.

    Returns:
        The encoder, with a head for masked language modelling; on all but the first process without metadata.

    Raises:
        GnnRetrievalError: There are fewer than two passages, or the checkpoint cannot be trained.
    """
    start = Start.of(encoder)

    def train(directory: Path) -> dict[str, Any]:
        tower = PretrainTower(start.passage, as_device(device), settings)
        texts = [passage.full_text for passage in dataset.passages()]
        if len(texts) < 2:
            raise GnnRetrievalError(f"{dataset.path}: pre-training needs at least two passages.")
        order = np.random.default_rng([settings.seed, 0, 3]).permutation(len(texts)).tolist()
        held_out = min(settings.dev_queries, len(texts) // 10 or 1)
        dev, rest = ([texts[row] for row in part] for part in (order[:held_out], order[held_out:]))
        task = PretrainTask(rest, dev, tower, settings)
        say(f"training on {counted(len(rest), 'passage')}, {counted(task.steps_per_epoch, 'step')} per epoch")
        best = EncoderLoop({TEXT: tower}, task, settings, directory, as_device(device), ranks).run()
        if not ranks.first:
            return {}
        say(f"kept epoch {best['epoch']}: {100 * best['dev']['predicted']:.1f} % of masked tokens are predicted")
        write_learned_from(directory, start.learned_from)
        tower.save(directory / PASSAGE)
        trained = start.settings.model_copy(update={"checkpoint": PASSAGE, "query_checkpoint": None})
        return {
            "encoder": trained.model_dump(mode="json"),
            "dimension": tower.model.config.hidden_size,
            "started_from": {"passage": start.passage.name, "query": start.query.name, "source": start.passage.source},
            "examples": {"passages": len(rest)},
            "dev": {"passages": len(dev), "best": best},
        }

    return train_into(
        out,
        ENCODER,
        train,
        settings,
        dataset,
        inputs={"dataset": dataset.texts_hash, "passage encoder": start.passage.hash},
        made_from={},
        config={"encoder": start.config()},
        device=device,
        ranks=ranks,
        overwrite=overwrite,
    )
