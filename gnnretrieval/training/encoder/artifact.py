"""Training into an artifact, by one process or by several that train together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.storage.artifacts import Artifact, relative_to
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.training.encoder.loop import with_precision
from gnnretrieval.training.encoder.settings import LoopSettings
from gnnretrieval.training.ranks import Ranks


def train_into(
    out: str | Path,
    kind: str,
    train: Callable[[Path], dict[str, Any]],
    settings: LoopSettings,
    dataset: Dataset,
    *,
    inputs: Mapping[str, str],
    made_from: Mapping[str, Path],
    config: Mapping[str, Any] | None = None,
    since: Mapping[str, Any] | None = None,
    device: str,
    ranks: Ranks,
    overwrite: bool,
) -> Artifact:
    """Call ``train`` in every process; the first one makes the artifact ``out`` of what it writes.

    Args:
        out: Directory of the artifact.
        kind: Its kind.
        train: Trains into a directory. On the first process it writes the model and returns its metadata.
        settings: Settings of training.
        dataset: The dataset with the texts.
        inputs: Hash of each input.
        made_from: Path of each input besides the dataset that the artifact should name.
        config: What the model depends on besides ``settings``.
        since: Settings that are in the configuration only if they differ from these values, so that artifacts from
            before there were such settings stay valid.
        device: Where to compute.
        ranks: The processes that train together.
        overwrite: Replace an artifact made from other inputs.

    Returns:
        The artifact; on all but the first process one without metadata.
    """
    sources = {"dataset": dataset.path, **made_from}

    def write(directory: Path) -> dict[str, Any]:
        ranks.begin()
        torch.manual_seed(settings.seed)
        return {
            **train(directory),
            "dataset": dataset.provenance(),
            "made_from": {name: relative_to(out, path) for name, path in sources.items()},
        }

    if not ranks.first:
        write(Path(out))
        return Artifact(Path(out), {})
    chosen = {
        name: value
        for name, value in with_precision(settings, device).items()
        if since is None or name not in since or value != since[name]
    }
    return make_artifact(
        out,
        kind,
        inputs=inputs,
        config={**(config or {}), "train": chosen, "ranks": ranks.count},
        write=write,
        seed=settings.seed,
        overwrite=overwrite,
    )
