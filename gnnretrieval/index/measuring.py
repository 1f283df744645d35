"""Measuring recall against exact search and speed of an index on a sample, and choosing the cheapest setting."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.exact_search import exact_top_k, pair_scores
from gnnretrieval.encoders.features import Features, open_features
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.graph.store import open_graph
from gnnretrieval.index.engines import Engine, FaissEngine
from gnnretrieval.index.kinds import search_parameters, vectors_of_graph
from gnnretrieval.progress import progress, say
from gnnretrieval.storage.arrays import gather_rows
from gnnretrieval.training.gnn.embeddings import Embeddings

DEPTHS = (10, 100)  # depths at which recall is measured
_SAMPLE = 400  # queries: half to choose a setting, half to report on
_SINGLE = 100  # maximum number of queries searched one by one
_ROUNDING = 1e-6  # scores this close count as equal: sums of other shapes round differently


class Sample(NamedTuple):
    """Queries with the scores of exact search.

    Attributes:
        queries: ``(q, d)``.
        reached: Scores of the ``K`` best vectors by exact search ``(q, K)``, best first.
    """

    queries: NDArray[np.float32]
    reached: NDArray[np.float32]


class Tuned(NamedTuple):
    """A search setting, with its recall@10 on the sample that it was chosen on."""

    search: str
    recall: float


def queries_of(source: Embeddings | Features, seed: int) -> tuple[NDArray[np.float32], str]:
    """Vectors of queries to measure with ``(q, d)``, and what they are: the dataset's, the graph's, or passages."""
    queries, what = _known_queries(source)
    rows = np.random.default_rng(seed).permutation(len(queries))[:_SAMPLE]
    return gather_rows(queries, rows), what


def _known_queries(source: Embeddings | Features) -> tuple[NDArray[np.floating], str]:
    queries: NDArray[np.floating] | None = None
    what = ""
    try:
        if isinstance(source, Features):
            queries, what = source.queries, "of the dataset's queries"
        else:
            graph = open_graph(source.made_from("graph"))
            if "features" not in source.meta["made_from"]:
                queries, what = graph.query_features, "of the graph's queries"
            owner = source if "features" in source.meta["made_from"] else graph
            features = open_features(owner.made_from("features"))
            if features.hash == owner.meta["inputs"].get("features"):
                queries, what = features.queries, "of the dataset's queries"
    except GnnRetrievalError:  # moved or deleted since: use what was opened before
        pass
    if queries is None or len(queries) < 2:
        return source.passages, "passages: no queries are known"
    return queries, what


def sample_of(
    queries: NDArray[np.float32], vectors: NDArray[np.floating], similarity: Similarity
) -> tuple[Sample, Sample]:
    """Halves of ``queries`` ``(q, d)``, to choose and to report on, with exact scores over ``vectors`` ``(m, d)``."""
    k = min(max(DEPTHS), len(vectors))
    if not k:
        nothing = Sample(queries[:0], np.empty((0, 0), dtype=np.float32))
        return nothing, nothing
    with progress("exact search to measure by", len(vectors), "vectors") as meter:
        _, scores = exact_top_k(queries, vectors, k, similarity, advance=meter.advance)
    # recall on the queries that chose a setting would be too high, so the other half reports it
    half = len(queries) // 2
    return Sample(queries[:half], scores[:half]), Sample(queries[half:], scores[half:])


def recall(
    retrieved: NDArray[np.int64],
    sample: Sample,
    vectors: NDArray[np.floating],
    similarity: Similarity,
    k: int,
) -> float:
    """Recall at ``k`` of ``retrieved`` rows ``(q, ≥ k)``: the share that score as high as the exact k-th best."""
    k = min(k, sample.reached.shape[1])
    rows = retrieved[:, :k]
    own = pair_scores(
        sample.queries[:, None], gather_rows(vectors, np.maximum(rows, 0).ravel()).reshape(*rows.shape, -1), similarity
    )
    cut = sample.reached[:, k - 1 : k]
    return float(((rows >= 0) & (own >= cut - _ROUNDING * np.maximum(1, np.abs(cut)))).mean())


def measure(engine: Engine, sample: Sample, vectors: NDArray[np.floating], similarity: Similarity) -> dict[str, Any]:
    """Recall at 10 and 100, median milliseconds of a single query, and queries per second of one large batch."""
    queries = np.ascontiguousarray(similarity.prepare_array(sample.queries))
    # Each depth is searched separately: an approximate search to a greater depth is more thorough.
    figures: dict[str, Any] = {
        f"recall@{k}": recall(engine.search(queries, k)[0], sample, vectors, similarity, k) for k in DEPTHS
    }
    k, single = DEPTHS[0], []
    for number in range(min(_SINGLE, len(queries))):
        begun = time.perf_counter()
        engine.search(queries[number : number + 1], k)
        single.append(time.perf_counter() - begun)
    begun = time.perf_counter()
    engine.search(queries, k)
    together = time.perf_counter() - begun
    return figures | {
        "milliseconds": 1000 * statistics.median(single),
        "queries_per_second": len(queries) / together,
    }


def cheapest(
    index: Any,
    sample: Sample,
    vectors: NDArray[np.floating],
    similarity: Similarity,
    target: float,
    *,
    strict: bool,
) -> Tuned:
    """Choose the fastest search setting of a FAISS index that reaches recall@10 of ``target`` on a sample.

    Every combination of the other parameters is tried, and for each the last parameter is raised until the target is
    reached.

    Args:
        index: The FAISS index; it keeps the last setting tried.
        sample: Queries to choose on.
        vectors: The vectors that it indexes ``(m, d)``.
        similarity: How they are compared.
        target: Recall@10 to reach.
        strict: Raise if no setting reaches the target; else return the setting of the best recall.

    Raises:
        InputError: No setting reaches the target, and ``strict`` is True.
    """
    queries = np.ascontiguousarray(similarity.prepare_array(sample.queries))
    *others, (raised, values) = search_parameters(index).items() or [("", (0,))]
    tried: list[tuple[float, Tuned]] = []
    for fixed in itertools.product(*(steps for _, steps in others)):
        kept = [f"{name}={value}" for (name, _), value in zip(others, fixed, strict=True)]
        for value in values:
            setting = ",".join([*kept, *([f"{raised}={value}"] if raised else [])])
            engine = FaissEngine(index, setting)
            begun = time.perf_counter()
            rows, _ = engine.search(queries, DEPTHS[0])
            seconds = time.perf_counter() - begun
            tried.append((seconds, Tuned(setting, recall(rows, sample, vectors, similarity, DEPTHS[0]))))
            if tried[-1][1].recall >= target:
                break
    reaching = [(seconds, tuned) for seconds, tuned in tried if tuned.recall >= target]
    if reaching:
        _, chosen = min(reaching, key=lambda timed: timed[0])
        if chosen.search:
            say(f"{chosen.search} reaches recall@10 {chosen.recall:.3f} of the {target:g} wanted")
        return chosen
    best = max((tuned for _, tuned in tried), key=lambda tuned: tuned.recall)
    message = f"the best search setting{f', {best.search},' if best.search else ''} reaches recall@10 {best.recall:.3f}"
    if strict:
        raise InputError(
            f"{message}, and {target:g} is wanted: give a factory that loses less, such as "
            "IVF1024,SQ8 or one that ends in RFlat, or a lower target."
        )
    loses = "codes lose" if vectors_of_graph(index) is None else "links miss"
    say(f"{message}: its {loses} the rest")
    return best
