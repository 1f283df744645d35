"""The inspection of a dataset: all figures, problems and warnings of ``data inspect``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from gnnretrieval.data.dataset import CORPUS, QUERIES, Dataset
from gnnretrieval.data.inspection.advice import LONG_PASSAGE, warnings_of
from gnnretrieval.data.inspection.leakage import Leakage, SplitFigures, leakage_of, queries_of_passages, split_figures
from gnnretrieval.data.inspection.near_copies import QueryVectors, copy_figures
from gnnretrieval.data.inspection.near_texts import NEAR
from gnnretrieval.data.inspection.report import DatasetReport, FilesReport, NearDuplicatesOfBoth, Repeated
from gnnretrieval.data.inspection.scan import scan_files
from gnnretrieval.data.inspection.text_figures import (
    TextPass,
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
) -> DatasetReport:
    """Figures, problems and warnings of ``dataset``.

    Time is linear in the texts, and in the pairs of a training question and another question of the same passage.
    Memory, in addition to the dataset's ids and judgements, is at most about 130 bytes per text, and the texts of the
    questions of passages that are relevant in train and in another split. Figures from a sample give its size.

    Args:
        dataset: The dataset.
        tokens: An encoder's tokenizer, for lengths in tokens and truncation; None: none.
        vectors: Vectors of the queries, for near copies by cosine; None: none.
        most: Number of examples of each kind, at most.
        seed: Seed of the samples.

    Raises:
        InputError: a file was changed or removed after the dataset was opened, or a query has no vector.
    """
    scan = scan_files(dataset.path, dataset.qrels)
    judged = {name: dataset.split(name) for name in dataset.splits}
    m, n = len(dataset.passage_ids), len(dataset.query_ids)
    passages, queries = _passes(dataset, tokens, seed)
    splits, leakage = split_figures(judged), leakage_of(dataset, judged, queries, most)
    of_train = {pair.split: pair for pair in leakage if pair.of == "train"}
    report = DatasetReport(
        name=dataset.name,
        hash=dataset.hash,
        passages=m,
        queries=n,
        files=scan.files,
        words_per_passage=lengths_of(passages.words),
        long_passages_share=float((passages.words > LONG_PASSAGE).mean()),
        passages_without_title=passages.without_title,
        passages_without_text=int((passages.words == 0).sum()),
        words_per_query=lengths_of(queries.words),
        tokens=tokens_of(tokens, passages, queries),
        duplicate_passages=m - len(passages.first),
        duplicate_queries=n - len(queries.first),
        duplicates=Repeated(
            passages=repeated(passages, dataset.passage_ids, most), queries=repeated(queries, dataset.query_ids, most)
        ),
        near_duplicates=NearDuplicatesOfBoth(
            threshold=NEAR,
            passages=near_figures(passages, dataset.passage_ids, most),
            queries=near_figures(queries, dataset.query_ids, most),
        ),
        unjudged_queries=n - len(set().union(*judged.values())),
        queries_per_passage=queries_of_passages(judged, m, most),
        splits=splits,
        leakage=leakage,
        near_copies=copy_figures(dataset, judged, vectors),
        shared_with_train={
            name: of_train[name].same_text if name in of_train else 0 for name in judged if name != "train"
        },
        test_passages_in_train_share=_share_in_train(splits, of_train),
        ids_with_whitespace=sum(
            id_.split() != [id_] for ids in (dataset.passage_ids, dataset.query_ids) for id_ in ids
        ),
        problems=scan.problems,
        warnings=[],
    )
    return report.model_copy(update={"warnings": list(warnings_of(report))})


def inspect_files(path: str | Path, qrels: str = "qrels") -> FilesReport:
    """The files and problems of a directory that cannot be opened."""
    scan = scan_files(path, qrels)
    return FilesReport(name=Path(path).resolve().name, files=scan.files, problems=scan.problems)


def _passes(dataset: Dataset, tokens: TokenCounter | None, seed: int) -> tuple[TextPass, TextPass]:
    """The passes over the passages and over the queries."""

    def queries() -> Iterator[Passage]:
        return (Passage(query.id, "", query.text) for query in dataset.queries())

    return (
        pass_over(dataset.passages, len(dataset.passage_ids), "passage", dataset.path / CORPUS, tokens, seed),
        pass_over(queries, len(dataset.query_ids), "query", dataset.path / QUERIES, tokens, seed),
    )


def _share_in_train(splits: Mapping[str, SplitFigures], of_train: Mapping[str, Leakage]) -> float | None:
    """Share of the relevant passages of test that are relevant in train; None where either has none."""
    if "test" not in of_train or not splits["test"].relevant_passages or not splits["train"].relevant_passages:
        return None
    return of_train["test"].share
