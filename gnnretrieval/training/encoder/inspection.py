"""Inspection of trained encoders, cross-encoders, readers and GNN-encoders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gnnretrieval.encoders.trained import CROSS_ENCODER, ENCODER, GNN_ENCODER, READER
from gnnretrieval.errors import ArtifactError
from gnnretrieval.storage.artifacts import Artifact, open_artifact
from gnnretrieval.training.encoder.loop import LOG
from gnnretrieval.training.gnn.selection import what_was_kept


def open_trained(path: str | Path) -> Artifact:
    """Open the artifact of an encoder, a cross-encoder, a reader or a GNN-encoder.

    Raises:
        ArtifactError: The artifact is none of these, or unfinished.
    """
    errors = []
    for kind in (ENCODER, CROSS_ENCODER, READER, GNN_ENCODER):
        try:
            return open_artifact(path, kind)
        except ArtifactError as error:
            errors.append(error)
    raise errors[0] from None


def inspection(artifact: Artifact) -> dict[str, Any]:
    """Kind, start, data, settings and dev measures of a trained model, as JSON values."""
    meta = artifact.meta
    if meta["kind"] == GNN_ENCODER:
        said = ("kind", "encoder", "dimension", "edge_features", "dev", "seed", "made")
        found = {name: meta[name] for name in said if meta.get(name) is not None}
        history = _measurements(artifact.path / LOG)
        return {**found, "train": artifact.config, "dataset": meta["dataset"]["name"], "history": history}
    wanted = ("kind", "encoder", "dimension", "started_from", "examples", "answers", "tokens", "dev", "seed", "made")
    found = {name: meta[name] for name in wanted if meta.get(name) is not None}
    history = _measurements(artifact.path / LOG)
    return {**found, "train": artifact.config["train"], "dataset": meta["dataset"]["name"], "history": history}


def _measurements(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text(encoding="utf-8").splitlines()
    return [record for line in lines if "dev" in (record := json.loads(line))]


def inspection_lines(found: dict[str, Any]) -> list[str]:
    """The values of :func:`inspection` as lines for the user."""
    if found["kind"] == GNN_ENCODER:
        return _lines_of_gnn(found)
    start, train, examples = found["started_from"], found["train"], found["examples"]
    lines = [
        f"{found['kind']} from {start.get('passage') or start['checkpoint']} ({start['source']})",
        f"trained on {found['dataset']}: "
        + ", ".join(
            f"{examples[what]:,} {what}"
            for what in ("passages", "queries", "positives", "negatives")
            if what in examples
        ),
        f"{train['epochs']} epochs, batch size {train['batch_size']}, {train['optimizer']} "
        f"{train['learning_rate']:g}, seed {found['seed']}" + (f", loss {train['loss']}" if "loss" in train else ""),
    ]
    if "encoder" in found and "shared" in train:
        its = found["encoder"]
        weights = "shared weights" if train["shared"] else "separate weights for queries and passages"
        reads = "" if its["sentences"] == "none" else f", one vector per sentence ({its['sentences']})"
        width = f"{found['dimension']:,} terms" if its.get("sparse") else f"{found['dimension']} dimensions"
        lines.append(
            f"{width}, {its['similarity']} × {its['scale']:g}, {weights}, at most {its['max_tokens']} tokens{reads}"
        )
    for side, counts in found.get("tokens", {}).items():
        if counts["cut"]:
            lines.append(
                f"{counts['cut']:,} of {counts['texts']:,} {side} texts were cut to {counts['max_tokens']} tokens"
            )
    if "answers" in found:
        skipped, chosen = found["answers"]["positives_skipped"], found["answers"]["positives_by_overlap"]
        lines.append(
            f"positives without an answer in a sentence: {skipped:,} left out, {chosen:,} chosen by word overlap"
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


def _lines_of_gnn(found: dict[str, Any]) -> list[str]:
    train, dev = found["train"], found["dev"]
    names = list(found["history"][0]["dev"])
    learns = "learns with it" if train["mode"] == "joint" else "is frozen"
    lines = [
        f"gnn-encoder over {found['encoder']['checkpoint']}, which {learns}; {found['dimension']} dimensions",
        f"trained on {found['dataset']}, edge features: {', '.join(found['edge_features']) or 'none'}",
    ]
    on = f"dev: {dev['queries']:,} questions of {dev['split']} among {dev['passages']:,} passages"
    if "kept" in dev:
        few = dev["cross_validated"]
        beside = f", and {few:,} cross-validated training questions" if few else ""
        lines += [f"layer linear, seed {found['seed']}", on + beside, "dev:  gain   " + "   ".join(names)]
        for record in found["history"]:
            values = "   ".join(f"{100 * record['dev'][name]:{len(name)}.1f}" for name in names)
            mark = "*" if record["kept"] else " "
            lines.append(f"{mark} {100 * record['gain']:>+8.1f}   {values}   {record['rung']}")
    else:
        lines += [
            f"at most {train['epochs']} epochs, {train['batch_size']} queries per step, β {train['mask_ratio']:g} by "
            f"{train['mask_unit']}, learning rate {train['learning_rate']:g}, seed {found['seed']}",
            on,
            "dev:  epoch   " + "   ".join(names),
        ]
        for record in found["history"]:
            values = "   ".join(f"{100 * record['dev'][name]:{len(name)}.1f}" for name in names)
            mark = "*" if record["epoch"] == dev["best"]["epoch"] else " "
            lines.append(f"{mark} {record['epoch']:>9}   {values}")
    gain = f"gain {100 * dev['best']['gain']:+.1f} (p = {dev['best']['p']:.2g})"
    if dev["best"]["gain"] > 0 and not dev["believed"]:
        lines.append(f"{gain}: not significant; the embeddings are the dual-encoder's")
    else:
        lines.append(f"{gain}; kept: {what_was_kept(dev)}")
    return lines
