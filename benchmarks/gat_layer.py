"""Forward and backward pass of one GAT layer against PyTorch Geometric's GATConv: time, peak memory, equality.

    .venv/bin/python benchmarks/gat_layer.py

8,000 queries have 25 passages each, drawn unevenly from 20,000; one head, edge features as wide as nodes. Gradients go
to every parameter and to source and target features; edge features are stored ones, without a gradient. Both layers
have the same weights, the same inputs and explicit self-loops (GATConv: each target is also a source, with a loop as an
edge).

GATConv's edges and their features, loops included, are made before the measurement; our layer makes its neighbours
within the measured time. GATConv is measured with its loops after its edges and with all edges sorted by target, each
with PyTorch's default allocator and with freed memory kept (as in every gnnretrieval command). The best of these four
counts. A process that measures time runs all forms in turn; each peak of memory is that of one step in a separate
process.

Writes results/gat_layer.json and results/gat_layer.md.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import click
import torch
from torch import Tensor
from torch_geometric import typing as pyg_typing
from torch_geometric.nn import GATConv

from gnnretrieval.nn import GATLayer, Neighbors
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json

RESULTS = Path(__file__).resolve().parent / "results"
QUERIES, PASSAGES, K = 8_000, 20_000, 25
WIDTHS = (384, 768)
OURS = "GATLayer"
STOCK = ("GATConv", "GATConv, edges sorted")
FORMS = {
    OURS: "GATLayer",
    "GATLayer, CSR": "GATLayer, the same edges as CSR",
    "GATLayer, float16": "GATLayer, float16 edge features",
    "GATLayer, edge gradient": "GATLayer, edge features with a gradient",
    "GATConv": "GATConv, loops last",
    "GATConv, edges sorted": "GATConv, edges sorted by target",
}


class Case(NamedTuple):
    """Inputs of both layers."""

    source: Tensor  # (PASSAGES, d)
    target: Tensor  # (QUERIES, d)
    neighbors: Tensor  # (QUERIES, K)
    edge_features: Tensor  # (QUERIES * K, d)
    loop_feature: Tensor  # (d,)
    gradient: Tensor  # (QUERIES, d)


def make_case(width: int, seed: int = 0) -> Case:
    """Random features and edges; a query's passages are different, drawn in proportion to log-normal weights."""
    generator = torch.Generator().manual_seed(seed)
    chance = torch.empty(PASSAGES).log_normal_(generator=generator)
    neighbors = torch.cat(
        [torch.multinomial(chance.expand(500, -1), K, generator=generator) for _ in range(QUERIES // 500)]
    )

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return Case(
        random(PASSAGES, width).requires_grad_(),
        random(QUERIES, width).requires_grad_(),
        neighbors,
        random(QUERIES * K, width),
        random(width),
        random(QUERIES, width),
    )


def make_step(form: str, case: Case) -> tuple[torch.nn.Module, Callable[[], Tensor]]:
    """A layer of this form, with the same weights as all others, and a function that runs it forward and backward."""
    width = case.source.shape[1]
    torch.manual_seed(0)
    conv = GATConv((width, width), width, edge_dim=width, add_self_loops=False, bias=False)
    if form in STOCK:
        return conv, stock_step(conv, case, by_target=form == STOCK[1])
    layer = GATLayer(width, width, edge_dim=width)
    layer.load_state_dict(conv.state_dict())
    edge_features = case.edge_features
    if form == "GATLayer, float16":
        edge_features = edge_features.half()
    if form == "GATLayer, edge gradient":
        edge_features = edge_features.detach().requires_grad_()

    def step() -> Tensor:
        edge_features.grad = None
        neighbors = Neighbors.regular(case.neighbors)
        if form == "GATLayer, CSR":
            neighbors = Neighbors(neighbors.sources, neighbors.offsets)
        out: Tensor = layer(case.source, case.target, neighbors, edge_features, case.loop_feature)
        torch.autograd.backward(out, case.gradient)
        return out.detach()

    return layer, step


def stock_step(conv: GATConv, case: Case, by_target: bool) -> Callable[[], Tensor]:
    """GATConv with the self-loops as edges from copies of the targets among the sources."""
    rows = torch.arange(QUERIES)
    edge_index = torch.stack(
        [torch.cat([case.neighbors.ravel(), rows + PASSAGES]), torch.cat([rows.repeat_interleave(K), rows])]
    )
    edge_features = torch.cat([case.edge_features, case.loop_feature.expand(QUERIES, -1)])
    if by_target:
        order = edge_index[1].argsort(stable=True)
        edge_index, edge_features = edge_index[:, order].contiguous(), edge_features[order]

    def step() -> Tensor:
        both = torch.cat([case.source, case.target])
        out: Tensor = conv((both, case.target), edge_index, edge_features)
        torch.autograd.backward(out, case.gradient)
        return out.detach()

    return step


def clear(layer: torch.nn.Module, case: Case) -> None:
    """Clear the gradients of the layer and of the node features."""
    layer.zero_grad()
    case.source.grad = case.target.grad = None


def measure_times(width: int, repeats: int, keep: bool) -> dict[str, list[float]]:
    """Seconds of each form's step, in turn, ``repeats`` times after a round to warm up."""
    if keep:
        keep_freed_memory()
    case = make_case(width)
    steps = {form: make_step(form, case) for form in FORMS}
    seconds: dict[str, list[float]] = {form: [] for form in FORMS}
    for repeat in range(repeats + 1):
        for form, (layer, step) in steps.items():
            clear(layer, case)
            start = time.perf_counter()
            step()
            if repeat:
                seconds[form].append(time.perf_counter() - start)
    return seconds


def measure_peak(width: int, form: str) -> int:
    """Peak of resident memory in a process's first step, in bytes above the level just before it."""
    case = make_case(width)
    layer, step = make_step(form, case)
    torch.mm(torch.ones(256, 256), torch.ones(256, 256))  # so that the BLAS already has its threads and buffers
    clear(layer, case)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = resident("VmRSS")
    step()
    return resident("VmHWM") - before


def resident(name: str) -> int:
    """A figure of /proc/self/status in bytes."""
    (kibibytes,) = re.findall(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    return 1024 * int(kibibytes)


def measure_difference(width: int, form: str) -> dict[str, float]:
    """Largest difference between a form and GATConv: of outputs, and of each gradient relative to its largest entry."""
    case = make_case(width)
    results = []
    for name in (form, STOCK[0]):
        layer, step = make_step(name, case)
        clear(layer, case)
        out = step()
        gradients = {key: gradient_of(value).clone() for key, value in layer.named_parameters()}
        results.append((out, {**gradients, **{key: gradient_of(getattr(case, key)) for key in ("source", "target")}}))
    (out, ours), (expected, theirs) = results
    differences = {f"gradient of {key}": relative(ours[key], theirs[key]) for key in theirs}
    return {"output": float((out - expected).abs().max()), **differences}


def gradient_of(value: Tensor) -> Tensor:
    """The gradient of a tensor that has one."""
    assert value.grad is not None
    return value.grad


def relative(value: Tensor, expected: Tensor) -> float:
    """Largest difference, relative to the largest expected entry."""
    return float((value - expected).abs().max() / expected.abs().max())


def apart(function: Callable[..., Any], *args: Any) -> Any:
    """What ``function`` returns in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def measure(width: int, repeats: int) -> dict[str, Any]:
    """All figures of one width."""
    kept, plain = (apart(measure_times, width, repeats, keep) for keep in (True, False))
    seconds = {
        form: {"kept": statistics.median(kept[form]), "as_it_comes": statistics.median(plain[form])} for form in FORMS
    }
    peak = {form: apart(measure_peak, width, form) for form in FORMS}
    best_stock = min(value for form in STOCK for value in seconds[form].values())
    return {
        "seconds": seconds,
        "all_seconds": {"kept": kept, "as_it_comes": plain},
        "peak_bytes": peak,
        "times_as_fast": best_stock / seconds[OURS]["kept"],
        "times_as_fast_as_it_comes": min(seconds[form]["as_it_comes"] for form in STOCK) / seconds[OURS]["as_it_comes"],
        "share_of_peak_memory": peak[OURS] / min(peak[form] for form in STOCK),
        "differences": {form: apart(measure_difference, width, form) for form in (OURS, "GATLayer, CSR")},
    }


def markdown(results: dict[str, Any]) -> str:
    """The tables as a page."""
    versions = results["versions"]
    lines = [
        "# One GAT layer against PyTorch Geometric's GATConv",
        "",
        "Regenerate: `.venv/bin/python benchmarks/gat_layer.py`",
        "",
        f"Forward with backward, {QUERIES:,} queries × {K} of {PASSAGES:,} passages, edge features as wide as "
        f"nodes, one head, float32, on {results['threads']} cores. torch {versions['torch']}, torch-geometric "
        f"{versions['torch-geometric']} ({'with' if results['torch_scatter'] else 'without'} torch-scatter). Median of "
        f"{results['repeats']}, all forms in turn; *kept*: freed memory is kept, as in every command.",
        "",
    ]
    for width, result in results["widths"].items():
        lines += [f"## d = {width}", "", "| | ms, kept | ms, as it comes | peak, MiB |", "|---|---:|---:|---:|"]
        for form, name in FORMS.items():
            seconds = result["seconds"][form]
            lines.append(
                f"| {name} | {1000 * seconds['kept']:.0f} | {1000 * seconds['as_it_comes']:.0f} | "
                f"{result['peak_bytes'][form] / 2**20:.0f} |"
            )
        differences = result["differences"][OURS]
        worst = max(value for key, value in differences.items() if key != "output")
        lines += [
            "",
            f"**{result['times_as_fast']:.1f} times as fast** as the best of GATConv's four "
            f"({result['times_as_fast_as_it_comes']:.1f} times with the allocator as it comes for both), "
            f"**{100 * result['share_of_peak_memory']:.0f}%** of its peak memory. Outputs differ by at most "
            f"{differences['output']:.1e}, gradients by at most {worst:.1e} of their largest entry.",
            "",
        ]
    return "\n".join(lines)


@click.command()
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True)
def main(repeats: int) -> None:
    """Measure both widths and write the result files."""
    results = {
        "queries": QUERIES,
        "passages": PASSAGES,
        "k": K,
        "widths": {str(width): measure(width, repeats) for width in WIDTHS},
        "repeats": repeats,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "torch_scatter": pyg_typing.WITH_TORCH_SCATTER,
        "versions": library_versions(),
        "git_revision": git_revision(),
    }
    write_json(RESULTS / "gat_layer.json", results)
    (RESULTS / "gat_layer.md").write_text(markdown(results), encoding="utf-8")
    click.echo(markdown(results))


if __name__ == "__main__":
    main()
