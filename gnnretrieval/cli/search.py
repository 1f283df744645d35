"""``gnnretrieval search``."""

from __future__ import annotations

import sys
import time
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gnnretrieval.cli.options import (
    PATH,
    RANKING,
    dataset_options,
    device_option,
    endpoint_option,
    json_option,
    ranking_options,
    ranking_settings,
    require_effect,
)
from gnnretrieval.cli.output import echo, echo_json
from gnnretrieval.cli.sections import SectionedCommand
from gnnretrieval.cli.show import explanation_json, explanation_lines, hit_lines
from gnnretrieval.errors import GnnRetrievalError

if TYPE_CHECKING:
    from gnnretrieval.index.engines import EngineName
    from gnnretrieval.index.retriever import Retriever, Why
    from gnnretrieval.index.search import Hit

DEFAULT_INDEX = Path("graphs/docstrings/index")
QUESTION, PROMPT, QUESTIONS = "a QUESTION", "--prompt", "--questions"
DATA, VECTORS = "--data", "--vectors"
TEXTS = (QUESTION, PROMPT, QUESTIONS, DATA)
GOES_WITH = {
    "k": (QUESTION, PROMPT),
    "explain": (QUESTION, PROMPT),
    "as_json": (QUESTION,),
    "split": (DATA,),
    "qrels": (DATA,),
    "where": (DATA,),
    "use_bm25": (DATA,),
    "maxsim": (DATA,),
    "sparse": (DATA,),
    "features": (DATA,),
    "query_ids": (VECTORS,),
    "run_file": (QUESTIONS, DATA, VECTORS),
    "depth": (QUESTIONS, DATA, VECTORS),
    **dict.fromkeys(RANKING, TEXTS),
}
_ALONE = ("use_bm25", "maxsim", "sparse")  # what ranks without an index


_SECTIONS = {
    "Many questions, into a TREC run": (
        *("questions", "data", "qrels", "where", "split", "features", "vectors", "query_ids", "run_file", "depth"),
        *("use_bm25", "maxsim", "sparse"),
    ),
    "Hybrid search and reranking": RANKING,
}


@click.command(cls=SectionedCommand, sections=_SECTIONS)
@click.argument("question", required=False)
@click.option("--index", type=PATH, default=DEFAULT_INDEX, show_default=True, help="The index to search.")
@click.option("--k", type=click.IntRange(1), default=5, show_default=True, help="Passages to show.")
@click.option("--explain", is_flag=True, help="Show which training questions moved each passage, and its rank before.")
@click.option("--prompt", is_flag=True, help="Stay open and answer one question per line, until Ctrl-D.")
@click.option("--questions", type=PATH, help="Rank for a file of questions: per line id, tab, text, or only a text.")
@click.option("--data", type=PATH, help="Dataset directory: rank for the queries of --split.")
@click.option("--split", default="test", show_default=True, help="Split of --data.")
@click.option("--features", type=PATH, help="Features with the query vectors of --data, instead of encoding.")
@click.option("--vectors", type=PATH, help="Questions as vectors of the index's encoder, .npy or .parquet.")
@click.option("--query-ids", type=PATH, help="Ids for an .npy of --vectors, one per line.")
@click.option("--run", "run_file", type=PATH, help="TREC run to write, with --questions, --data or --vectors.")
@click.option("--bm25", "use_bm25", is_flag=True, help="Rank by BM25 over --data, without an index.")
@click.option("--maxsim", type=PATH, help="Rank by MaxSim over these features by late interaction, without an index.")
@click.option("--sparse", type=PATH, help="Rank by the terms of these sparse features, without an index.")
@click.option("--depth", type=click.IntRange(1), default=100, show_default=True, help="Passages per query in --run.")
@ranking_options
@click.option(
    "--engine",
    type=click.Choice(["faiss", "torch"]),
    default="faiss",
    show_default=True,
    help="torch: exact search over the index's original vectors, on --device.",
)
@endpoint_option
@dataset_options
@device_option
@json_option
def search(
    question: str | None,
    index: Path,
    k: int,
    explain: bool,
    prompt: bool,
    questions: Path | None,
    data: Path | None,
    split: str,
    features: Path | None,
    vectors: Path | None,
    query_ids: Path | None,
    run_file: Path | None,
    use_bm25: bool,
    maxsim: Path | None,
    sparse: Path | None,
    depth: int,
    engine: EngineName,
    endpoint: str | None,
    qrels: str,
    where: dict[str, str],
    device: str,
    as_json: bool,
    **joining: Any,
) -> None:
    """Rank passages for a QUESTION, or write a TREC run for a file of questions, a dataset's split, or vectors.

    \b
    Example: gnnretrieval search "solve a banded system of equations" --explain
    Example: gnnretrieval search --prompt --index work/index --hybrid
    Example: gnnretrieval search --index work/index --questions questions.tsv --run work/questions.run
    Example: gnnretrieval search --index work/index --data my-data --split test --run work/gnn-encoder.run
    Example: gnnretrieval search --index work/index --vectors questions.parquet --run work/questions.run
    """
    modes = {QUESTION: question is not None, PROMPT: prompt, QUESTIONS: questions, DATA: data, VECTORS: vectors}
    mode = _mode({name: bool(given) for name, given in modes.items()})
    needs_index = not use_bm25 and maxsim is None and sparse is None
    if needs_index:
        require_index(index)
    if mode in (QUESTION, PROMPT):
        _answer(open_retriever(index, engine, endpoint, device, joining), question, k, explain, as_json)
        return
    from gnnretrieval.cli import search_runs as runs

    if run_file is None:
        raise click.UsageError(f"{mode} writes a run: give --run FILE with it.")
    runs.require_file_place(run_file)
    retriever = open_retriever(index, engine, endpoint, device, joining) if needs_index else None
    if data is not None and maxsim is not None:
        made, name = runs.run_by_maxsim(data, qrels, where, split, depth, maxsim, device)
    elif data is not None and sparse is not None:
        made, name = runs.run_by_terms(data, qrels, where, split, depth, sparse)
    elif data is not None:
        made, name = runs.run_of_split(data, qrels, where, split, depth, retriever=retriever, features=features)
    else:
        assert retriever is not None
        if vectors is not None:
            made, name = runs.run_of_vectors(retriever, vectors, query_ids, depth)
        else:
            assert questions is not None
            made, name = retriever.run(runs.read_questions(questions), depth), retriever.name
    runs.write(run_file, made, name)


def open_retriever(
    index: Path, engine: EngineName, endpoint: str | None, device: str, joining: dict[str, Any]
) -> Retriever:
    """The retriever over an index or a run's directory, with the options of :func:`ranking_options`."""
    from gnnretrieval.index.faiss_index import open_index
    from gnnretrieval.index.retriever import Retriever, index_in

    ranking = ranking_settings(joining, index)
    opened = open_index(index_in(index, ranking), engine=engine, device=device)
    return Retriever(opened, endpoint=endpoint, ranking=ranking, device=device)


def _mode(given: dict[str, bool]) -> str:
    """Where the questions come from; an option that would have no effect is an error."""
    modes = [name for name, is_given in given.items() if is_given]
    if len(modes) != 1:
        raise click.UsageError(
            "give exactly one of a QUESTION, --prompt, --questions, --data and --vectors; the last three need "
            "--run FILE."
        )
    context = click.get_current_context()
    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}

    def is_given(name: str) -> bool:
        return context.get_parameter_source(name) is ParameterSource.COMMANDLINE

    for name, wanted in GOES_WITH.items():
        if is_given(name) and modes[0] not in wanted:
            instead = " A run has --depth." if name == "k" else ""
            raise click.UsageError(f"{options[name]} goes with {' or '.join(wanted)}.{instead}")
    require_effect()
    alone_given = [name for name in _ALONE if context.params[name]]
    if len(alone_given) > 1:
        raise click.UsageError(f"give one of {' and '.join(options[name] for name in alone_given)}.")
    for alone in alone_given:
        for name, instead in (("index", "an index"), ("engine", "an index"), ("features", "vectors")):
            if is_given(name):
                raise click.UsageError(f"{options[alone]} ranks without {instead}: leave out {options[name]}.")
        for name in ("pipeline", "hybrid", "rerank"):
            if is_given(name):
                raise click.UsageError(f"{options[name]} needs an index: leave out {options[alone]}.")
    return modes[0]


def require_index(index: Path) -> None:
    """Say what makes the default index, if it is not there."""
    if index == DEFAULT_INDEX and not index.exists():
        raise GnnRetrievalError(
            f"{index}: there is no index yet. Run gnnretrieval quickstart, or give one with --index."
        )


def _answer(retriever: Retriever, question: str | None, k: int, explain: bool, as_json: bool) -> None:
    """Answer one question, or those of a prompt."""
    if explain and not retriever.has_graph:
        raise click.UsageError("--explain needs the index of a GNN-encoder, and this is the index of a dual-encoder.")
    retriever.warm_up(k)
    if question is None:
        _stay_open(retriever, k, explain)
        return
    start = time.perf_counter()
    hits = retriever.search(question, k)
    milliseconds = 1000 * (time.perf_counter() - start)
    why: list[Why] = retriever.why(question, hits) if explain else []
    if not as_json:
        _print(retriever, hits, why, milliseconds)
        return
    reasons = [{"why": explanation_json(reason)} for reason in why] or [{} for _ in hits]
    echo_json(
        {
            "question": question,
            "system": retriever.name,
            "milliseconds": round(milliseconds, 1),
            "hits": [{**hit._asdict(), **reason} for hit, reason in zip(hits, reasons, strict=True)],
        }
    )


def _print(retriever: Retriever, hits: list[Hit], why: list[Why], milliseconds: float) -> None:
    for number, hit in enumerate(hits):
        echo("\n".join(hit_lines(hit)))
        if why:
            echo("\n".join(explanation_lines(why[number], hit.rank)))
    legend = "; * the passage is labelled relevant to that question" if why else ""
    echo(f"{len(hits)} of {retriever.num_passages:,} passages in {milliseconds:.0f} ms{legend}")


def _stay_open(retriever: Retriever, k: int, explain: bool) -> None:
    """Answer one question per line until the input ends; print an error for a question that fails, and continue."""
    source = sys.stdin
    if isinstance(source, TextIOWrapper):
        source.reconfigure(errors="surrogateescape")  # a line of another encoding is refused, and not the rest with it
    sign = "question> " if source.isatty() else ""
    try:
        while True:
            echo(sign, nl=False, err=True)
            line = source.readline()
            if not line:
                break
            if not line.strip():
                continue
            try:
                start = time.perf_counter()
                hits = retriever.search(line.strip(), k)
                milliseconds = 1000 * (time.perf_counter() - start)
                _print(retriever, hits, retriever.why(line.strip(), hits) if explain else [], milliseconds)
            except GnnRetrievalError as error:
                echo(f"Error: {error}", err=True)
    except KeyboardInterrupt:
        pass  # ends the prompt, like Ctrl-D
    if sign:
        echo(err=True)
