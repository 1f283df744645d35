"""Building a map: one projection of the passages before and after the GNN-encoder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gnnretrieval.encoders.features import open_features
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.graph.store import Graph, open_graph
from gnnretrieval.index.faiss_index import KIND as INDEX
from gnnretrieval.index.retriever import index_in
from gnnretrieval.maps.passage_map import KIND, PassageMap
from gnnretrieval.maps.projection import PCA, UMAP, Floats, Projection
from gnnretrieval.maps.settings import MapSettings
from gnnretrieval.nn.label_messages import seen_by_heads
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import ArrayWriter, blocks, gather_rows, release
from gnnretrieval.storage.artifacts import kind_of, open_artifact, relative_to
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.purged import require_unpurged
from gnnretrieval.training.gnn.embeddings import KIND as EMBEDDINGS
from gnnretrieval.training.gnn.embeddings import Embeddings, open_embeddings
from gnnretrieval.training.gnn.ladder import message_graph
from gnnretrieval.training.gnn.message_memory import require_fit
from gnnretrieval.training.gnn.model import GNNEncoderModel, open_model

UNMOVED = 1e-6  # cosine distance below which a passage has not moved; rounding to float16 makes 1e-7

_BLOCK = 8192  # vectors held in float32 at a time


def embeddings_behind(path: str | Path) -> Embeddings:
    """The embeddings at ``path``, or behind the index or the run at ``path``.

    Raises:
        ArtifactError: There are none, or the index was made from another version of them.
    """
    if kind_of(path) == EMBEDDINGS:
        return open_embeddings(path)
    index = open_artifact(index_in(path), INDEX, ("made_from", "system"))
    if EMBEDDINGS not in index.meta["made_from"]:
        raise ArtifactError(
            f"{index.path}: an index of {index.meta['system']}, which has no graph. Give a GNN-encoder's index."
        )
    embeddings = open_embeddings(index.made_from(EMBEDDINGS))
    if index.meta["inputs"].get(EMBEDDINGS) != embeddings.hash:
        raise ArtifactError(
            f"{index.path}: made from another version of {embeddings.path} than is there now. "
            "Bring the index up to it (--changed), or make it again."
        )
    return embeddings


def build_map(
    embeddings: Embeddings,
    out: str | Path,
    settings: MapSettings | None = None,
    *,
    overwrite: bool = False,
) -> PassageMap:
    """Project the passages of ``embeddings``, their dual-encoder's vectors, and the training questions.

    One projection is fit on passage vectors before and after together, so the arrow from one point to the other is a
    displacement. Vectors have length 1 if the dual-encoder compares by cosine. If the GNN-encoder has linear heads, all
    vectors are taken after the heads, which map passages and questions into one space. The displacements are then what
    the messages along the graph add; with heads alone there are none.

    Args:
        embeddings: The GNN-encoder's embeddings, which record the paths of graph, model and features.
        out: Directory of the map.
        settings: Settings; None: the defaults.
        overwrite: Replace a map made from other inputs.

    Returns:
        The map.

    Raises:
        ArtifactError: Graph or model are not those that the embeddings were made from, or passages were purged.
        GnnRetrievalError: The method is UMAP, which is not installed.
        InputError: There are no passages, or too few for UMAP.
    """
    settings = settings or MapSettings()
    require_unpurged(embeddings)
    model, graph = _model_of(embeddings)
    if graph.num_passages == 0:
        raise InputError("there are no passages to draw.", embeddings.path)
    vectors = _vectors_of(graph, model, embeddings)

    def write(directory: Path) -> dict[str, Any]:
        projection = _fit(vectors, settings)
        kept = _write_passages(directory, vectors, projection)
        with ArrayWriter(directory / "questions.npy", (graph.num_queries, 2), np.float32) as writer:
            for part in blocks(graph.num_queries, _BLOCK):
                writer.write(projection.apply(graph.similarity.prepare_array(vectors.questions[part])))
                release(vectors.questions)
        return {
            "num_passages": graph.num_passages,
            "num_questions": graph.num_queries,
            "after_head": vectors.after_head,
            "variance_kept": projection.variance_kept,
            **kept,
            "made_from": {EMBEDDINGS: relative_to(out, embeddings.path)},
        }

    artifact = make_artifact(
        out,
        KIND,
        inputs={EMBEDDINGS: embeddings.hash},
        config=settings.model_dump(),
        write=write,
        seed=settings.seed,
        overwrite=overwrite,
    )
    return PassageMap(artifact.path, artifact.meta)


class _Vectors(NamedTuple):
    """Vectors before and after the GNN-encoder.

    Attributes:
        similarity: Prepares vectors for comparison.
        before: Passages without the messages ``(m, d)``.
        after: Passages with the messages ``(m, d)``.
        questions: Training questions ``(n, d)``.
        after_head: Whether all vectors are taken after the GNN-encoder's linear heads.
    """

    similarity: Similarity
    before: NDArray[np.floating]
    after: NDArray[np.floating]
    questions: NDArray[np.floating]
    after_head: bool

    @property
    def num_passages(self) -> int:
        """Number ``m`` of passages."""
        return len(self.before)

    def gathered(self, rows: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Vectors before and after of ``rows``, each ``(b, d)``."""
        prepare = self.similarity.prepare_array
        return prepare(gather_rows(self.before, rows)), prepare(gather_rows(self.after, rows))

    def in_blocks(self) -> Iterator[tuple[Floats, Floats]]:
        """Vectors before and after of all passages, block by block."""
        for part in blocks(self.num_passages, _BLOCK):
            yield self.gathered(np.arange(part.start, part.stop))
            release(self.before, self.after)


def _vectors_of(graph: Graph, model: GNNEncoderModel, embeddings: Embeddings) -> _Vectors:
    """A model's vectors before and after its messages along the graph."""
    heads = messages = None
    if model.is_linear:
        heads, messages = model.load_questions() if embeddings.has_questions else model.load_messages()
    if heads is None or messages is None:
        arrays = (graph.passage_features, embeddings.passages, graph.query_features)
        return _Vectors(graph.similarity, *arrays, after_head=False)
    require_fit(graph)
    with torch.no_grad():
        seen = seen_by_heads(message_graph(graph), heads, messages)
    before, after, questions = (vectors.numpy() for vectors in seen)
    return _Vectors(graph.similarity, before, after, questions, after_head=True)


def _model_of(embeddings: Embeddings) -> tuple[GNNEncoderModel, Graph]:
    """The embeddings' model and the graph as it sees it, with the features of its dual-encoder."""
    model, graph = open_model(embeddings.made_from("gnn-encoder")), open_graph(embeddings.made_from("graph"))
    features = open_features(embeddings.made_from("features")) if "features" in embeddings.meta["made_from"] else None
    sources = {"gnn-encoder": model, "graph": graph, "features": features}
    for name, artifact in sources.items():
        if artifact is not None and embeddings.meta["inputs"].get(name) != artifact.hash:
            raise ArtifactError(
                f"{embeddings.path}: made from another version of {artifact.path} than is there now. Embed again."
            )
    return model, model.view(graph, features)


def _fit(vectors: _Vectors, settings: MapSettings) -> Projection:
    """The projection, fit on a sample of passages before and after."""
    count = vectors.num_passages
    rows = np.arange(count)  # the same passages before and after, so that neither side bends the axes
    if count > settings.sample:
        rows = np.sort(np.random.default_rng(settings.seed).choice(count, settings.sample, replace=False))
    both = np.concatenate(vectors.gathered(rows))
    return PCA(both) if settings.method == "pca" else UMAP(both, settings.seed)


def _write_passages(directory: Path, vectors: _Vectors, projection: Projection) -> dict[str, float | None]:
    """Write points and displacements; returns their figures for the map's metadata."""
    count = vectors.num_passages
    shown = whole = moved = 0.0
    with (
        ArrayWriter(directory / "before.npy", (count, 2), np.float32) as points_before,
        ArrayWriter(directory / "after.npy", (count, 2), np.float32) as points_after,
        ArrayWriter(directory / "displacement.npy", (count,), np.float32) as displacements,
        progress("projecting", count, "passages") as meter,
    ):
        for before, after in vectors.in_blocks():
            distances = _cosine_distances(before, after)
            # rounding must not draw arrows: a passage that did not move gets the same point twice
            is_still = distances < UNMOVED
            points = projection.apply(before)
            moved_to = np.where(is_still[:, None], points, projection.apply(after))
            points_before.write(points)
            points_after.write(moved_to)
            displacements.write(np.where(is_still, 0, distances))
            shown += float(np.square(moved_to - points, dtype=np.float64).sum())
            whole += float(np.square(after - before, dtype=np.float64)[~is_still].sum())
            moved += int((~is_still).sum())
            meter.advance(len(before))
    has_axes = projection.variance_kept is not None
    return {"displacement_kept": shown / whole if has_axes and whole else None, "share_moved": moved / count}


def _cosine_distances(before: Floats, after: Floats) -> Floats:
    """1 - cosine of each pair of rows ``(b, d)``, never negative; 0 if both are zero, 1 if one is."""
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    products = np.einsum("bd,bd->b", before, after)
    cosines = np.divide(products, lengths, out=(before == after).all(1).astype(np.float32), where=lengths > 0)
    distances: Floats = (1 - cosines).clip(0, 2).astype(np.float32)
    return distances
