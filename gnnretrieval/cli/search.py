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
from gnnretrieval.progress import say

if TYPE_CHECKING:
    from gnnretrieval.index.search import Hit, Searcher


DEFAULT_INDEX = Path("graphs/docstrings/index")
OF_QUESTIONS = {"k": "--k", "explain": "--explain", "as_json": "--json"}
OF_DATASETS = {"split": "--split", "run_file": "--run", "use_bm25": "--bm25", "depth": "--depth"}


@click.command()
@click.argument("question", required=False)
@click.option("--index", type=PATH, default=DEFAULT_INDEX, show_default=True, help="The index to search.")
@click.option("--k", type=click.IntRange(1), default=5, show_default=True, help="Passages to show.")
@click.option("--explain", is_flag=True, help="Show which training questions moved each passage, and its rank before.")
@click.option("--data", type=PATH, help="Dataset directory: rank the queries of --split instead of a QUESTION.")
@click.option("--split", default="test", show_default=True, help="Split of --data.")
@click.option("--run", "run_file", type=PATH, help="TREC run to write, with --data.")
@click.option("--bm25", "use_bm25", is_flag=True, help="Rank by BM25 over --data, without an index.")
@click.option("--depth", type=click.IntRange(1), default=100, show_default=True, help="Passages a query, with --data.")
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
    run_file: Path | None,
    use_bm25: bool,
    depth: int,
    qrels: str,
    where: dict[str, str],
    device: str,
    as_json: bool,
) -> None:
    """Ranked passages for a QUESTION, or a TREC run for a split of a dataset.

    \b
    Example: gnnretrieval search "solve a banded system of equations" --explain
    Example: gnnretrieval search --index work/index --data my-data --split test --run work/gnn-encoder.run
    """
    _refuse_mixed_use(question is not None, data is not None)
    if data is not None:
        if run_file is None:
            raise click.UsageError("--data ranks a whole split: give --run FILE with it.")
        _write_run(index, data, qrels, where, split, run_file, use_bm25, depth, device)
        return
    assert question is not None
    from gnnretrieval.index.faiss_index import open_index
    from gnnretrieval.index.search import Searcher

    if index == DEFAULT_INDEX and not index.exists():
        raise GnnRetrievalError(
            f"{index}: there is no index yet. Run gnnretrieval quickstart, or name one with --index."
        )
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


def _refuse_mixed_use(question: bool, data: bool) -> None:
    """A question and a dataset have options of their own; one that would be ignored is an error."""
    if question == data:
        raise click.UsageError("give a QUESTION, or --data with --run FILE and no QUESTION.")
    context = click.get_current_context()
    for name, option in (OF_QUESTIONS if data else OF_DATASETS).items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option} goes with {'a QUESTION' if data else '--data'}.")
    if data and context.params["use_bm25"] and context.get_parameter_source("index") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--bm25 ranks without an index: leave out --index.")


def _explain(searcher: Searcher, question: str, hits: list[Hit]) -> dict[int, tuple[Any, int]]:
    """Explanation and rank by the dual-encoder of each hit, by row."""
    from gnnretrieval.graph.store import open_graph
    from gnnretrieval.index.explain import Explainer, rank_of
    from gnnretrieval.training.embeddings import KIND, open_embeddings
    from gnnretrieval.training.model import open_model

    if KIND not in searcher.index.meta["made_from"]:
        raise click.UsageError("--explain wants the index of a GNN-encoder; this one is of a dual-encoder.")
    embeddings = open_embeddings(searcher.index.made_from(KIND))
    store = open_graph(embeddings.made_from("graph"))
    explainer = Explainer(open_model(embeddings.made_from("gnn-encoder")), store)
    vector = searcher.encode(question)[0]
    return {
        hit.row: (explainer.explain(hit.row), rank_of(hit.row, vector, store.passage_features, store.similarity))
        for hit in hits
    }


def _write_run(
    index: Path,
    data: Path,
    qrels: str,
    where: dict[str, str],
    split: str,
    run_file: Path,
    use_bm25: bool,
    depth: int,
    device: str,
) -> None:
    from gnnretrieval.data import Dataset
    from gnnretrieval.data.trec import write_run
    from gnnretrieval.encoders.bm25 import BM25
    from gnnretrieval.index.faiss_index import open_index
    from gnnretrieval.index.search import Searcher, bm25_run, index_run

    _require_file_place(run_file)
    dataset = Dataset.open(data, qrels, where)
    queries = {query.id: query.text for query in dataset.queries_of(split)}
    if use_bm25:
        name = "bm25"
        bm25 = BM25(passage.full_text for passage in dataset.passages())
        found = bm25_run(bm25, queries, dataset.passage_ids, depth)
    else:
        opened = open_index(index)
        name = opened.meta["system"]
        if opened.texts.passage_ids() != dataset.passage_ids:
            raise GnnRetrievalError(f"{index}: it indexes other passages than {data} has. Index this dataset's.")
        say(f"encoding {len(queries):,} queries")
        vectors = Searcher(opened, device).encoder.encode(list(queries.values()), "query")
        found = index_run(opened, list(queries), vectors, depth)
    write_run(run_file, found, name)
    click.echo(f"{run_file}: {len(queries):,} queries by {name}")


def _require_file_place(path: Path) -> None:
    """Refuse a place where no file can be written, before any work."""
    if path.is_dir():
        raise GnnRetrievalError(f"{path}: this is a directory. Name a file for the run.")
    parent = next(parent for parent in path.absolute().parents if parent.exists())
    if not parent.is_dir():
        raise GnnRetrievalError(f"{path}: {parent} is a file, not a directory. Name another place.")
