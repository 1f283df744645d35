"""The inspection of a dataset: all figures, problems and warnings of ``data inspect``, as JSON values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnnretrieval.data.dataset import CORPUS, QUERIES, Dataset
from gnnretrieval.data.inspection.advice import LONG_PASSAGE, warnings_of
from gnnretrieval.data.inspection.leakage import leakage_of, queries_of_passages, split_figures
from gnnretrieval.data.inspection.near_copies import QueryVectors, copy_figures
from gnnretrieval.data.inspection.near_texts import NEAR
from gnnretrieval.data.inspection.scan import scan_files
from gnnretrieval.data.inspection.text_figures import (
    TokenCounter,
    lengths_of,
    near_figures,
    pass_over,
    repeated,
    tokens_of,
)
from gnnretrieval.data.records import Passage


def inspect_dataset(
    dataset: Dataset,
    tokens: TokenCounter | None = None,
    vectors: QueryVectors | None = None,
    *,
    most: int = 3,
    seed: int = 0,
) -> dict[str, Any]:
    """Figures of ``dataset`` as JSON values; shares are between 0 and 1, and relevant means a relevance above 0.

    Time is linear in the texts, and in the pairs of a training question and another question of the same passage.
    Memory, in addition to the dataset's ids and judgements, is at most about 130 bytes per text, and the texts of
    questions whose passage is relevant in train and in another split. Figures from a sample give its size.

    Args:
        dataset: The dataset.
        tokens: An encoder's tokenizer, for lengths in tokens and truncation; None: none.
        vectors: Vectors of the queries, for near copies by cosine; None: none.
        most: Number of examples of each kind, at most.
        seed: Seed of the samples.

    Returns:
        The figures that docs/datasets.md describes, which are ``name``, ``hash``, ``passages``, ``queries``, ``files``,
        ``problems`` (:func:`~gnnretrieval.data.inspection.scan.scan_files`), ``words_per_passage`` (without title) and
        ``words_per_query`` (:func:`~gnnretrieval.data.inspection.text_figures.lengths_of`), ``long_passages_share``
        (over ``LONG_PASSAGE`` words), ``passages_without_title``, ``passages_without_text``, ``tokens`` (None without a
        tokenizer; else ``encoder``, ``passages`` and ``queries``,
        :func:`~gnnretrieval.data.inspection.text_figures.tokens_of`), ``duplicate_passages`` and ``duplicate_queries``
        (those whose normalised text an earlier one has), ``duplicates`` (examples), ``near_duplicates`` (``threshold``,
        ``passages`` and ``queries``, :func:`~gnnretrieval.data.inspection.text_figures.near_figures`),
        ``unjudged_queries``, ``queries_per_passage``
        (:func:`~gnnretrieval.data.inspection.leakage.queries_of_passages`), ``splits``
        (:func:`~gnnretrieval.data.inspection.leakage.split_figures`), ``leakage``
        (:func:`~gnnretrieval.data.inspection.leakage.leakage_of`), ``near_copies``
        (:func:`~gnnretrieval.data.inspection.near_copies.copy_figures`), ``shared_with_train`` (by split: queries whose
        normalised text a train query has), ``test_passages_in_train_share`` (of the relevant passages of test, those
        relevant to a train query too; None where either split is missing), ``ids_with_whitespace``, ``warnings``
        (sentences that say what to do).

    Raises:
        InputError: a file was changed or removed after the dataset was opened, or a query has no vector.
    """
    scan = scan_files(dataset.path, dataset.qrels)
    judged = {name: dataset.split(name) for name in dataset.splits}
    m, n = len(dataset.passage_ids), len(dataset.query_ids)
    passages = pass_over(dataset.passages, m, "passage", dataset.path / CORPUS, tokens, seed)
    queries = pass_over(
        lambda: (Passage(query.id, "", query.text) for query in dataset.queries()),
        n,
        "query",
        dataset.path / QUERIES,
        tokens,
        seed,
    )
    splits = split_figures(judged)
    leakage = leakage_of(dataset, judged, queries, most)
    of_train = {pair["split"]: pair for pair in leakage if pair["of"] == "train"}
    known = "test" in of_train and splits["test"]["relevant_passages"] and splits["train"]["relevant_passages"]
    figures: dict[str, Any] = {
        "name": dataset.name,
        "hash": dataset.hash,
        "passages": m,
        "queries": n,
        "files": scan.files,
        "words_per_passage": lengths_of(passages.words),
        "long_passages_share": float((passages.words > LONG_PASSAGE).mean()),
        "passages_without_title": passages.without_title,
        "passages_without_text": int((passages.words == 0).sum()),
        "words_per_query": lengths_of(queries.words),
        "tokens": tokens
        and {
            "encoder": tokens.name,
            "passages": tokens_of(passages, tokens.limits["passage"]),
            "queries": tokens_of(queries, tokens.limits["query"]),
        },
        "duplicate_passages": m - len(passages.first),
        "duplicate_queries": n - len(queries.first),
        "duplicates": {
            "passages": repeated(passages, dataset.passage_ids, most),
            "queries": repeated(queries, dataset.query_ids, most),
        },
        "near_duplicates": {
            "threshold": NEAR,
            "passages": near_figures(passages, dataset.passage_ids, most),
            "queries": near_figures(queries, dataset.query_ids, most),
        },
        "unjudged_queries": n - len(set().union(*judged.values())),
        "queries_per_passage": queries_of_passages(judged, m, most),
        "splits": splits,
        "leakage": leakage,
        "near_copies": copy_figures(dataset, judged, vectors),
        "shared_with_train": {
            name: of_train[name]["same_text"] if name in of_train else 0 for name in judged if name != "train"
        },
        "test_passages_in_train_share": of_train["test"]["share"] if known else None,
        "ids_with_whitespace": sum(
            id_.split() != [id_] for ids in (dataset.passage_ids, dataset.query_ids) for id_ in ids
        ),
        "problems": [problem.as_json() for problem in scan.problems],
    }
    return {**figures, "warnings": list(warnings_of(figures))}


def inspect_files(path: str | Path, qrels: str = "qrels") -> dict[str, Any]:
    """Only ``name``, ``files`` and ``problems`` of :func:`inspect_dataset`, for a directory that cannot be opened."""
    scan = scan_files(path, qrels)
    return {
        "name": Path(path).resolve().name,
        "files": scan.files,
        "problems": [problem.as_json() for problem in scan.problems],
    }
