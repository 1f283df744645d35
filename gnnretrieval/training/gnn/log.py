"""The log of a GNN-encoder's training: JSON lines as in encoder training, and a note for the progress bar."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnnretrieval.progress import sparkline


def write_log(path: Path, history: Sequence[dict[str, Any]]) -> None:
    """Write one line per step (``loss``, ``learning_rate``, ``gradient_norm``) and per measurement (``dev``).

    Args:
        path: The file.
        history: Records of the epochs of :class:`gnnretrieval.training.gnn.loop.GNNTraining`.
    """
    lines = []
    for record in history:
        lines += record["steps"]
        scales = {f"λ = {scale}": value for scale, value in record["dev_by_scale"].items()}
        dev = {"RR@10": record["dev"], "dual-encoder": record["dual_encoder"], **scales}
        about = {name: record[name] for name in ("step", "epoch", "context_scale", "gain", "p")}
        lines.append({**about, "dev": dev})
    path.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), encoding="utf-8")


def dev_note(history: Sequence[dict[str, Any]]) -> str:
    """The last measurement, and a curve of all."""
    values = [100 * record["dev"] for record in history]
    return f"epoch {history[-1]['epoch']}, dev RR@10 {values[-1]:.1f} {sparkline(values)}"
