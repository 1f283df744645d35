"""The artifact of query-interactive passage embeddings, from which an index is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.features import Features, encoder_records
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import ArtifactError, counted
from gnnretrieval.graph.store import TEXTS, Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.nn.label_messages import message_vectors, several_vectors
from gnnretrieval.platform.memory import memory_limit, require_memory
from gnnretrieval.progress import progress, say
from gnnretrieval.storage.array_checks import require_rows
from gnnretrieval.storage.arrays import ArrayWriter, blocks, load_array, release, save_array
from gnnretrieval.storage.artifacts import Artifact, open_artifact, relative_to, share_file
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.places import scratch, settle
from gnnretrieval.storage.purged import require_unpurged
from gnnretrieval.storage.updating import changed_since, record_changes, rewrite, update_artifact
from gnnretrieval.training.gnn.corpus_part import message_blocks
from gnnretrieval.training.gnn.embedding import MEMORY, gated_contexts, nodes_to_embed
from gnnretrieval.training.gnn.ladder import message_graph
from gnnretrieval.training.gnn.message_memory import bytes_of_messages, fits_memory, require_fit
from gnnretrieval.training.gnn.model import GNNEncoderModel

KIND = "embeddings"
ARRAY, ROWS = "passages.npy", "rows.npy"
_AT_ONCE = 65536  # vectors of a block that are taken from memory


class Embeddings(Artifact):
    """Embeddings ``h'_p`` of all passages, on disk: one vector a passage, or one more for each training question."""

    @property
    def passages(self) -> NDArray[np.float16]:
        """The passages' own vectors ``(m, d)``, of length 1 where the similarity is cosine; memory-mapped."""
        return self.vectors[: self.meta["num_passages"]]

    @property
    def vectors(self) -> NDArray[np.float16]:
        """All vectors ``(m + L, d)``, those of :attr:`passages` first; memory-mapped."""
        count = self.meta.get("num_vectors", self.meta["num_passages"])
        array: NDArray[np.float16] = load_array(self.path / ARRAY, (count, self.meta["dimension"]), np.float16)
        return array

    @property
    def rows(self) -> Rows | None:
        """Row of each vector's passage ``(m + L,)`` int64; None for one vector a passage.

        Raises:
            ArtifactError: The rows are damaged.
        """
        if not self.has_questions:
            return None
        rows: Rows = np.array(load_array(self.path / ROWS, (self.meta["num_vectors"],), np.int64))
        require_rows(rows, self.meta["num_passages"], self.path / ROWS)
        return rows

    @property
    def has_questions(self) -> bool:
        """Whether a passage has several vectors, its own and one for each training question."""
        return "num_vectors" in self.meta

    @property
    def is_reduced(self) -> bool:
        """Whether passages have one vector each by choice, where training kept several."""
        return bool(self.meta.get("is_reduced"))

    @property
    def similarity(self) -> Similarity:
        """Similarity of queries and these embeddings."""
        return Similarity.parse(self.meta["similarity"], self.path / "meta.json")


def open_embeddings(path: str | Path) -> Embeddings:
    """Open the embeddings at ``path``; raises as :func:`gnnretrieval.storage.artifacts.open_artifact`."""
    artifact = open_artifact(
        path, KIND, ("encoder", "similarity", "checkpoint_hash", "made_from", "num_passages", "dimension")
    )
    embeddings = Embeddings(artifact.path, artifact.meta)
    embeddings.require_recorded(ARRAY, *([ROWS] if embeddings.has_questions else []))
    return embeddings


def embed_passages(
    model: GNNEncoderModel,
    store: Graph,
    out: str | Path,
    *,
    features: Features | None = None,
    kept: Embeddings | None = None,
    device: str = "cpu",
    memory: int = MEMORY,
    one_vector: bool = False,
    overwrite: bool = False,
) -> Embeddings:
    """Compute the embeddings of all passages over the full graph.

    Where training kept them (:attr:`GNNEncoderModel.question_weight`), a passage has several vectors: its own, and one
    for each training question that it is relevant to (:func:`gnnretrieval.nn.label_messages.several_vectors`). Equal
    vectors of a passage are kept once. If they do not fit into memory, a passage has one vector.

    Args:
        model: The GNN-encoder.
        store: The graph.
        out: Directory of the embeddings.
        features: Features by the dual-encoder that was trained with the model; None: there is no such encoder
            (:meth:`GNNEncoderModel.view`).
        kept: Embeddings by the same model. Their vectors stay, except of passages that have another text now; None:
            all vectors are new.
        device: Where to compute.
        memory: Budget in bytes (:func:`gnnretrieval.training.gnn.embedding.gated_contexts`).
        one_vector: Make one vector a passage, also where training kept several.
        overwrite: Replace embeddings made from other inputs.

    Returns:
        The embeddings.

    Raises:
        ArtifactError: Model, graph and features do not fit: other widths, or another dual-encoder; or ``kept`` is
            given for several vectors a passage.
    """
    require_unpurged(store)
    model.require_fits(store)
    several = bool(model.question_weight) and not one_vector and _fit_memory(store)
    if several and kept is not None:
        raise ArtifactError(f"{kept.path}: vectors of training questions are all new. Embed with one_vector.")
    view = model.view(store, features)
    made_with = store.meta if features is None else features.meta
    if kept is not None and kept.meta["inputs"]["gnn-encoder"] != model.hash:
        raise ArtifactError(f"{kept.path}: made with another model than {model.path}. Embed all passages.")

    def write(directory: Path) -> dict[str, Any]:
        if several:
            figures = _write_several(directory, model, view)
        else:
            figures = _write_one_each(directory, model, view, kept, device, memory)
        share_file(store.path / TEXTS, directory / TEXTS)
        return {
            **figures,
            **encoder_records(made_with),
            "is_reduced": bool(model.question_weight) and one_vector,
            "num_passages": store.num_passages,
            "dimension": store.dimension,
            "made_from": {
                name: relative_to(out, source.path)
                for name, source in (("gnn-encoder", model), ("graph", store), ("features", features))
                if source is not None
            },
        }

    artifact = make_artifact(
        out,
        KIND,
        inputs={"gnn-encoder": model.hash, "graph": store.hash}
        | ({"features": features.hash} if features is not None else {})
        | ({"kept": kept.hash} if kept is not None else {}),
        config={"questions": True} if several else {},
        write=write,
        overwrite=overwrite,
    )
    return Embeddings(artifact.path, artifact.meta)


def update_embeddings(
    model: GNNEncoderModel,
    store: Graph,
    out: str | Path,
    *,
    device: str = "cpu",
    memory: int = MEMORY,
) -> Embeddings:
    """Update the embeddings at ``out`` after additions to the graph; only changed passages are computed.

    A passage is computed again if it is new, or if one of its queries is new or has other passages now. With
    layer = linear all passages are computed, because rejection and updates propagate; those that differ are replaced.
    Where passages have several vectors, all are.

    Args:
        model: The GNN-encoder of the embeddings.
        store: The graph, after ``graph add``.
        out: Directory of the embeddings.
        device: Where to compute.
        memory: As in :func:`embed_passages`.

    Returns:
        The updated embeddings.

    Raises:
        ArtifactError: The embeddings were made with another model, or from another graph.
        GnnRetrievalError: There are several vectors a passage, and they do not fit into memory any more.
    """
    model.require_fits(store)
    if model.has_encoder:
        raise ArtifactError(
            f"{model.path}: its dual-encoder was trained with it, so new texts need new features. Encode the dataset "
            "with it again, and embed again without --changed."
        )
    settle(Path(out), KIND)
    current = open_embeddings(out)
    if current.meta["inputs"]["gnn-encoder"] != model.hash:
        raise ArtifactError(f"{out}: made with another model than {model.path}. Embed again, without --changed.")
    if current.meta["inputs"]["graph"] == store.hash:
        say(f"{out}: already up to date with {store.path}")
        return current
    changed = changed_since(store, current.meta["inputs"]["graph"])
    if changed is None:
        raise ArtifactError(f"{out}: not made from an earlier state of {store.path}. Embed again, without --changed.")

    def write_all(directory: Path) -> dict[str, Any]:
        figures = _write_several(directory, model, model.view(store))
        share_file(store.path / TEXTS, directory / TEXTS)
        record_changes(directory, current, np.arange(store.num_passages))
        return {**figures, "num_passages": store.num_passages}

    def write(directory: Path) -> dict[str, Any]:
        view, old = model.view(store), current.passages
        touched = _all_that_differ(model, view, old, memory) if model.is_linear else changed
        place = scratch(directory) / ARRAY
        with (
            ArrayWriter(place, (len(touched), store.dimension), np.float16) as writer,
            progress("embedding", nodes_to_embed(view, touched), "nodes") as meter,
        ):
            budget = {"memory": memory, "scratch": scratch(directory)}
            for _, vectors in _vectors(model, view, device, meter.advance, touched, budget):
                writer.write(_finite(vectors, model, store))
        shape = (store.num_passages, store.dimension)
        with ArrayWriter(rewrite(directory, ARRAY), shape, np.float16) as writer:
            _write_updated(writer, old, np.load(place, mmap_mode="r"), touched)
        share_file(store.path / TEXTS, directory / TEXTS)
        record_changes(directory, current, touched)
        say(f"{len(touched):,} of {store.num_passages:,} passages were embedded again")
        return {"num_passages": store.num_passages}

    graph = {"graph": store.hash}
    how = write_all if current.has_questions else write
    artifact = update_artifact(current, KIND, change=graph, inputs=graph, write=how)
    return Embeddings(artifact.path, artifact.meta)


def _write_updated(writer: ArrayWriter, old: NDArray[np.float16], new: NDArray[np.float16], touched: Rows) -> None:
    """Write all passages' vectors block by block: ``new`` for the ``touched`` rows (sorted), ``old`` for the others."""
    count, width = writer.shape
    for part in blocks(count, _AT_ONCE):
        block = np.empty((part.stop - part.start, width), dtype=np.float16)
        block[: max(0, len(old) - part.start)] = old[part]
        first, last = np.searchsorted(touched, (part.start, part.stop))
        block[touched[first:last] - part.start] = new[first:last]
        writer.write(block)
        release(old, new)


def _rows_of_same_texts(store: Graph, kept: Embeddings) -> Rows:
    """Row in ``kept`` of each passage ``(m,)``; -1: it lacks the passage, or has another text of it."""
    with TextStore(kept.path / TEXTS) as texts:
        known = {passage.id: (passage.row, passage.full_text) for passage in texts.passages()}
    rows = []
    with store.texts() as texts:
        for passage in texts.passages():
            row, text = known.get(passage.id, (-1, ""))
            rows.append(row if text == passage.full_text else -1)
    return np.array(rows, dtype=np.int64)


def _finite(vectors: NDArray[np.float32], model: GNNEncoderModel, store: Graph) -> NDArray[np.float32]:
    """The vectors; those of damaged weights or features, which no index can hold, are an error."""
    if not (np.abs(vectors) <= np.finfo(np.float16).max).all():
        raise ArtifactError(
            f"{model.path}: over {store.path} it makes vectors that are not finite in float16. "
            "Weights or features are damaged: train again, or build the graph again."
        )
    return vectors


def _vectors(
    model: GNNEncoderModel,
    store: Graph,
    device: str,
    advance: Callable[[int], None],
    only: Rows | None,
    budget: dict[str, Any],
) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
    """Rows and vectors of the passages, block by block; normalised if the similarity is cosine."""
    if model.is_linear:
        count = store.num_passages if only is None else len(only)
        advance(nodes_to_embed(store, only) - count)  # questions get no vectors
        for rows, vectors in _of_messages(model, store, budget["memory"], only):
            advance(len(rows))
            yield rows, vectors
        return
    module = model.load(device)
    for rows, passages, context in gated_contexts(module, store, device, advance=advance, only=only, **budget):
        yield rows, store.similarity.prepare(passages + module.context_scale * context).cpu().numpy()


@torch.no_grad()
def _of_messages(
    model: GNNEncoderModel, store: Graph, memory: int, only: Rows | None = None
) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
    """Rows and vectors of the passages by a model with layer = linear, block by block.

    Without rejection and updates, a graph that does not fit into memory is read in blocks.
    """
    heads, messages = model.load_messages()
    if not messages.needs_all and not fits_memory(store):
        yield from message_blocks(heads, messages, store, memory, only)
        return
    require_fit(store)
    vectors = message_vectors(message_graph(store), heads, messages).numpy()
    rows = np.arange(len(vectors)) if only is None else only
    for part in blocks(len(rows), _AT_ONCE):
        yield rows[part], vectors[rows[part]]


@torch.no_grad()
def _write_one_each(
    directory: Path, model: GNNEncoderModel, view: Graph, kept: Embeddings | None, device: str, memory: int
) -> dict[str, Any]:
    """Write one vector a passage, where the passage's text is new; otherwise that of ``kept``."""
    with (
        ArrayWriter(directory / ARRAY, (view.num_passages, view.dimension), np.float16) as writer,
        progress("embedding", nodes_to_embed(view), "nodes") as meter,
    ):
        budget = {"memory": memory, "scratch": scratch(directory)}
        before = None if kept is None else _rows_of_same_texts(view, kept)
        for rows, vectors in _vectors(model, view, device, meter.advance, None, budget):
            block = _finite(vectors, model, view).astype(np.float16)
            if kept is not None and before is not None:
                stays = before[rows] >= 0
                block[stays] = kept.passages[before[rows][stays]]
            writer.write(block)
    return {"similarity": model.similarity.model_dump()}


def _fit_memory(store: Graph) -> bool:
    """Whether several vectors a passage fit into memory; says so where they do not."""
    fit = _bytes_of_several(store) <= memory_limit()
    if not fit:
        say("one vector a passage: one more for each training question would not fit into memory")
    return fit


def _bytes_of_several(store: Graph) -> int:
    return bytes_of_messages(store.dimension, store.num_passages + store.num_queries + len(store.labels))


def _write_several(directory: Path, model: GNNEncoderModel, store: Graph) -> dict[str, Any]:
    """Write all vectors of the passages, and the row of each one's passage; returns entries of ``meta.json``."""
    remedy = "Use a machine with more memory, or embed again with --one-vector."
    require_memory(_bytes_of_several(store), f"one vector more for each training question of {store.path}", remedy)
    made, of_passage = several_vectors(message_graph(store), *model.load_questions())
    vectors, rows = _finite(made.numpy(), model, store).astype(np.float16), of_passage.numpy()
    purged = np.flatnonzero(~np.any(store.passage_features, axis=1))
    vectors[np.isin(rows, purged)] = 0  # what was purged stays so
    kept = _first_of_equal(vectors, rows)
    save_array(rewrite(directory, ARRAY), vectors[kept])
    save_array(rewrite(directory, ROWS), rows[kept])
    say(
        f"a passage has one vector more for each of its training questions: {counted(len(kept), 'vector')} for "
        f"{counted(store.num_passages, 'passage')} (--one-vector makes one each)"
    )
    # the vectors of questions are not of length 1
    similarity = Similarity(normalize=False, scale=model.similarity.scale)
    return {"similarity": similarity.model_dump(), "num_vectors": len(kept)}


def _first_of_equal(vectors: NDArray[np.float16], rows: Rows) -> Rows:
    """Places of the vectors ``(m + L, d)`` without those that repeat another of the same passage, in order."""
    keep = np.bincount(rows)[rows] <= 2  # with two vectors there is one question
    keep[: int(rows.max(initial=-1)) + 1] = True  # the passages' own
    several = np.flatnonzero(~keep)
    keyed = np.hstack([rows[several, None].view(np.uint16), vectors[several].view(np.uint16)])
    _, first = np.unique(keyed, axis=0, return_index=True)
    keep[several[first]] = True
    return np.flatnonzero(keep)


def _all_that_differ(model: GNNEncoderModel, store: Graph, old: NDArray[np.float16], memory: int) -> Rows:
    """Rows of the passages with another vector than in ``old``, and of new passages."""
    differ = [np.empty(0, dtype=np.int64)]
    for rows, vectors in _of_messages(model, store, memory):
        known = rows[rows < len(old)]
        same = (vectors[: len(known)].astype(np.float16) == old[known]).all(1)
        differ += [known[~same], rows[len(known) :]]
    return np.concatenate(differ)
