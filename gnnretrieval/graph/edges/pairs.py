"""Edge vectors by a cross-encoder (§3.2), or from the user's file.

The cross-encoder reads the pairs passage by passage, so that each passage is tokenised once. Each block is written when
it is done: an interrupted run continues after its last block.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.pair_shards import PAIRS
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph.edges.pair_shards import EdgeShards
from gnnretrieval.graph.edges.pair_texts import Pairs
from gnnretrieval.graph.edges.vector_files import PROJECTION, EdgeVectorFiles
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.progress import progress
from gnnretrieval.shards.engines import Sharding, run_stage
from gnnretrieval.storage.arrays import ArrayWriter, blocks, release, save_array
from gnnretrieval.storage.making import record_progress
from gnnretrieval.storage.places import scratch

if TYPE_CHECKING:
    from gnnretrieval.encoders.cross_encoder import CrossEncoder

_MANIFEST = "pairs.json"
_SAMPLE = 4096  # pairs that a projection is fitted to


def require_pairs(settings: GraphSettings, given: NDArray[np.floating] | None) -> None:
    """Check the settings of edge vectors, before anything is written.

    Args:
        settings: The cross-encoder, and the form of its vectors.
        given: ``(n, k, d)`` edge vectors from the user's file; None: there is no file.

    Raises:
        InputError: Pairs may be longer than the cross-encoder has positions for.
        GnnRetrievalError: The projection has more dimensions than the vectors.
    """
    width = None if given is None else given.shape[-1]
    if settings.reads_pairs:
        from gnnretrieval.encoders.checkpoint import find_checkpoint
        from gnnretrieval.encoders.loading import check_max_tokens, positions_of  # importing torch takes seconds

        checkpoint = find_checkpoint(str(settings.cross_encoder))
        config = checkpoint.config
        check_max_tokens(settings.pair_tokens, positions_of(config), checkpoint, "pair_tokens")
        width = config.get("hidden_size") if width is None else width
    if width is not None and (settings.edge_dimensions or 0) > width:
        raise GnnRetrievalError(
            f"edge_dimensions is {settings.edge_dimensions}, but edge vectors have {width}: give fewer, or none."
        )


def encode_pairs(
    directory: Path,
    settings: GraphSettings,
    pairs: Pairs,
    edges: Rows,
    device: str,
    carry: Callable[[EdgeVectorFiles], None] | None = None,
    projection: NDArray[np.float32] | None = None,
    shards: tuple[EdgeShards, Sharding] | None = None,
) -> int:
    """Run the cross-encoder over the pairs of ``edges`` and write its output; continues an interrupted run.

    Args:
        directory: The store.
        settings: The cross-encoder, and the form of its vectors.
        pairs: The edges' texts.
        edges: ``(E,)`` edges to compute, sorted by passage.
        device: Where to compute.
        carry: Called once with the new files, to copy the edges that need no computing.
        projection: ``(d + 1, width)`` projection from an earlier version of the store; None: fit one if needed.
        shards: The same pairs in shards, and who runs them; None: they are encoded here.

    Returns:
        Width of the stored vectors; 0 if only probabilities are stored.
    """
    from gnnretrieval.encoders.cross_encoder import CrossEncoder  # importing transformers takes seconds

    encoder = CrossEncoder(settings.cross_encoder_settings, device)
    manifest = scratch(directory) / _MANIFEST
    done = json.loads(manifest.read_text())["done"] if manifest.is_file() else None
    shape = (pairs.neighbors.shape[0], pairs.neighbors.shape[1])
    if done is None and projection is not None:
        save_array(directory / f"{PROJECTION}.npy", projection)
    files = EdgeVectorFiles(directory, settings, shape, encoder.dimension, done is None)
    if done is None:
        # no pair counts as done before the projection is on disk: all vectors must be projected in the same way
        if carry is not None:
            carry(files)
        if settings.edge_vectors != "none" and files.width < encoder.dimension and files.projection is None:
            sample = np.unique(np.linspace(0, max(len(edges) - 1, 0), _SAMPLE).astype(np.int64))
            files.fit_projection(encoder.encode_pairs(*pairs.of(edges[sample])).vectors)
        files.flush()
        done = 0
        record_progress(directory, manifest, {"done": done})
    if shards is not None:
        stage, sharding = shards
        run_stage(stage, sharding)
        for block, vectors, probabilities in stage.blocks(encoder.dimension):
            files.put(block, vectors, probabilities)
        files.flush()
        done = len(edges)
        record_progress(directory, manifest, {"done": done})
    with progress("cross-encoder", len(edges), "pairs", done) as meter:
        for part in blocks(len(edges) - done, PAIRS):
            block = edges[done + part.start : done + part.stop]
            encoded = encoder.encode_pairs(*pairs.of(block))
            files.put(block, encoded.vectors, encoded.probabilities)
            files.flush()
            record_progress(directory, manifest, {"done": done + part.stop})
            meter.advance(len(block))
    if settings.self_loops == "cross-encoder":
        n, m = shape[0], pairs.texts.counts()[0]
        _write_loops(directory, "query", encoder, pairs.texts.texts_of_queries, n, files)
        _write_loops(directory, "passage", encoder, pairs.texts.texts_of_passages, m, files)
    return files.width if settings.edge_vectors != "none" else 0


def pairs_begun(directory: Path) -> bool:
    """Whether an interrupted run left edge vectors to continue from."""
    return (scratch(directory) / _MANIFEST).is_file()


def begin_loops(directory: Path, node: str, known: NDArray[np.float16], count: int) -> None:
    """Start the file of ``count`` self-loop vectors with the known ones; ``node`` is ``query`` or ``passage``."""
    writer = ArrayWriter(directory / f"{node}_loops.npy", (count, known.shape[1]), np.float16)
    for part in blocks(len(known), PAIRS):
        writer.write(known[part])
        release(known)
    writer.close()
    record_progress(directory, scratch(directory) / f"{node}_loops.json", {"done": len(known)})


def _write_loops(
    directory: Path,
    node: str,
    encoder: CrossEncoder,
    texts_of: Callable[[Sequence[int]], list[str]],
    count: int,
    files: EdgeVectorFiles,
) -> None:
    """Write the cross-encoder's vector of each text paired with itself ``(count, width)``."""
    manifest = scratch(directory) / f"{node}_loops.json"
    done = json.loads(manifest.read_text())["done"] if manifest.is_file() else 0
    with (
        ArrayWriter(directory / f"{node}_loops.npy", (count, files.width), np.float16, done) as writer,
        progress(f"cross-encoder, {node} self-loops", count, "pairs", done) as meter,
    ):
        for part in blocks(count - done, PAIRS):
            rows = range(done + part.start, done + part.stop)
            texts = texts_of(list(rows))
            itself = np.repeat(np.arange(len(texts))[:, None], 2, axis=1)
            vectors = encoder.encode_pairs(texts, texts, itself).vectors
            if files.projection is not None:
                vectors = vectors @ files.projection[:-1] + files.projection[-1]
            writer.write(vectors)
            writer.flush()
            record_progress(directory, manifest, {"done": rows.stop})
            meter.advance(len(texts))


def write_given_vectors(
    directory: Path, settings: GraphSettings, vectors: NDArray[np.floating], shape: tuple[int, int]
) -> int:
    """Store edge vectors ``(n, k, d)`` from the user's file; returns the stored width."""
    flat = vectors.reshape(shape[0] * shape[1], -1)
    files = EdgeVectorFiles(directory, settings, shape, flat.shape[1], True)
    if files.width < flat.shape[1]:
        sample = np.unique(np.linspace(0, max(len(flat) - 1, 0), _SAMPLE).astype(np.int64))
        files.fit_projection(np.asarray(flat[sample], dtype=np.float32))
    with progress("edge vectors", len(flat), "edges") as meter:
        for part in blocks(len(flat), PAIRS):
            files.put(np.arange(part.start, part.stop), np.asarray(flat[part], dtype=np.float32), None)
            release(vectors)
            meter.advance(part.stop - part.start)
    files.flush()
    return files.width
