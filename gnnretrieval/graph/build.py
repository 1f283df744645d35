"""Build a graph store: each training query joined to its top-k passages (§3.2)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.artifacts import relative_to
from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.text_store import PassageRow, QueryRow, TextStore
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.exact_search import exact_top_k
from gnnretrieval.encoders.features import Features
from gnnretrieval.errors import ArtifactError, GnnRetrievalError
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.store import KIND, TEXTS, GraphStore, passage_side
from gnnretrieval.making import make_artifact
from gnnretrieval.progress import progress


def build_graph(
    dataset: Dataset,
    features: Features,
    settings: GraphSettings,
    out: str | Path,
    *,
    device: str = "cpu",
    overwrite: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> GraphStore:
    """Build the graph store ``out`` over the queries of one split.

    Raises:
        ArtifactError: ``features`` are of other texts than the dataset's.
        GnnRetrievalError: ``k`` is above the number of passages.
    """
    require_features_of(dataset, features)
    require_k(settings.k, dataset)
    qrels = dataset.split(settings.split)
    query_ids = [query for query, judged in qrels.items() if any(relevance > 0 for relevance in judged.values())]
    if not query_ids:
        raise GnnRetrievalError(f"{dataset.path}: split {settings.split!r} has no query with a relevant passage.")

    def write(directory: Path) -> dict[str, Any]:
        query_features = features.queries[features.rows_of(query_ids)]
        np.save(directory / "query_features.npy", query_features)
        shutil.copyfile(features.path / "passages.npy", directory / "passage_features.npy")
        with progress("top-k", len(query_ids), "queries") as meter:
            rows, scores = exact_top_k(
                query_features, features.passages, settings.k, features.similarity, device=device, advance=meter.advance
            )
        neighbors = rows.astype(np.uint32)
        indptr, edges = passage_side(neighbors, len(dataset.passage_ids))
        texts = _write_texts(directory / TEXTS, dataset, query_ids, qrels, settings.split)
        np.save(directory / "neighbors.npy", neighbors)
        np.save(directory / "scores.npy", scores)
        np.save(directory / "passage_indptr.npy", indptr)
        np.save(directory / "passage_edges.npy", edges)
        np.save(directory / "edge_features.npy", _edge_features(settings, dataset, texts, neighbors, scores))
        return {
            "num_passages": len(dataset.passage_ids),
            "num_queries": len(query_ids),
            "encoder": features.meta["encoder"],
            "similarity": features.meta["similarity"],
            "source": features.meta["source"],
            "checkpoint_hash": features.meta["checkpoint_hash"],
            "dataset": dataset.provenance(),
            "made_from": {
                "dataset": relative_to(out, dataset.path),
                "features": relative_to(out, features.path),
            },
        }

    artifact = make_artifact(
        out,
        KIND,
        inputs={"dataset": dataset.hash, "features": features.hash},
        config=settings.model_dump(mode="json"),
        write=write,
        overwrite=overwrite,
        say=say,
    )
    return GraphStore(artifact.path, artifact.meta)


def require_k(k: int, dataset: Dataset) -> None:
    """Refuse a ``k`` above the number of passages."""
    if k > len(dataset.passage_ids):
        raise GnnRetrievalError(
            f"k is {k}, and {dataset.path} has {len(dataset.passage_ids)} passages: give a k of at most that."
        )


def require_features_of(dataset: Dataset, features: Features) -> None:
    """Refuse features that were made from other texts than ``dataset``'s."""
    if features.meta["inputs"]["texts"] != dataset.texts_hash:
        raise ArtifactError(
            f"{features.path}: these features are of other texts than {dataset.path}'s. "
            "Encode this dataset, or give the features that belong to it."
        )


def _write_texts(
    path: Path, dataset: Dataset, query_ids: list[str], qrels: dict[str, dict[str, int]], split: str
) -> list[str]:
    """Write ids, texts and judgements; return the graph queries' texts by row."""
    passage_rows = {id_: row for row, id_ in enumerate(dataset.passage_ids)}
    text_of = {query.id: query.text for query in dataset.queries_of(split)}
    with TextStore(path, create=True) as store:
        store.add_passages(
            PassageRow(row, passage.id, passage.title, passage.text) for row, passage in enumerate(dataset.passages())
        )
        store.add_queries(QueryRow(row, id_, text_of[id_], split) for row, id_ in enumerate(query_ids))
        store.add_qrels(
            (row, passage_rows[passage], relevance)
            for row, id_ in enumerate(query_ids)
            for passage, relevance in qrels[id_].items()
        )
    return [text_of[id_] for id_ in query_ids]


def _edge_features(
    settings: GraphSettings,
    dataset: Dataset,
    queries: list[str],
    neighbors: NDArray[np.uint32],
    scores: NDArray[np.float32],
) -> NDArray[np.float16]:
    """Cheap edge features ``(n, k, d_e)``, in the order of ``settings.edge_features``."""
    features = np.zeros((*neighbors.shape, len(settings.edge_features)), dtype=np.float16)
    for column, name in enumerate(settings.edge_features):
        if name == "score":
            features[:, :, column] = scores
        elif name == "reciprocal_rank":
            features[:, :, column] = 1 / np.arange(1, neighbors.shape[1] + 1)
        else:
            bm25 = BM25(passage.full_text for passage in dataset.passages())
            with progress("BM25 of the edges", len(queries), "queries") as meter:
                for row, text in enumerate(queries):
                    features[row, :, column] = bm25.shares_of_best(text, neighbors[row])
                    meter.advance()
    return features
