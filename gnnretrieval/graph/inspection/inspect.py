"""Figures of ``graph inspect``: what the graph is like, and whether it can help."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gnnretrieval.graph.inspection.advice import warnings_of
from gnnretrieval.graph.inspection.agreement import agreement_figures
from gnnretrieval.graph.inspection.connectivity import degree_figures, most_found, recall_by_rank, score_figures
from gnnretrieval.graph.inspection.memory_needs import TrainingShape, memory_needs
from gnnretrieval.graph.inspection.near_duplicates import duplicate_figures
from gnnretrieval.graph.inspection.overlap import overlap_figures
from gnnretrieval.graph.inspection.report import GraphReport
from gnnretrieval.graph.interchange import shown_queries
from gnnretrieval.graph.store import Graph


def inspect_graph(
    store: Graph,
    data: str | Path | None = None,
    *,
    most: int = 5,
    shape: TrainingShape | None = None,
    seed: int = 0,
) -> GraphReport:
    """Figures of a graph store or view.

    Time and memory are at most linear in the graph; large graphs are sampled, and the figures say how much was read.

    Args:
        store: The graph.
        data: The dataset directory. Its other splits are compared with the graph. None: the directory recorded when the
            graph was built.
        most: Number of examples of each kind.
        shape: Training settings, for the estimate of memory; None: the defaults.
        seed: Seed of all samples.

    Raises:
        GnnRetrievalError: ``data`` is not a dataset directory, or not the graph's dataset.
    """
    overlap = overlap_figures(store, data)  # first, because it can fail
    degrees = store.degrees()
    labelled, recall = recall_by_rank(store)
    files = _files(store.path)
    queries, edges = len(shown_queries(store)), int(degrees.sum())
    report = GraphReport(
        path=str(store.path),
        passages=store.num_passages,
        queries=queries,
        k=store.k,
        edges=edges,
        dimension=store.dimension,
        edge_features=store.edge_names,
        encoder=store.encoder_settings.checkpoint,
        queries_per_passage=degree_figures(degrees),
        most_found=most_found(store, degrees, most),
        labelled_queries=labelled,
        labelled_passage_among_neighbours={str(rank): share for rank, share in enumerate(recall, 1)},
        scores=score_figures(store, seed),
        agreement=agreement_figures(store, most, seed),
        near_duplicates=duplicate_figures(store, most, seed),
        overlap=overlap,
        bytes_on_disk=sum(files.values()),
        files=files,
        memory=memory_needs(
            store.num_passages,
            queries,
            store.k,
            store.dimension,
            store.edge_dim,
            queries_per_candidate=float((degrees.astype(np.float64) ** 2).sum() / max(edges, 1)),
            shape=shape,
        ),
        warnings=[],
    )
    return report.model_copy(update={"warnings": list(warnings_of(report))})


def _files(path: Path) -> dict[str, int]:
    """Bytes of each file and subdirectory of a directory by name, largest first."""
    sizes: dict[str, int] = {}
    for file in path.rglob("*"):
        if file.is_file():
            name, *inner = file.relative_to(path).parts
            name += "/" if inner else ""
            sizes[name] = sizes.get(name, 0) + file.stat().st_size
    return dict(sorted(sizes.items(), key=lambda file: (-file[1], file[0])))
