"""``gnnretrieval search`` for many questions at once: TREC runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnnretrieval.errors import GnnRetrievalError, InputError

if TYPE_CHECKING:
    from gnnretrieval.data.trec import Run
    from gnnretrieval.index.engines import EngineName
    from gnnretrieval.index.faiss_index import PassageIndex
    from gnnretrieval.index.hybrid import RankingSettings

Named = tuple["Run", str]


class Ranking:
    """Runs by an index, and by what joins it.

    Args:
        index: The index.
        engine: What searches it.
        device: Where is encoded, searched and reranked.
        joining: The options of hybrid search and reranking.
        depth: Passages a question.
    """

    def __init__(self, index: Path, engine: EngineName, device: str, joining: dict[str, Any], depth: int) -> None:
        self.index, self.engine, self.device = index, engine, device
        self.joining, self.depth = joining, depth

    def of_questions(self, path: Path) -> Named:
        """The run of a file of questions, and the system's name."""
        queries = read_questions(path)
        opened = self._open()
        return self._run(opened, queries, self._encoded(opened, queries))

    def of_split(
        self,
        data: Path,
        qrels: str,
        where: dict[str, str],
        split: str,
        features: Path | None,
        use_bm25: bool,
    ) -> Named:
        """The run of a dataset's split, and the system's name."""
        from gnnretrieval.data import Dataset
        from gnnretrieval.encoders.bm25 import BM25
        from gnnretrieval.encoders.features import open_features
        from gnnretrieval.index.search import bm25_run, features_vectors

        dataset = Dataset.open(data, qrels, where)
        queries = {query.id: query.text for query in dataset.queries_of(split)}
        if use_bm25:
            bm25 = BM25((passage.full_text for passage in dataset.passages()), total=len(dataset.passage_ids))
            return bm25_run(bm25, queries, dataset.passage_ids, self.depth), "bm25"
        opened = self._open()
        if opened.texts.passage_ids() != dataset.passage_ids:
            raise GnnRetrievalError(f"{self.index}: it indexes other passages than {data} has. Index this dataset's.")
        if features is not None:
            vectors = features_vectors(opened, open_features(features), dataset.texts_hash, list(queries))
        else:
            vectors = self._encoded(opened, queries)
        return self._run(opened, queries, vectors)

    def of_vectors(self, vectors: Path, query_ids: Path | None) -> Named:
        """The run of questions given as vectors, and the system's name."""
        from gnnretrieval.encoders.vector_file import open_vectors
        from gnnretrieval.index.search import vectors_run

        opened, questions = self._open(), open_vectors(vectors, query_ids)
        if questions.ids is None:
            raise click.UsageError(f"{vectors} has no ids, which a run needs: give them with --query-ids FILE.")
        return vectors_run(opened, questions, self.depth), opened.meta["system"]

    def _open(self) -> PassageIndex:
        from gnnretrieval.index.faiss_index import open_index

        return open_index(self.index, engine=self.engine, device=self.device)

    def _encoded(self, opened: PassageIndex, queries: dict[str, str]) -> Any:
        from gnnretrieval.index.search import Searcher

        return Searcher(opened, self.device).encode_all(list(queries.values()))

    def _run(self, opened: PassageIndex, queries: dict[str, str], vectors: Any) -> Named:
        from gnnretrieval.index.hybrid import Ranker

        settings = ranking_settings(self.joining)
        found = Ranker(opened, settings, self.device).run(queries, vectors, self.depth)
        return found, opened.meta["system"] + settings.suffix


def ranking_settings(joining: dict[str, Any]) -> RankingSettings:
    """The options of hybrid search and reranking as settings."""
    from gnnretrieval.index.hybrid import RankingSettings

    weights = joining["weights"]
    given = joining | {"weights": None if weights is None else [part.strip() for part in weights.split(",")]}
    return RankingSettings.parse(given)


def read_questions(path: Path) -> dict[str, str]:
    """Questions by id: ``id``, tab, text a line; or a text a line, which are then called ``q1``, ``q2``, … by line.

    Raises:
        InputError: there is no such file, a line lacks its id or its text, or an id is there twice or no run can hold
            it.
    """
    from gnnretrieval.data.lines import read_lines
    from gnnretrieval.data.trec import UNWRITABLE

    questions: dict[str, str] = {}
    with_ids: bool | None = None
    for number, line in read_lines(path, "questions, one a line"):
        id_, tab, text = line.partition("\t")
        with_ids = bool(tab) if with_ids is None else with_ids
        if bool(tab) != with_ids:
            raise InputError(
                f"a line {'with' if tab else 'without'} a tab among lines {'without' if tab else 'with'} one: "
                "write id, tab, text in every line, or a text in every line.",
                path,
                number,
            )
        if not with_ids:
            id_, text = f"q{number}", line
        if not text.strip():
            raise InputError(f"question {id_!r} is empty: give some words.", path, number)
        if not id_ or UNWRITABLE.search(id_):
            raise InputError(f"the id {id_!r} is empty or has white space, which no TREC run holds.", path, number)
        if id_ in questions:
            raise InputError(f"question {id_!r} is there twice: keep one line.", path, number)
        questions[id_] = text.strip()
    if not questions:
        raise InputError("there are no questions in this file: write one a line.", path)
    return questions


def write(run_file: Path, found: Run, system: str) -> None:
    """Write a run and say so."""
    from gnnretrieval.data.trec import write_run

    write_run(run_file, found, system)
    click.echo(f"{run_file}: {len(found):,} queries by {system}")


def require_file_place(path: Path) -> None:
    """Refuse a place where no file can be written, before any work."""
    if path.is_dir():
        raise GnnRetrievalError(f"{path}: this is a directory. Name a file for the run.")
    parent = next(parent for parent in path.absolute().parents if parent.exists())
    if not parent.is_dir():
        raise GnnRetrievalError(f"{path}: {parent} is a file, not a directory. Name another place.")
