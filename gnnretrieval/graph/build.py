"""Building a graph store: each training query is joined to its top-k passages (§3.2)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.runs.trec import Run, read_run
from gnnretrieval.data.text_store import QueryRow, TextStore, passage_rows
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.features import Features, encoder_records
from gnnretrieval.encoders.pair_shards import seen_by_workers
from gnnretrieval.errors import GnnRetrievalError, InputError, counted
from gnnretrieval.graph.edges.features import write_cheap_features
from gnnretrieval.graph.edges.labels import arrays_before_labels, with_labels
from gnnretrieval.graph.edges.neighbor_shards import NeighborShards, judged_queries
from gnnretrieval.graph.edges.neighbors import by_dual_encoder, by_source, scores_of
from gnnretrieval.graph.edges.pair_shards import EdgeShards
from gnnretrieval.graph.edges.pair_texts import Pairs
from gnnretrieval.graph.edges.pairs import encode_pairs, require_pairs, write_given_vectors
from gnnretrieval.graph.edges.sources import Wanted
from gnnretrieval.graph.edges.vector_files import require_kept
from gnnretrieval.graph.growth.known_neighbors import neighbors_from
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.store import KIND, TEXTS, Graph, open_graph, passage_side, relevant_pairs
from gnnretrieval.progress import progress, say
from gnnretrieval.shards.engines import Sharding, run_stage
from gnnretrieval.shards.stage import Shard, discard_shards, one_shard, shard_directory
from gnnretrieval.storage.arrays import load_array, map_npy, save_array
from gnnretrieval.storage.artifacts import relative_to, share_file
from gnnretrieval.storage.making import fingerprint, make_artifact, record_progress
from gnnretrieval.storage.places import scratch
from gnnretrieval.storage.provenance import sha256_of_file, sha256_of_json
from gnnretrieval.storage.purged import require_unpurged

BM25_FOLDER = "bm25"


class _Sources(NamedTuple):
    """Inputs of a graph besides its settings."""

    dataset: Dataset
    features: Features
    run: Run | None
    edge_file: NDArray[np.floating] | None
    shards: tuple[NeighborShards, Sharding] | None
    known: Graph | None


def build_graph(
    dataset: Dataset,
    features: Features,
    settings: GraphSettings,
    out: str | Path,
    *,
    run: str | Path | None = None,
    edge_file: str | Path | None = None,
    device: str = "cpu",
    sharding: Sharding | None = None,
    known: Graph | None = None,
    overwrite: bool = False,
) -> Graph:
    """Build the graph store ``out`` over the queries of one split. After an interruption, the same call continues.

    Args:
        dataset: Passages, queries and judgements.
        features: Vectors of these passages and queries.
        settings: Edges and their features.
        out: Directory of the store.
        run: TREC run with the passages that each query is joined to, for ``edges = run``.
        edge_file: ``.npy`` file of edge vectors ``(n, k, d_e)`` or ``(n * k, d_e)``, for ``edge_vectors = file``.
        device: Where to compute.
        sharding: Search the passages in shards, by several processes or machines; the graph is the same. None: in this
            process.
        known: An earlier graph. Its retrieved lists are used again where nothing changed; the graph is the same.
        overwrite: Replace a graph made from other inputs.

    Raises:
        ArtifactError: ``features`` were made from other texts than the dataset's.
        InputError: The run or the edge vectors cannot be used.
        GnnRetrievalError: ``k`` is above the number of passages, or no query has a relevant passage.
    """
    require_unpurged(features)
    features.require_of(dataset)
    require_k(settings.k, dataset)
    _require_files(settings, run, edge_file)
    qrels, query_ids = dataset.split(settings.split), judged_queries(dataset, settings.split)
    if sharding is not None:
        require_sharded(settings)
    shape = (len(query_ids), settings.k)
    given = _edge_vectors(Path(edge_file), shape, settings.edge_form) if edge_file is not None else None
    shards = (
        None if sharding is None else (_shards(dataset, features, settings, out, sharding.shards, device), sharding)
    )
    sources = _Sources(dataset, features, read_run(run) if run is not None else None, given, shards, known)
    require_pairs(settings, given)

    def write(directory: Path) -> dict[str, Any]:
        figures = _write_store(directory, sources, settings, query_ids, qrels, device)
        return {
            "num_passages": len(dataset.passage_ids),
            "num_queries": len(query_ids),
            **figures,
            "similarity": features.meta["similarity"],
            **encoder_records(features.meta),
            "dataset": dataset.provenance(),
            "made_from": {
                "dataset": relative_to(out, dataset.path),
                "features": relative_to(out, features.path),
            },
        }

    artifact = make_artifact(
        out,
        KIND,
        inputs=_inputs(dataset, features, settings, run, edge_file),
        config=settings.model_dump(mode="json"),
        write=write,
        overwrite=overwrite,
    )
    discard_shards(Path(out))
    return open_graph(artifact.path)


def _inputs(
    dataset: Dataset, features: Features, settings: GraphSettings, run: str | Path | None, edge_file: str | Path | None
) -> dict[str, str]:
    """Hashes of everything that the graph is made from."""
    inputs = {"dataset": dataset.hash, "features": features.hash}
    for name, file in (("run", run), ("edge file", edge_file)):
        if file is not None:
            inputs[name] = sha256_of_file(Path(file))
    if settings.reads_pairs:
        inputs["cross-encoder"] = find_checkpoint(str(settings.cross_encoder)).hash
    return inputs


def search_shard(
    dataset: Dataset,
    features: Features,
    settings: GraphSettings,
    out: str | Path,
    shard: Shard,
    *,
    device: str = "cpu",
    storage: str | None = None,
) -> list[Path]:
    """Search one shard of the passages for the graph ``out``. :func:`build_graph` with as many shards then builds it.

    Args:
        dataset: Passages, queries and judgements.
        features: Their vectors.
        settings: ``k`` and ``split`` are used.
        out: Directory of the store.
        shard: The shard.
        device: Where to compute.
        storage: As of :class:`Sharding`.

    Returns:
        The shard's file, which is in the storage if one is given; an empty list if the passages are too few for so many
        shards.

    Raises:
        GnnRetrievalError: As :func:`build_graph`.
    """
    features.require_of(dataset)
    require_k(settings.k, dataset)
    require_sharded(settings)
    stage = _shards(dataset, features, settings, out, shard.total, device)
    if shard.number >= len(stage.parts):
        return []
    run_stage(one_shard(stage, shard.number), Sharding(shards=1, storage=storage), partly=True)
    return [stage.path(shard.number)]


def _shards(
    dataset: Dataset, features: Features, settings: GraphSettings, out: str | Path, count: int, device: str
) -> NeighborShards:
    decides = {"k": settings.k, "split": settings.split}
    return NeighborShards(
        dataset=dataset.place,
        features=features.path.resolve(),
        features_hash=features.hash,
        split=settings.split,
        k=settings.k,
        total=len(dataset.passage_ids),
        count=count,
        directory=shard_directory(
            Path(out), fingerprint(KIND, {"dataset": dataset.hash, "features": features.hash}, decides)
        ),
        device=device,
    )


def _edge_shards(
    directory: Path, settings: GraphSettings, total: int, search: NeighborShards, count: int
) -> EdgeShards:
    """The shards of the cross-encoder's pairs in a half-made store, beside those of the search for its edges."""
    weights = find_checkpoint(str(settings.cross_encoder)).hash
    decides = {"settings": settings.model_dump(mode="json", exclude={"cross_encoder"}), "cross-encoder": weights}
    as_stored = settings.edge_form == "float16" and settings.edge_dimensions is None
    return EdgeShards(
        settings=seen_by_workers(settings.cross_encoder_settings),
        weights=weights,
        total=total,
        count=count,
        directory=search.directory / sha256_of_json(decides)[:16],
        device=search.device,
        vectors="float16" if as_stored else "float32",
        probabilities="float16",
        text_store=directory.resolve() / TEXTS,
        neighbors=directory.resolve() / "neighbors.npy",
        edges=directory.resolve() / "passage_edges.npy",
    )


def require_sharded(settings: GraphSettings) -> None:
    """Check that these edges can be searched in shards.

    Raises:
        InputError: They cannot.
    """
    if settings.source is not None or settings.search != "exact":
        raise InputError(
            "shards are of the dual-encoder's exact search: leave out shards, search and edges (--shards, --search and "
            "--edges)."
        )


def require_k(k: int, dataset: Dataset) -> None:
    """Refuse a ``k`` above the number of passages."""
    if k > len(dataset.passage_ids):
        raise GnnRetrievalError(
            f"k is {k}, but {dataset.path} has only {counted(len(dataset.passage_ids), 'passage')}: give a smaller k."
        )


def _require_files(settings: GraphSettings, run: str | Path | None, edge_file: str | Path | None) -> None:
    if settings.takes_run != (run is not None):
        raise GnnRetrievalError("edges = run and a run file (--run FILE) go together: give both or neither.")
    if (settings.edge_vectors == "file") != (edge_file is not None):
        raise GnnRetrievalError("edge_vectors = file and a file (--edge-file FILE) go together: give both or neither.")


def _edge_vectors(path: Path, shape: tuple[int, int], form: str) -> NDArray[np.floating]:
    """The edge vectors of a file ``(n, k, d_e)``, memory-mapped; ``form`` is how they will be kept."""
    try:
        array = map_npy(path)
    except FileNotFoundError:
        raise InputError("no such file; expected a .npy file of edge vectors.", path) from None
    except (ValueError, OSError) as error:
        raise InputError(f"this is not a .npy file of numbers ({error}).", path) from None
    n, k = shape
    if array.dtype.kind != "f" or array.ndim not in (2, 3):
        raise InputError(
            f"found {array.dtype} {array.shape}, wanted floats ({n:,}, {k}, width) or ({n * k:,}, width).", path
        )
    if array.shape[:-1] not in ((n, k), (n * k,)):
        raise InputError(
            f"found {array.shape}, wanted ({n:,}, {k}, width) or ({n * k:,}, width): a vector for each of the "
            f"{n:,} queries' {k} passages, in the order of the graph.",
            path,
        )
    if not array.shape[-1]:
        raise InputError(f"found {array.shape}: vectors without a number.", path)
    vectors: NDArray[np.floating] = array.reshape(n, k, -1)
    require_kept(vectors, form, path)
    return vectors


def _write_store(
    directory: Path,
    sources: _Sources,
    settings: GraphSettings,
    query_ids: list[str],
    qrels: dict[str, dict[str, int]],
    device: str,
) -> dict[str, Any]:
    """Write all files of the store, step by step; a step that is done is not repeated. Returns figures for the meta."""

    def once(name: str, make: Callable[[], None]) -> None:
        done = scratch(directory) / f"{name}.done"
        if not done.is_file():
            make()
            record_progress(directory, done, True)

    once("texts", lambda: _write_texts(directory / TEXTS, sources.dataset, query_ids, qrels, settings.split))
    once("features", lambda: _write_node_features(directory, sources, query_ids))
    bm25 = open_bm25(directory, settings, once)
    once("neighbors", lambda: _write_neighbors(directory, sources, settings, query_ids, device))
    neighbors, scores = load_array(directory / "neighbors.npy"), load_array(directory / "scores.npy")
    with TextStore(directory / TEXTS) as texts:
        width = _write_edge_vectors(directory, sources, settings, Pairs(texts, neighbors), device)
        write_cheap_features(directory, settings, texts, neighbors, scores, bm25)
    return {"edge_vectors": width, "filled": int((scratch(directory) / "filled").read_text())}


def _write_node_features(directory: Path, sources: _Sources, query_ids: list[str]) -> None:
    features = sources.features
    save_array(directory / "query_features.npy", features.queries[features.rows_of(query_ids)])
    assert len(features.passages) == len(sources.dataset.passage_ids)  # opened here, so that a damaged one is refused
    share_file(features.path / "passages.npy", directory / "passage_features.npy")


def _write_neighbors(
    directory: Path, sources: _Sources, settings: GraphSettings, query_ids: list[str], device: str
) -> None:
    """Write both sides of the edges with their scores, and the number of edges that the dual-encoder filled up."""
    rows, scores, filled = _neighbors(directory, sources, settings, query_ids, device)
    if settings.label_edges:
        with TextStore(directory / TEXTS) as texts:
            labels = relevant_pairs(texts)
        vectors = (load_array(directory / "query_features.npy"), load_array(directory / "passage_features.npy"))
        labelled = with_labels(rows, scores, labels, *vectors, sources.features.similarity)
        for name, array in arrays_before_labels(labelled.changed, rows, scores).items():
            save_array(directory / f"{name}.npy", array)
        rows, scores = labelled.rows, labelled.scores
        if labelled.put_in:
            say(
                f"added edges for {labelled.put_in:,} of {len(labels):,} labels: "
                f"these passages were not among the {settings.k} retrieved"
            )
    neighbors = rows.astype(np.uint32)
    save_array(directory / "scores.npy", scores)
    save_array(directory / "neighbors.npy", neighbors)
    indptr, edges = passage_side(neighbors, len(sources.dataset.passage_ids))
    save_array(directory / "passage_indptr.npy", indptr)
    save_array(directory / "passage_edges.npy", edges)
    (scratch(directory) / "filled").write_text(str(filled))


def _write_edge_vectors(directory: Path, sources: _Sources, settings: GraphSettings, pairs: Pairs, device: str) -> int:
    """Write the vectors and probabilities of the edges; returns the width of the vectors, 0 without any."""
    width = 0
    if settings.reads_pairs:
        edges = load_array(directory / "passage_edges.npy")
        shards = None
        if sources.shards is not None:
            search, sharding = sources.shards
            shards = _edge_shards(directory, settings, len(edges), search, sharding.shards), sharding
        width = encode_pairs(directory, settings, pairs, edges, device, shards=shards)
    if sources.edge_file is not None:
        width = write_given_vectors(directory, settings, sources.edge_file, pairs.neighbors.shape)
    return width


def open_bm25(directory: Path, settings: GraphSettings, once: Callable[[str, Callable[[], None]], None]) -> BM25 | None:
    """The BM25 index of a store, built if it is missing; None if neither edges nor edge features need one."""
    if not settings.keeps_bm25:
        return None
    folder = directory / BM25_FOLDER

    def build() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        with TextStore(directory / TEXTS) as texts:
            BM25((passage.full_text for passage in texts.passages()), total=texts.counts()[0], directory=folder)

    once("bm25", build)
    return BM25.open(folder)


def _neighbors(
    directory: Path,
    sources: _Sources,
    settings: GraphSettings,
    query_ids: list[str],
    device: str,
) -> tuple[NDArray[np.int64], NDArray[np.float32], int]:
    """Neighbours and scores ``(n, k)``, and the number of edges that the dual-encoder filled up."""
    queries, passages = load_array(directory / "query_features.npy"), load_array(directory / "passage_features.npy")
    similarity, k = sources.features.similarity, settings.k
    if sources.shards is not None:
        stage, sharding = sources.shards
        run_stage(stage, sharding)
        return *stage.merge(), 0
    if settings.source is None and settings.search == "exact" and sources.known is not None:
        ids = query_ids, sources.dataset.passage_ids
        return *neighbors_from(sources.known, ids, queries, passages, k, similarity, device), 0
    if settings.source is None:
        return *by_dual_encoder(queries, passages, settings, similarity, device, scratch(directory)), 0
    bm25 = BM25.open(directory / BM25_FOLDER) if settings.source.keeps_bm25 else None
    with TextStore(directory / TEXTS) as texts:
        wanted = Wanted(range(len(query_ids)), query_ids, texts, k, bm25, sources.run)
        rows, filled = by_source(settings, wanted, queries, passages, similarity, device)
    return rows, scores_of(rows, queries, passages, similarity), filled


def _write_texts(
    path: Path, dataset: Dataset, query_ids: list[str], qrels: dict[str, dict[str, int]], split: str
) -> None:
    """Write ids, texts and judgements to the SQLite file ``path``."""
    row_of = {id_: row for row, id_ in enumerate(dataset.passage_ids)}
    text_of = {query.id: query.text for query in dataset.queries_of(split)}
    with TextStore(path, create=True) as store, progress("texts", len(row_of), "passages") as meter:
        store.add_passages(meter.each(passage_rows(dataset.passages())))
        store.add_queries(QueryRow(row, id_, text_of[id_], split) for row, id_ in enumerate(query_ids))
        store.add_qrels(
            (row, row_of[passage], relevance)
            for row, id_ in enumerate(query_ids)
            for passage, relevance in qrels[id_].items()
        )
