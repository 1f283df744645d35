"""What a GPU changes: the same work on the CPU and on a GPU of one machine, and by its peers there.

    .venv/bin/python benchmarks/gpu.py --data DIRECTORY --work WORK

DIRECTORY holds squad-open and fairytaleqa in the BEIR layout. Encoding and search are done several times in turn with
sentence-transformers and with plain torch on the same GPU. Training is done once on each device, by its defaults, and
must choose the same on dev; no test question is ranked. Writes results/gpu.json and .md.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from encoding import CHECKPOINT, MAX_TOKENS, cosines, in_rounds, texts_of
from numpy.typing import NDArray

from gnnretrieval.data import Dataset
from gnnretrieval.encoders import DualEncoder, EncoderSettings, find_checkpoint
from gnnretrieval.encoders.exact_search import exact_top_k
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import say, show_progress
from gnnretrieval.recipes.encoder_recipe import find_method
from gnnretrieval.recipes.run_encoder import run_encoder_recipe
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json
from gnnretrieval.training import TrainSettings, train_gnn
from gnnretrieval.training.gnn.dry_run import rehearse
from gnnretrieval.training.gnn.selection import what_was_kept

RESULTS = Path(__file__).resolve().parent / "results"
BERT_BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
K = 25


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


def write_bert_base(directory: Path) -> Path:
    """A BERT of base size with random weights: its speed is that of any."""
    from transformers import AutoTokenizer, BertConfig, BertModel

    if not (directory / "config.json").is_file():
        tokenizer = AutoTokenizer.from_pretrained(find_checkpoint(CHECKPOINT).directory)
        torch.manual_seed(0)
        BertModel(BertConfig(vocab_size=len(tokenizer), **BERT_BASE)).save_pretrained(directory)
        tokenizer.save_pretrained(directory)
    return directory


def measure_encoding(checkpoint: str, texts: list[str], on_cpu: int, device: str, repeats: int) -> dict[str, Any]:
    """Passages a second on the GPU, by this package and by sentence-transformers, and on the CPU."""
    from sentence_transformers import SentenceTransformer

    settings = {"checkpoint": checkpoint, "max_tokens": MAX_TOKENS}
    ours = {
        name: DualEncoder(EncoderSettings.parse({**settings, "precision": name}), device)
        for name in ("bfloat16", "float32")
    }
    theirs = {
        name: SentenceTransformer(
            str(find_checkpoint(checkpoint).directory), device=device, model_kwargs={"dtype": getattr(torch, name)}
        )
        for name in ours
    }
    for model in theirs.values():
        model.max_seq_length = MAX_TOKENS
    systems: dict[str, Callable[[], Any]] = {}
    for name in ours:
        systems[f"gnnretrieval, {name}"] = lambda name=name: ours[name].encode(texts, "passage")
        systems[f"sentence-transformers, {name}"] = lambda name=name: theirs[name].encode(
            texts, batch_size=256, show_progress_bar=False
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
    return {"texts": len(texts), "cpu_texts": len(few), "cpu_per_second": rate, "rows": rows}


def measure_search(passages: int, queries: int, device: str, repeats: int) -> dict[str, Any]:
    """Exact top-25 of random vectors on both devices, and by plain torch on the GPU, which does not settle ties."""
    rng = np.random.default_rng(0)
    made = [rng.standard_normal((count, 384), dtype=np.float32) for count in (passages, queries)]
    stored, asked = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in made)
    cosine = Similarity(normalize=True, scale=20.0)

    def plain() -> NDArray[np.int64]:
        ours = torch.from_numpy(stored).to(device)
        rows = [
            (torch.from_numpy(part).to(device) @ ours.T).topk(K).indices
            for part in np.array_split(asked, -(-queries // 1000))
        ]
        return torch.cat(rows).cpu().numpy()

    systems: dict[str, Callable[[], Any]] = {
        "gnnretrieval, GPU": lambda: exact_top_k(asked, stored, K, cosine, device=device)[0],
        "torch.topk of products in float32, GPU": plain,
    }
    taken, rows = in_rounds(systems, repeats)
    few = max(1, queries // 20)
    on_cpu = seconds(lambda: exact_top_k(asked[:few], stored, K, cosine), "cpu")
    exact, _ = exact_top_k(asked[:few], stored, K, cosine)
    return {
        "passages": passages,
        "queries": queries,
        "rows": [
            {
                "system": name,
                "per_second": queries / statistics.median(values),
                "same_as_cpu": float((rows[name][:few] == exact).all(1).mean()),
            }
            for name, values in taken.items()
        ],
        "cpu": {"queries": few, "per_second": few / on_cpu},
    }


def measure_training(dataset: Dataset, work: Path, device: str, layers: Sequence[str]) -> list[dict[str, Any]]:
    """Seconds of ``train`` by its defaults on the GPU; on the CPU those of ``linear``, and a forecast of the others."""
    name = dataset.path.name
    encoder = EncoderSettings(checkpoint=CHECKPOINT, precision="float32")
    features = encode_dataset(dataset, encoder, work / f"features-{name}", device=device, overwrite=True)
    begun = time.perf_counter()
    graph = build_graph(dataset, features, GraphSettings(), work / f"graph-{name}", device=device, overwrite=True)
    rows: list[dict[str, Any]] = [{"set": name, "what": "graph build", "gpu": time.perf_counter() - begun}]
    for layer in layers:
        row: dict[str, Any] = {"set": name, "what": f"train --layer {layer}"}
        for where, on in (("gpu", device), ("cpu", "cpu")):
            settings = TrainSettings.parse({"layer": layer})
            if where == "cpu" and layer != "linear":
                row["forecast"] = 3600 * rehearse(graph, dataset, features, settings)["hours"]
                continue
            begun = time.perf_counter()
            model = train_gnn(
                graph, dataset, features, settings, work / f"{name}-{layer}-{where}", device=on, overwrite=True
            )
            row[where] = time.perf_counter() - begun
            row[f"kept_{where}"], row[f"dev_{where}"] = (
                what_was_kept(model.meta["dev"]),
                model.meta["dev"]["chosen"]["RR@10"],
            )
        rows.append(row)
        say(f"{row}")
    return rows


def measure_dpr(dataset: Dataset, bert_base: Path, work: Path, device: str) -> dict[str, Any]:
    """Seconds of one pass of DPR's paper over the training questions, with a BERT of base size on the GPU."""
    text = find_method("dpr").read_text(encoding="utf-8").replace("epochs = 40", "epochs = 1")
    recipe = work / "dpr.toml"
    recipe.write_text(text.replace("sentence-transformers/all-MiniLM-L6-v2", str(bert_base)), encoding="utf-8")
    run = run_encoder_recipe(recipe, work / "dpr", data=dataset.path, only=["bm25-negatives"], device=device)
    assert run is not None
    begun = time.perf_counter()
    run_encoder_recipe(recipe, work / "dpr", data=dataset.path, only=["dpr"], device=device)
    return {"set": dataset.path.name, "seconds": time.perf_counter() - begun}


def markdown(results: dict[str, Any]) -> str:
    """The page."""
    search = results["search"]
    lines = [
        "# On a GPU",
        "",
        f"{results['gpu']}, and {results['cpus']} processors of its machine. `python benchmarks/gpu.py` makes this",
        "page.",
        "",
        "## Encoding passages",
        "",
    ]
    for name, part in results["encoding"].items():
        lines += [
            f"{name}, {part['texts']:,} passages of SQuAD, at most {MAX_TOKENS} tokens; medians of",
            f"{results['repeats']} rounds in turn. The CPU encodes {part['cpu_per_second']:,.0f} passages/s by",
            "default. Cosine: the smallest to the CPU's vectors in float32.",
            "",
            "| system | passages/s | times the CPU | times sentence-transformers | cosine |",
            "|---|---:|---:|---:|---:|",
        ]
        for row in part["rows"]:
            lines.append(
                f"| {row['system']} | {row['per_second']:,.0f} | {row['over_cpu']:.1f} | {row['over_peer']:.2f} "
                f"| {row['cosine']['min']:.5f} |"
            )
        lines.append("")
    lines += [
        "## Exact search",
        "",
        f"The best {K} of {search['passages']:,} random vectors of 384 dimensions, for {search['queries']:,}",
        f"queries. The CPU answers {search['cpu']['per_second']:,.0f} queries/s. Same: the share of queries with the",
        "CPU's rows.",
        "",
        "| system | queries/s | times the CPU | same |",
        "|---|---:|---:|---:|",
    ]
    for row in search["rows"]:
        over = row["per_second"] / search["cpu"]["per_second"]
        lines.append(f"| {row['system']} | {row['per_second']:,.0f} | {over:.1f} | {100 * row['same_as_cpu']:.1f} % |")
    lines += [
        "",
        "## Training",
        "",
        "By defaults, over MiniLM; † is the CPU's forecast (`train --dry-run`), without early stopping. Sums round in",
        "another order on a GPU, so the heads differ by rounding, and a choice between equal settings may differ too.",
        "",
        "| set | command | GPU, s | CPU, s | kept on the GPU | dev | kept on the CPU | dev |",
        "|---|---|---:|---:|---|---:|---|---:|",
    ]
    for row in results["training"]:
        on_cpu = f"{row['cpu']:.0f}" if "cpu" in row else f"{row['forecast']:.0f} †" if "forecast" in row else "–"
        kept = [row.get(f"kept_{where}", "–") for where in ("gpu", "cpu")]
        dev = [f"{100 * row[f'dev_{where}']:.1f}" if f"dev_{where}" in row else "–" for where in ("gpu", "cpu")]
        figures = f"{row['gpu']:.0f} | {on_cpu} | {kept[0]} | {dev[0]} | {kept[1]} | {dev[1]}"
        lines.append(f"| {row['set']} | `{row['what']}` | {figures} |")
    dpr = results["dpr"]
    lines += [
        "",
        "`encoder train dpr` as in its paper, with a BERT of base size, 256 tokens and 128 questions a step: one",
        f"epoch over the {dpr['queries']:,} training questions of {dpr['set']} takes {dpr['seconds']:.0f} s, with",
        "loading and dev.",
        "",
        f"Revision {results['git_revision']}.",
    ]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True, help="Folder of the two sets.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Where trainings are kept.")
@click.option("--device", default="cuda", show_default=True, help="The GPU.")
@click.option("--passages", default=1_000_000, show_default=True, help="Vectors that are searched.")
@click.option("--repeats", default=5, show_default=True, help="Rounds of encoding and search.")
def main(data: Path, work: Path, device: str, passages: int, repeats: int) -> None:
    """Measure, and write the page."""
    keep_freed_memory()
    work.mkdir(parents=True, exist_ok=True)
    texts = texts_of(data / "squad-open" / "corpus.jsonl", 20_000)
    bert_base = write_bert_base(work / "bert-base")
    squad, fairytales = Dataset.open(data / "squad-open"), Dataset.open(data / "fairytaleqa")
    results: dict[str, Any] = {
        "encoding": {
            "all-MiniLM-L6-v2": measure_encoding(CHECKPOINT, texts, 1000, device, repeats),
            "A BERT of base size": measure_encoding(str(bert_base), texts, 100, device, repeats),
        },
        "search": measure_search(passages, max(passages // 100, 20), device, repeats),
        "training": [
            *measure_training(squad, work, device, ["linear", "gat"]),
            *measure_training(fairytales, work, device, ["linear", "gat"]),
        ],
        "dpr": measure_dpr(fairytales, bert_base, work, device)
        | {"queries": sum(1 for _ in fairytales.queries_of("train"))},
        "repeats": repeats,
        "gpu": torch.cuda.get_device_name(device) if torch.cuda.is_available() else device,
        "cpus": os.cpu_count(),
        "versions": library_versions(),
        "git_revision": git_revision(),
    }
    write_json(RESULTS / "gpu.json", results)
    (RESULTS / "gpu.md").write_text(markdown(results), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
