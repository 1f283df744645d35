"""What a trained encoder says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gnnretrieval.artifacts import Artifact, open_artifact
from gnnretrieval.encoders.trained import CROSS_ENCODER, ENCODER
from gnnretrieval.errors import ArtifactError
from gnnretrieval.training.encoder_loop import LOG


def open_trained(path: str | Path) -> Artifact:
    """Open the artifact of an encoder or of a cross-encoder.

    Raises:
        ArtifactError: it is neither, or half made.
    """
    try:
        return open_artifact(path, ENCODER)
    except ArtifactError as error:
        try:
            return open_artifact(path, CROSS_ENCODER)
        except ArtifactError:
            raise error from None


def inspection(artifact: Artifact) -> dict[str, Any]:
    """Its kind, start, data, settings and dev measures, as JSON values."""
    meta = artifact.meta
    wanted = ("kind", "encoder", "dimension", "started_from", "examples", "answers", "tokens", "dev", "seed", "made")
    found = {name: meta[name] for name in wanted if meta.get(name) is not None}
    log = (artifact.path / LOG).read_text(encoding="utf-8").splitlines()
    history = [record for line in log if "dev" in (record := json.loads(line))]
    return {**found, "train": artifact.config["train"], "dataset": meta["dataset"]["name"], "history": history}


def inspection_lines(found: dict[str, Any]) -> list[str]:
    """The same as text."""
    start, train, examples = found["started_from"], found["train"], found["examples"]
    lines = [
        f"{found['kind']} from {start.get('passage') or start['checkpoint']} ({start['source']})",
        f"trained on {examples['queries']:,} queries of {found['dataset']}"
        + (
            f", {examples['positives']:,} positives, {examples['negatives']:,} negatives"
            if "positives" in examples
            else ""
        ),
        f"{train['epochs']} epochs of {train['batch_size']} a step, {train['optimizer']} {train['learning_rate']:g}, "
        f"seed {found['seed']}" + (f", loss {train['loss']}" if "loss" in train else ""),
    ]
    if "encoder" in found:
        its = found["encoder"]
        weights = "one set of weights" if train["shared"] else "weights for each side"
        reads = "" if its["sentences"] == "none" else f", a vector a sentence ({its['sentences']})"
        lines.append(
            f"{found['dimension']} dimensions, {its['similarity']} × {its['scale']:g}, {weights}, "
            f"at most {its['max_tokens']} tokens{reads}"
        )
    for side, counts in found.get("tokens", {}).items():
        if counts["cut"]:
            lines.append(
                f"{counts['cut']:,} of {counts['texts']:,} {side} texts were cut to {counts['max_tokens']} tokens"
            )
    if "answers" in found:
        skipped, chosen = found["answers"]["positives_skipped"], found["answers"]["positives_by_overlap"]
        lines.append(
            f"positives without an answer in a sentence: {skipped:,} left out, {chosen:,} chosen by their words"
        )
    best = found["dev"]["best"]["step"]
    lines.append("dev:  step   " + "   ".join(found["history"][0]["dev"]))
    for record in found["history"]:
        values = "   ".join(f"{100 * value:{len(name)}.1f}" for name, value in record["dev"].items())
        lines.append(f"{'*' if record['step'] == best else ' '} {record['step']:>8}   {values}")
    if calibration := found["dev"].get("calibration"):
        error = calibration["expected_calibration_error"]
        lines.append(
            f"area under the ROC curve {calibration['auc']:.3f} over {calibration['pairs']:,} dev pairs; calibration "
            f"error {error['before']:.3f}, after calibration {error['after']:.3f}"
        )
    return lines
