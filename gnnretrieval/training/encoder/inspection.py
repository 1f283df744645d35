"""Inspection of trained encoders, cross-encoders, readers and GNN-encoders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gnnretrieval.encoders.trained import CROSS_ENCODER, ENCODER, GNN_ENCODER, READER
from gnnretrieval.errors import ArtifactError, counted
from gnnretrieval.storage.artifacts import Artifact, open_artifact
from gnnretrieval.training.encoder.loop import LOG
from gnnretrieval.training.gnn.selection import what_was_kept

# entries of the metadata that are shown
_OF_GNN = ("kind", "encoder", "dimension", "edge_features", "dev", "seed", "made")
_OF_ENCODER = ("kind", "encoder", "dimension", "started_from", "examples", "answers", "tokens", "dev", "seed", "made")


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
    is_gnn = meta["kind"] == GNN_ENCODER
    lines = (artifact.path / LOG).read_text(encoding="utf-8").splitlines()
    return {
        **{name: meta[name] for name in (_OF_GNN if is_gnn else _OF_ENCODER) if meta.get(name) is not None},
        "train": artifact.config if is_gnn else artifact.config["train"],
        "dataset": meta["dataset"]["name"],
        "history": [record for line in lines if "dev" in (record := json.loads(line))],
    }


def inspection_lines(report: dict[str, Any]) -> list[str]:
    """The values of :func:`inspection` as lines for the user."""
    if report["kind"] == GNN_ENCODER:
        return _lines_of_gnn(report)
    start, train, examples = report["started_from"], report["train"], report["examples"]
    lines = [
        f"{report['kind']} from {start.get('passage') or start['checkpoint']} ({start['source']})",
        f"trained on {report['dataset']}: "
        + ", ".join(
            f"{examples[what]:,} {what}"
            for what in ("passages", "queries", "positives", "negatives")
            if what in examples
        ),
        f"{counted(train['epochs'], 'epoch')}, batch size {train['batch_size']}, {train['optimizer']} "
        f"{train['learning_rate']:g}, seed {report['seed']}" + (f", loss {train['loss']}" if "loss" in train else ""),
    ]
    if "encoder" in report and "shared" in train:
        settings = report["encoder"]
        weights = "shared weights" if train["shared"] else "separate weights for queries and passages"
        reads = "" if settings["sentences"] == "none" else f", one vector per sentence ({settings['sentences']})"
        width = f"{report['dimension']:,} terms" if settings.get("sparse") else f"{report['dimension']} dimensions"
        lines.append(
            f"{width}, {settings['similarity']} × {settings['scale']:g}, {weights}, at most {settings['max_tokens']} "
            f"tokens{reads}"
        )
    for side, counts in report.get("tokens", {}).items():
        if counts["cut"]:
            lines.append(
                f"{counts['cut']:,} of {counts['texts']:,} {side} texts were cut to {counts['max_tokens']} tokens"
            )
    if "answers" in report:
        skipped, chosen = report["answers"]["positives_skipped"], report["answers"]["positives_by_overlap"]
        lines.append(
            f"positives without an answer in a sentence: {skipped:,} left out, {chosen:,} chosen by word overlap"
        )
    best = report["dev"]["best"]["step"]
    lines.append("dev:  step   " + "   ".join(report["history"][0]["dev"]))
    for record in report["history"]:
        values = "   ".join(f"{100 * value:{len(name)}.1f}" for name, value in record["dev"].items())
        lines.append(f"{'*' if record['step'] == best else ' '} {record['step']:>8}   {values}")
    if calibration := report["dev"].get("calibration"):
        error = calibration["expected_calibration_error"]
        lines.append(
            f"area under the ROC curve {calibration['auc']:.3f} over {calibration['pairs']:,} dev pairs; calibration "
            f"error {error['before']:.3f}, after calibration {error['after']:.3f}"
        )
    return lines


def _lines_of_gnn(report: dict[str, Any]) -> list[str]:
    train, dev = report["train"], report["dev"]
    names = list(report["history"][0]["dev"])
    learns = "learns with it" if train["mode"] == "joint" else "is frozen"
    lines = [
        f"gnn-encoder over {report['encoder']['checkpoint']}, which {learns}; {report['dimension']} dimensions",
        f"trained on {report['dataset']}, edge features: {', '.join(report['edge_features']) or 'none'}",
    ]
    on = f"dev: {counted(dev['queries'], 'question')} of {dev['split']} among {dev['passages']:,} passages"
    few = dev.get("cross_validated", 0)
    beside = f", and {counted(few, 'cross-validated training question')}" if few else ""
    if "joint" in dev:  # layer = linear: the log is that of the query encoder's training
        return [*lines, f"layer linear, seed {report['seed']}", on + beside, *_lines_of_joint(report)]
    if "kept" in dev:
        lines += [f"layer linear, seed {report['seed']}", on + beside, "dev:  gain   " + "   ".join(names)]
        for record in report["history"]:
            values = "   ".join(f"{100 * record['dev'][name]:{len(name)}.1f}" for name in names)
            mark = "*" if record["kept"] else " "
            lines.append(f"{mark} {100 * record['gain']:>+8.1f}   {values}   {record['rung']}")
    else:
        lines += [
            f"at most {counted(train['epochs'], 'epoch')}, {train['batch_size']} queries per step, "
            f"β {train['mask_ratio']:g} by {train['mask_unit']}, learning rate {train['learning_rate']:g}, "
            f"seed {report['seed']}",
            on,
        ]
        lines += _lines_by_epoch(report["history"], dev["best"]["epoch"])
    gain = f"gain {100 * dev['best']['gain']:+.1f} (p = {dev['best']['p']:.2g})"
    if dev["best"]["gain"] > 0 and not dev["believed"]:
        lines.append(f"{gain}: may be chance; the embeddings are the dual-encoder's")
    else:
        lines.append(f"{gain}; kept: {what_was_kept(dev)}")
    return lines


def _lines_of_joint(report: dict[str, Any]) -> list[str]:
    """The query encoder's training, and what it gained over the frozen encoder."""
    train, dev = report["train"], report["dev"]
    frozen, joint = dev["best"], dev["joint"]
    error = "on one question" if joint["error"] is None else f"± {100 * joint['error']:.1f}"
    few = joint.get("beside", 0)
    beside = f"; {few:,} training questions are measured too" if few else ""
    return [
        f"at most {counted(train['epochs'], 'epoch')} of the query encoder, {train['batch_size']} queries per step, "
        f"learning rate {train['learning_rate']:g}{beside}",
        *_lines_by_epoch(report["history"], joint["epoch"]),
        f"gain of the frozen encoder {100 * frozen['gain']:+.1f} (p = {frozen['p']:.2g})",
        f"gain of the query encoder over that {100 * joint['gain']:+.1f} {error} "
        f"(p over the dual-encoder = {joint['p']:.2g}): {'kept' if joint['kept'] else 'left out'}",
        f"kept: {what_was_kept(dev)}" if dev["believed"] else "the embeddings are the dual-encoder's",
    ]


def _lines_by_epoch(history: list[dict[str, Any]], best: int) -> list[str]:
    """A table of the measurements on dev, with a mark at the best epoch."""
    names = list(history[0]["dev"])
    lines = ["dev:  epoch   " + "   ".join(names)]
    for record in history:
        values = "   ".join(f"{100 * record['dev'][name]:{len(name)}.1f}" for name in names)
        lines.append(f"{'*' if record['epoch'] == best else ' '} {record['epoch']:>9}   {values}")
    return lines
