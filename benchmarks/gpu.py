"""What a GPU changes: the same work on the CPU and on a GPU of one machine, and by its peers there.

    .venv/bin/python benchmarks/gpu.py --data DIRECTORY --work WORK

DIRECTORY holds squad-open and fairytaleqa in the BEIR layout. Encoding is done several times in turn with
sentence-transformers on the same GPU. Training is done once on each device, by its defaults; no test question is
ranked. Writes results/gpu.json and .md.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from encoding import CHECKPOINT, MAX_TOKENS, cosines, in_rounds, texts_of
from same_labels import device_in_words

from gnnretrieval.data import Dataset
from gnnretrieval.encoders import DualEncoder, EncoderSettings, find_checkpoint
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import show_progress
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json
from gnnretrieval.training import TrainSettings, train_gnn
from gnnretrieval.training.gnn.dry_run import rehearse
from gnnretrieval.training.gnn.selection import what_was_kept

RESULTS = Path(__file__).resolve().parent / "results"


def finished(device: str) -> None:
    """Wait for the GPU: its work is asynchronous."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def seconds(work: Callable[[], Any], device: str) -> float:
    """Seconds that one call takes on the device."""
    finished(device)
    begun = time.perf_counter()
    work()
    finished(device)
    return time.perf_counter() - begun


def measure_encoding(texts: list[str], on_cpu: int, device: str, repeats: int) -> dict[str, Any]:
    """Passages a second on the GPU, by this package and by sentence-transformers, and on the CPU."""
    from sentence_transformers import SentenceTransformer

    settings = {"checkpoint": CHECKPOINT, "max_tokens": MAX_TOKENS}
    ours = {
        name: DualEncoder(EncoderSettings.parse({**settings, "precision": name}), device)
        for name in ("bfloat16", "float32")
    }
    theirs = {
        name: SentenceTransformer(
            str(find_checkpoint(CHECKPOINT).directory), device=device, model_kwargs={"dtype": getattr(torch, name)}
        )
        for name in ours
    }
    for model in theirs.values():
        model.max_seq_length = MAX_TOKENS
    systems: dict[str, Callable[[], Any]] = {}
    for name in ours:
        systems[f"gnnretrieval, {name}"] = partial(ours[name].encode, texts, "passage")
        systems[f"sentence-transformers, {name}"] = partial(
            theirs[name].encode, texts, batch_size=256, show_progress_bar=False
        )
    taken, vectors = in_rounds(systems, repeats)
    few = texts[:on_cpu]
    cpu = DualEncoder(EncoderSettings.parse({**settings, "precision": "auto"}))
    exact = DualEncoder(EncoderSettings.parse({**settings, "precision": "float32"})).encode(few, "passage")
    rate = len(few) / seconds(lambda: cpu.encode(few, "passage"), "cpu")
    rows = []
    for name, values in taken.items():
        peer = taken[f"sentence-transformers, {name.partition(', ')[2]}"]
        per_second = len(texts) / statistics.median(values)
        rows.append(
            {
                "system": name,
                "per_second": per_second,
                "over_cpu": per_second / rate,
                "over_peer": statistics.median(theirs / own for theirs, own in zip(peer, values, strict=True)),
                "cosine": cosines(vectors[name][:on_cpu].astype(np.float32), exact.astype(np.float32)),
            }
        )
    return {"texts": len(texts), "cpu_texts": len(few), "cpu_per_second": rate, "rows": rows, "repeats": repeats}


def measure_training(dataset: Dataset, work: Path, device: str, layer: str) -> dict[str, Any]:
    """Seconds of ``train`` by its defaults on the GPU; on the CPU those of ``linear``, and a forecast of the others."""
    name = dataset.path.name
    encoder = EncoderSettings(checkpoint=CHECKPOINT, precision="float32")
    features = encode_dataset(dataset, encoder, work / f"features-{name}", device=device, overwrite=True)
    graph = build_graph(dataset, features, GraphSettings(), work / f"graph-{name}", device=device, overwrite=True)
    settings = TrainSettings.parse({"layer": layer})
    row: dict[str, Any] = {"set": name, "what": f"train --layer {layer}"}
    for where, on in (("gpu", device), ("cpu", "cpu")):
        if where == "cpu" and layer != "linear":
            row["forecast"] = 3600 * rehearse(graph, dataset, features, settings)["hours"]
            continue
        begun = time.perf_counter()
        place = work / f"{name}-{layer}-{where}"
        dev = train_gnn(graph, dataset, features, settings, place, device=on, overwrite=True).meta["dev"]
        row[where] = time.perf_counter() - begun
        row |= {f"kept_{where}": what_was_kept(dev), f"dev_{where}": dev["chosen"]["RR@10"]}
    return row


def markdown(results: dict[str, Any]) -> str:
    """The page."""
    encoding = results["encoding"]
    lines = [
        "# On a GPU",
        "",
        f"{results['gpu']}, and {results['cpus']} processors of its machine. `python benchmarks/gpu.py` makes this",
        "page.",
        "",
        "## Encoding passages",
        "",
        f"all-MiniLM-L6-v2, {encoding['texts']:,} passages of SQuAD, at most {MAX_TOKENS} tokens; medians of",
        f"{encoding['repeats']} rounds in turn. The CPU encodes {encoding['cpu_per_second']:,.0f} passages/s by",
        "default. Cosine: the smallest to the CPU's vectors in float32. Batches have 4,096 tokens, the default of",
        "`--token-budget`, and 256 passages with sentence-transformers.",
        "",
        "| system | passages/s | times the CPU | times sentence-transformers | cosine |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in encoding["rows"]:
        lines.append(
            f"| {row['system']} | {row['per_second']:,.0f} | {row['over_cpu']:.1f} | {row['over_peer']:.2f} "
            f"| {row['cosine']['min']:.5f} |"
        )
    lines += [
        "",
        "## Training",
        "",
        "By defaults, over MiniLM, alone on the machine. † is the CPU's forecast (`train --dry-run`), without early",
        "stopping.",
        "",
        "| set | command | GPU, s | CPU, s | kept on the GPU | dev | kept on the CPU | dev |",
        "|---|---|---:|---:|---|---:|---|---:|",
    ]
    for row in results["training"]:
        on_cpu = f"{row['cpu']:.0f}" if "cpu" in row else f"{row['forecast']:.0f} †"
        kept = [row.get(f"kept_{where}", "–") for where in ("gpu", "cpu")]
        dev = [f"{100 * row[f'dev_{where}']:.1f}" if f"dev_{where}" in row else "–" for where in ("gpu", "cpu")]
        figures = f"{row['gpu']:.0f} | {on_cpu} | {kept[0]} | {dev[0]} | {kept[1]} | {dev[1]}"
        lines.append(f"| {row['set']} | `{row['what']}` | {figures} |")
    return "\n".join([*lines, "", f"Revision {results['git_revision']}."]) + "\n"


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True, help="Folder of the two sets.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Where trainings are kept.")
@click.option("--device", default="cuda", show_default=True, help="The GPU.")
@click.option("--repeats", default=5, show_default=True, help="Rounds of encoding.")
def main(data: Path, work: Path, device: str, repeats: int) -> None:
    """Measure, and write the page."""
    keep_freed_memory()
    texts = texts_of(data / "squad-open" / "corpus.jsonl", 4000)
    results: dict[str, Any] = {
        "encoding": measure_encoding(texts, 1000, device, repeats),
        "training": [
            measure_training(Dataset.open(data / name), work, device, layer)
            for name, layer in (("squad-open", "linear"), ("fairytaleqa", "gat"))
        ],
        "gpu": device_in_words(device),
        "cpus": os.cpu_count(),
        "versions": library_versions(),
        "git_revision": git_revision(),
    }
    write_json(RESULTS / "gpu.json", results)
    (RESULTS / "gpu.md").write_text(markdown(results), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
