"""The dry run of building a graph in shards: some passages are searched, some pairs are read, nothing is written."""

from __future__ import annotations

import time

import numpy as np

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.encoded_texts import TEXTS
from gnnretrieval.encoders.exact_search import exact_top_k
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.pair_shards import PAIRS
from gnnretrieval.graph.build import require_k, require_sharded
from gnnretrieval.graph.edges.neighbor_shards import ALIGNED, judged_queries
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.shards.engines import Sharding
from gnnretrieval.shards.forecast import Forecast, StageForecast, as_a_worker, measure, spread
from gnnretrieval.shards.stage import parts

_QUERIES = 1024  # queries that are searched for, at most
_PASSAGES = 2**17  # passages that are searched, at most
_READ = 1024  # pairs that are read, at most


def forecast_graph(
    dataset: Dataset, features: Features, settings: GraphSettings, sharding: Sharding, *, device: str = "cpu"
) -> Forecast:
    """What :func:`gnnretrieval.graph.build.build_graph` in shards will take.

    The search is measured for some queries over some passages. If a cross-encoder reads the pairs, it is measured on
    queries with their relevant passages.

    Args:
        dataset: Passages, queries and judgements.
        features: Their vectors.
        settings: Edges and their features.
        sharding: ``shards`` is used.
        device: Where to compute.

    Raises:
        GnnRetrievalError: As :func:`gnnretrieval.graph.build.build_graph`.
    """
    features.require_of(dataset)
    require_k(settings.k, dataset)
    require_sharded(settings)
    ids = judged_queries(dataset, settings.split)
    n, m, d = len(ids), len(dataset.passage_ids), int(features.meta["dimension"])
    begun = time.perf_counter()
    Dataset.open(dataset.path, dataset.qrels, dataset.where)  # every worker does
    begin = time.perf_counter() - begun
    queries = features.queries[features.rows_of([ids[row] for row in spread(n, _QUERIES)])]
    with as_a_worker(device) as worker:
        k = settings.k

        def search(count: int) -> None:
            exact_top_k(queries, features.passages[:count], min(k, count), features.similarity, device=device)

        measured = measure(search, min(m, _PASSAGES), first=ALIGNED)
        shards = len(parts(m, sharding.shards, ALIGNED))
        stages = [
            StageForecast(
                name=f"top-k of {n:,} queries",
                unit="passages",
                units=m,
                shards=shards,
                rate=measured.units / measured.seconds * len(queries) / n,
                measured=int(measured.units),
                begin=begin,
                shard_bytes=12 * n * settings.k * shards,
            )
        ]
        width = 0
        if settings.reads_pairs:
            stage, width = _pairs(dataset, features, settings, sharding, n * settings.k, device)
            stages.append(stage)
    if settings.edge_vectors == "none":
        width = 0
    edge = (settings.edge_dimensions or width) * (1 if settings.edge_form == "int8" else 2)
    cheap = 2 * len(settings.edge_features)
    text = (features.path / TEXTS).stat().st_size
    result = 2 * d * (m + n) + n * settings.k * (16 + cheap + edge) + 8 * m + text
    return Forecast(stages=tuple(stages), result_bytes=result, worker=worker)


def _pairs(
    dataset: Dataset, features: Features, settings: GraphSettings, sharding: Sharding, total: int, device: str
) -> tuple[StageForecast, int]:
    """The cross-encoder's stage, and the width of its vectors."""
    from gnnretrieval.encoders.cross_encoder import CrossEncoder  # importing transformers takes seconds

    begun = time.perf_counter()
    encoder = CrossEncoder(settings.cross_encoder_settings, device)
    begin = time.perf_counter() - begun
    relevant = [
        (query, passage)
        for query, judged in dataset.split(settings.split).items()
        for passage, grade in judged.items()
        if grade > 0
    ]
    sample = [relevant[row] for row in spread(len(relevant), _READ)]
    with TextStore(features.path / TEXTS) as texts:
        query_rows = texts.rows_of_queries([query for query, _ in sample])
        passage_rows = texts.rows_of_passages([passage for _, passage in sample])
        queries = texts.texts_of_queries([query_rows[query] for query, _ in sample])
        passages = texts.texts_of_passages([passage_rows[passage] for _, passage in sample])
    pairs = np.repeat(np.arange(len(sample))[:, None], 2, axis=1)

    def encode(count: int) -> None:
        encoder.encode_pairs(queries[:count], passages[:count], pairs[:count])

    measured = measure(encode, len(sample))
    shards = len(parts(total, sharding.shards, PAIRS))
    stage = StageForecast(
        name="cross-encoder",
        unit="pairs",
        units=total,
        shards=shards,
        rate=measured.units / measured.seconds,
        measured=int(measured.units),
        begin=begin,
        shard_bytes=total * (2 + encoder.dimension * (2 if settings.edge_dimensions is None else 4)),
    )
    return stage, encoder.dimension
