"""``gnnretrieval search``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gnnretrieval.cli.options import PATH, dataset_options, device_option, echo_json, json_option
from gnnretrieval.cli.show import explanation_json, explanation_lines, hit_lines
from gnnretrieval.errors import GnnRetrievalError

if TYPE_CHECKING:
    from gnnretrieval.data.trec import Run
    from gnnretrieval.index.search import Hit, Searcher


DEFAULT_INDEX = Path("graphs/docstrings/index")
QUESTION, DATA, VECTORS = "a QUESTION", "--data", "--vectors"
GOES_WITH = {
    "k": (QUESTION,),
    "explain": (QUESTION,),
    "as_json": (QUESTION,),
    "split": (DATA,),
    "use_bm25": (DATA,),
    "features": (DATA,),
    "query_ids": (VECTORS,),
    "run_file": (DATA, VECTORS),
    "depth": (DATA, VECTORS),
}


@click.command()
@click.argument("question", required=False)
@click.option("--index", type=PATH, default=DEFAULT_INDEX, show_default=True, help="The index to search.")
@click.option("--k", type=click.IntRange(1), default=5, show_default=True, help="Passages to show.")
@click.option("--explain", is_flag=True, help="Show which training questions moved each passage, and its rank before.")
@click.option("--data", type=PATH, help="Dataset directory: rank the queries of --split instead of a QUESTION.")
@click.option("--split", default="test", show_default=True, help="Split of --data.")
@click.option("--features", type=PATH, help="Take the vectors of --data's queries from here instead of encoding.")
@click.option("--vectors", type=PATH, help="Questions as vectors, .npy or .parquet, by the encoder of the index.")
@click.option("--query-ids", type=PATH, help="Ids of the questions of an .npy of --vectors, one a line.")
@click.option("--run", "run_file", type=PATH, help="TREC run to write, with --data or --vectors.")
@click.option("--bm25", "use_bm25", is_flag=True, help="Rank by BM25 over --data, without an index.")
@click.option("--depth", type=click.IntRange(1), default=100, show_default=True, help="Passages a query in --run.")
@dataset_options
@device_option
@json_option
def search(
    question: str | None,
    index: Path,
    k: int,
    explain: bool,
    data: Path | None,
    split: str,
    features: Path | None,
    vectors: Path | None,
    query_ids: Path | None,
    run_file: Path | None,
    use_bm25: bool,
    depth: int,
    qrels: str,
    where: dict[str, str],
    device: str,
    as_json: bool,
) -> None:
    """Ranked passages for a QUESTION, or a TREC run for a split of a dataset or for questions given as vectors.

    \b
    Example: gnnretrieval search "solve a banded system of equations" --explain
    Example: gnnretrieval search --index work/index --data my-data --split test --run work/gnn-encoder.run
    Example: gnnretrieval search --index work/index --vectors questions.parquet --run work/questions.run
    """
    _refuse_mixed_use({QUESTION: question is not None, DATA: data is not None, VECTORS: vectors is not None})
    if question is None:
        if run_file is None:
            raise click.UsageError(
                f"{VECTORS if data is None else DATA} ranks many questions: give --run FILE with it."
            )
        _require_file_place(run_file)
        if vectors is not None:
            found, name = _run_of_vectors(index, vectors, query_ids, depth)
        else:
            assert data is not None
            found, name = _run_of_split(index, data, qrels, where, split, features, use_bm25, depth, device)
        _write(run_file, found, name)
        return
    from gnnretrieval.index.faiss_index import open_index
    from gnnretrieval.index.search import Searcher

    _require_index(index)
    searcher = Searcher(open_index(index), device)
    searcher.search("warm up", k)
    start = time.perf_counter()
    hits = searcher.search(question, k)
    milliseconds = 1000 * (time.perf_counter() - start)
    explained = _explain(searcher, question, hits) if explain else {}
    if as_json:
        echo_json(
            {
                "question": question,
                "system": searcher.index.meta["system"],
                "milliseconds": round(milliseconds, 1),
                "hits": [
                    {**hit._asdict(), **({"why": explanation_json(*explained[hit.row])} if explain else {})}
                    for hit in hits
                ],
            }
        )
        return
    for hit in hits:
        click.echo("\n".join(hit_lines(hit)))
        if explain:
            explanation, before = explained[hit.row]
            click.echo("\n".join(explanation_lines(explanation, before, hit.rank)))
    legend = "; * the passage is labelled relevant to that question" if explain else ""
    click.echo(f"{len(hits)} of {searcher.index.meta['num_passages']:,} passages in {milliseconds:.0f} ms{legend}")


def _refuse_mixed_use(given: dict[str, bool]) -> None:
    """A question, a dataset and vectors have options of their own; one that would be ignored is an error."""
    modes = [name for name, is_given in given.items() if is_given]
    if len(modes) != 1:
        raise click.UsageError("give a QUESTION, or --data or --vectors with --run FILE and no QUESTION: one of them.")
    context = click.get_current_context()
    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    for name, wanted in GOES_WITH.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and modes[0] not in wanted:
            raise click.UsageError(f"{options[name]} goes with {' or '.join(wanted)}.")
    if context.params["use_bm25"]:
        if context.get_parameter_source("index") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--bm25 ranks without an index: leave out --index.")
        if context.params["features"] is not None:
            raise click.UsageError("--bm25 ranks without vectors: leave out --features.")


def _require_index(index: Path) -> None:
    if index == DEFAULT_INDEX and not index.exists():
        raise GnnRetrievalError(
            f"{index}: there is no index yet. Run gnnretrieval quickstart, or name one with --index."
        )


def _explain(searcher: Searcher, question: str, hits: list[Hit]) -> dict[int, tuple[Any, int]]:
    """Explanation and rank by the dual-encoder of each hit, by row."""
    from gnnretrieval.encoders.dual_encoder import DualEncoder
    from gnnretrieval.encoders.features import open_features
    from gnnretrieval.graph.store import open_graph
    from gnnretrieval.index.explain import Explainer, ranks_of
    from gnnretrieval.training.embeddings import KIND, open_embeddings
    from gnnretrieval.training.model import open_model

    if KIND not in searcher.index.meta["made_from"]:
        raise click.UsageError("--explain wants the index of a GNN-encoder; this one is of a dual-encoder.")
    embeddings = open_embeddings(searcher.index.made_from(KIND))
    store = open_graph(embeddings.made_from("graph"))
    its = embeddings.meta["made_from"].get("features") and open_features(embeddings.made_from("features"))
    explainer = Explainer(open_model(embeddings.made_from("gnn-encoder")), store, its)
    before = DualEncoder(store.encoder_settings, str(searcher.encoder.device)) if its else searcher.encoder
    vector = before.encode([question], "query")[0]
    ranks = ranks_of([hit.row for hit in hits], vector, store.passage_features, store.similarity)
    return {hit.row: (explainer.explain(hit.row), rank) for hit, rank in zip(hits, ranks, strict=True)}


def _run_of_split(
    index: Path,
    data: Path,
    qrels: str,
    where: dict[str, str],
    split: str,
    features: Path | None,
    use_bm25: bool,
    depth: int,
    device: str,
) -> tuple[Run, str]:
    """The run of a dataset's split, and the system's name."""
    from gnnretrieval.data import Dataset
    from gnnretrieval.encoders.bm25 import BM25
    from gnnretrieval.encoders.features import open_features
    from gnnretrieval.index.faiss_index import open_index
    from gnnretrieval.index.search import Searcher, bm25_run, features_vectors, index_run

    dataset = Dataset.open(data, qrels, where)
    queries = {query.id: query.text for query in dataset.queries_of(split)}
    if use_bm25:
        bm25 = BM25((passage.full_text for passage in dataset.passages()), total=len(dataset.passage_ids))
        return bm25_run(bm25, queries, dataset.passage_ids, depth), "bm25"
    _require_index(index)
    opened = open_index(index)
    if opened.texts.passage_ids() != dataset.passage_ids:
        raise GnnRetrievalError(f"{index}: it indexes other passages than {data} has. Index this dataset's.")
    if features is not None:
        vectors = features_vectors(opened, open_features(features), dataset.texts_hash, list(queries))
    else:
        vectors = Searcher(opened, device).encode_all(list(queries.values()))
    return index_run(opened, list(queries), vectors, depth), opened.meta["system"]


def _run_of_vectors(index: Path, vectors: Path, query_ids: Path | None, depth: int) -> tuple[Run, str]:
    """The run of questions given as vectors, and the system's name."""
    from gnnretrieval.encoders.vector_file import open_vectors
    from gnnretrieval.index.faiss_index import open_index
    from gnnretrieval.index.search import vectors_run

    _require_index(index)
    opened, questions = open_index(index), open_vectors(vectors, query_ids)
    if questions.ids is None:
        raise click.UsageError(f"{vectors} has no ids, which a run needs: give them with --query-ids FILE.")
    return vectors_run(opened, questions, depth), opened.meta["system"]


def _write(run_file: Path, found: Run, system: str) -> None:
    from gnnretrieval.data.trec import write_run

    write_run(run_file, found, system)
    click.echo(f"{run_file}: {len(found):,} queries by {system}")


def _require_file_place(path: Path) -> None:
    """Refuse a place where no file can be written, before any work."""
    if path.is_dir():
        raise GnnRetrievalError(f"{path}: this is a directory. Name a file for the run.")
    parent = next(parent for parent in path.absolute().parents if parent.exists())
    if not parent.is_dir():
        raise GnnRetrievalError(f"{path}: {parent} is a file, not a directory. Name another place.")
