"""``gnnretrieval search`` for many questions at once: TREC runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnnretrieval.cli.output import echo
from gnnretrieval.errors import GnnRetrievalError, InputError, counted

if TYPE_CHECKING:
    from gnnretrieval.data.runs.trec import Run
    from gnnretrieval.index.retriever import Retriever

Named = tuple["Run", str]


def run_of_split(
    data: Path,
    qrels: str,
    where: dict[str, str],
    split: str,
    depth: int,
    *,
    retriever: Retriever | None,
    features: Path | None,
) -> Named:
    """The run on a dataset's split and the system's name; by BM25 without a ``retriever``."""
    from gnnretrieval.data import Dataset
    from gnnretrieval.encoders.bm25 import BM25
    from gnnretrieval.encoders.features import open_features
    from gnnretrieval.index.search import bm25_run, features_vectors

    dataset = Dataset.open(data, qrels, where)
    queries = {query.id: query.text for query in dataset.queries_of(split)}
    if retriever is None:
        bm25 = BM25((passage.full_text for passage in dataset.passages()), total=len(dataset.passage_ids))
        return bm25_run(bm25, queries, dataset.passage_ids, depth), "bm25"
    index = retriever.index
    if index.texts.passage_ids() != dataset.passage_ids:
        raise GnnRetrievalError(f"{index.path}: it indexes other passages than those of {data}. Index this dataset.")
    vectors = None
    if features is not None:
        vectors = features_vectors(index, open_features(features), dataset.texts_hash, list(queries))
    return retriever.run(queries, depth, vectors=vectors), retriever.name


def run_by_maxsim(
    data: Path, qrels: str, where: dict[str, str], split: str, depth: int, features: Path, device: str
) -> Named:
    """The run on a dataset's split by MaxSim over all passages of features by late interaction."""
    from gnnretrieval.data import Dataset
    from gnnretrieval.encoders.features import open_features
    from gnnretrieval.index.late_search import late_run

    dataset, opened = Dataset.open(data, qrels, where), open_features(features)
    opened.require_of(dataset)
    return late_run(opened, [query.id for query in dataset.queries_of(split)], depth, device), "late-interaction"


def run_by_terms(data: Path, qrels: str, where: dict[str, str], split: str, depth: int, features: Path) -> Named:
    """The run on a dataset's split by the weights of terms of sparse features."""
    from gnnretrieval.data import Dataset
    from gnnretrieval.encoders.sparse_features import open_sparse_features
    from gnnretrieval.index.sparse_search import sparse_run

    dataset, opened = Dataset.open(data, qrels, where), open_sparse_features(features)
    opened.require_of(dataset)
    return sparse_run(opened, [query.id for query in dataset.queries_of(split)], depth), "sparse"


def run_of_vectors(retriever: Retriever, vectors: Path, query_ids: Path | None, depth: int) -> Named:
    """The run on questions given as vectors, and the system's name."""
    from gnnretrieval.encoders.vector_file import open_vectors
    from gnnretrieval.index.search import vectors_run

    questions = open_vectors(vectors, query_ids)
    if questions.ids is None:
        raise click.UsageError(f"{vectors} has no ids, and a run needs them: give --query-ids FILE.")
    return vectors_run(retriever.index, questions, depth), retriever.system


def read_questions(path: Path) -> dict[str, str]:
    """Read questions by id, one per line: id, tab, text; or only a text, with the line number as id (``q1``, …).

    Raises:
        InputError: there is no such file, a line lacks its id or its text, or an id is repeated or does not fit into a
            TREC run.
    """
    from gnnretrieval.data.lines import read_lines
    from gnnretrieval.data.runs.trec import UNWRITABLE

    questions: dict[str, str] = {}
    with_ids: bool | None = None
    for number, line in read_lines(path, "questions, one per line"):
        id_, tab, text = line.partition("\t")
        with_ids = bool(tab) if with_ids is None else with_ids
        if bool(tab) != with_ids:
            raise InputError(
                f"this line has {'a' if tab else 'no'} tab, and the lines before it have {'none' if tab else 'one'}: "
                "write id, tab, text in every line, or a text in every line.",
                path,
                number,
            )
        if not with_ids:
            id_, text = f"q{number}", line
        if not text.strip():
            raise InputError(f"question {id_!r} is empty: give some words.", path, number)
        if not id_ or UNWRITABLE.search(id_):
            raise InputError(f"the id {id_!r} is empty or has white space, and cannot be in a TREC run.", path, number)
        if id_ in questions:
            raise InputError(f"the id {id_!r} is repeated: keep one line.", path, number)
        questions[id_] = text.strip()
    if not questions:
        raise InputError("there are no questions in this file: write one per line.", path)
    return questions


def write(run_file: Path, run: Run, system: str) -> None:
    """Write a run, and print how many queries it has."""
    from gnnretrieval.data.runs.trec import write_run

    write_run(run_file, run, system)
    echo(f"{run_file}: {counted(len(run), 'query')} by {system}")


def require_file_place(path: Path) -> None:
    """Check before any work that a file can be written to ``path``."""
    if path.is_dir():
        raise GnnRetrievalError(f"{path}: this is a directory. Name a file for the run.")
    parent = next(parent for parent in path.absolute().parents if parent.exists())
    if not parent.is_dir():
        raise GnnRetrievalError(f"{path}: {parent} is a file, not a directory. Choose another path.")
