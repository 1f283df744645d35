"""Candidates for mining: the passages that a search retrieves for each query, and their texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.text_store import TextStore
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks
from gnnretrieval.storage.artifacts import whole_file
from gnnretrieval.storage.places import scratch

if TYPE_CHECKING:
    from gnnretrieval.encoders.features import Features

_SCORES = 2**25  # scores of a block of queries: 400 MiB with their rows
_QUERIES = 1024  # queries per BM25 search

Retrieved = tuple[NDArray[np.int64], NDArray[np.float32]]  # rows and scores of a query's retrieved passages, best first


def open_texts(dataset: Dataset, directory: Path, features: Features | None = None) -> TextStore:
    """The dataset's texts by row, from ``features`` or from a scratch file of the unfinished artifact ``directory``."""
    from gnnretrieval.encoders.encoded_texts import TEXTS
    from gnnretrieval.encoders.features import write_texts  # importing torch takes seconds

    if features is not None:
        return TextStore(features.path / TEXTS)
    path = scratch(directory) / TEXTS
    if not path.is_file():
        with whole_file(path) as partial:
            write_texts(partial, dataset)
    return TextStore(path)


def search(
    texts: TextStore, queries: Sequence[int], k: int, directory: Path, features: Features | None, device: str
) -> Iterator[Retrieved]:
    """Retrieve at most ``k`` passages for each query.

    Args:
        texts: The dataset's texts.
        queries: Rows of the queries.
        k: Maximum number of passages per query.
        directory: The unfinished artifact; an interrupted search continues from its scratch files there.
        features: Vectors to search by: a passage's score is that of its vector, of its tokens if the features are by
            token (late interaction), or of its best sentence if they are by sentence. None: BM25.
        device: Where to compute similarities.

    Yields:
        Rows and scores of each query's passages, best first, in the order of ``queries``.
    """
    if features is None:
        return _by_bm25(texts, queries, k, directory)
    if features.has_tokens:
        from gnnretrieval.encoders.late_search import late_top_k

        return late_top_k(features, queries, k, device)
    if features.has_sentences:
        return _by_sentences(features, queries, k, device)
    return _by_passages(features, queries, k, directory, device)


def _by_bm25(texts: TextStore, queries: Sequence[int], k: int, directory: Path) -> Iterator[Retrieved]:
    from gnnretrieval.encoders.bm25 import BM25

    passages = (passage.full_text for passage in texts.passages())
    bm25 = BM25(passages, total=texts.counts()[0], directory=scratch(directory) / "bm25")
    with progress("BM25", len(queries), "queries") as meter:
        for part in blocks(len(queries), _QUERIES):
            yield from bm25.top_k_of(texts.texts_of_queries(queries[part]), k, meter.advance)


def _by_passages(
    features: Features, queries: Sequence[int], k: int, directory: Path, device: str
) -> Iterator[Retrieved]:
    from gnnretrieval.encoders.exact_search import exact_top_k

    passages, vectors = features.passages, features.queries
    k = min(k, len(passages))
    for number, part in enumerate(blocks(len(queries), max(1, _SCORES // k))):
        state = scratch(directory) / f"search-{number}"
        state.mkdir(exist_ok=True)
        with progress("searching", len(passages), "passages") as meter:
            rows, scores = exact_top_k(
                vectors[np.asarray(queries[part])],
                passages,
                k,
                features.similarity,
                device=device,
                advance=meter.advance,
                resume=state,
            )
        yield from zip(rows, scores, strict=True)


def _by_sentences(features: Features, queries: Sequence[int], k: int, device: str) -> Iterator[Retrieved]:
    """Score each passage by its best sentence, among as many top sentences as ``k`` passages have on average."""
    from gnnretrieval.encoders.exact_search import exact_top_k

    starts, sentences, vectors = np.asarray(features.sentence_starts), features.sentences, features.queries
    most = max(1, min(len(sentences), round(k * len(sentences) / (len(starts) - 1))))
    for part in blocks(len(queries), max(1, _SCORES // most)):
        with progress("searching", len(sentences), "sentences") as meter:
            retrieved = exact_top_k(
                vectors[np.asarray(queries[part])],
                sentences,
                most,
                features.similarity,
                device=device,
                advance=meter.advance,
            )
        for rows, scores in zip(*retrieved, strict=True):
            passages = np.searchsorted(starts, rows, side="right") - 1
            first = np.sort(np.unique(passages, return_index=True)[1])[:k]  # each passage's first, so best, sentence
            yield passages[first], scores[first]
