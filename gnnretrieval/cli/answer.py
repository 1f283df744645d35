"""``gnnretrieval answer``."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
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
)
from gnnretrieval.cli.output import echo, echo_json
from gnnretrieval.cli.search import DEFAULT_INDEX, open_retriever, require_index
from gnnretrieval.cli.sections import SectionedCommand
from gnnretrieval.cli.settings_options import settings_from, settings_options
from gnnretrieval.encoders.settings import ReaderSettings
from gnnretrieval.errors import InputError

if TYPE_CHECKING:
    from gnnretrieval.data import Dataset
    from gnnretrieval.encoders.reader import Reader
    from gnnretrieval.index.answering import Answer
    from gnnretrieval.index.retriever import Retriever

_OF_SPLIT = ("data", "qrels", "where", "split", "dev_run", "out")
_OF_QUESTION = ("index", "endpoint", *RANKING)
_AROUND = 80  # characters shown on each side of an answer
_SECTIONS = {
    "A whole split, from a run": ("run_file", *_OF_SPLIT),
    "Hybrid search and reranking": RANKING,
}


@click.command(cls=SectionedCommand, sections=_SECTIONS)
@click.argument("question", required=False)
@click.option("--index", type=PATH, default=DEFAULT_INDEX, show_default=True, help="The index to search.")
@settings_options(ReaderSettings)
@click.option("--run", "run_file", type=PATH, help="TREC run with the passages to read for the questions of --split.")
@click.option("--data", type=PATH, help="Dataset directory with the texts and answers.")
@click.option("--split", default="test", show_default=True, help="Split of --data.")
@click.option("--dev-run", type=PATH, help="Run of the dev split, by which --weight is chosen.")
@click.option("--out", type=PATH, help="File for the predictions, one JSON object per line.")
@ranking_options
@endpoint_option
@dataset_options
@device_option
@json_option
def answer(
    question: str | None,
    index: Path,
    run_file: Path | None,
    data: Path | None,
    split: str,
    dev_run: Path | None,
    out: Path | None,
    endpoint: str | None,
    qrels: str,
    where: dict[str, str],
    device: str,
    as_json: bool,
    **more: Any,
) -> None:
    """Answer a QUESTION from its best passages by a reader, or measure the answers of a whole split.

    A reader finds the answer as a span of a passage; gnnretrieval encoder train reader trains one.

    \b
    Example: gnnretrieval answer "when did the oil crisis begin" --index work/index --reader work/reader/reader
    Example: gnnretrieval answer --run test.run --dev-run dev.run --data my-data --reader work/reader/reader
    """
    _require_one_mode(question, run_file)
    joining = {name: more.pop(name) for name in RANKING}
    settings = ReaderSettings.parse(settings_from(ReaderSettings, more))
    if question is not None:
        require_index(index)
        retriever = open_retriever(index, "faiss", endpoint, device, joining)
        _answer_one(retriever, _opened(settings, device), question, as_json)
        return
    from gnnretrieval.data import Dataset

    assert run_file is not None
    assert data is not None
    if out is not None:
        from gnnretrieval.cli.search_runs import require_file_place

        require_file_place(out)
    _answer_split(settings, device, Dataset.open(data, qrels, where), split, run_file, dev_run, out, as_json)


def _require_one_mode(question: str | None, run_file: Path | None) -> None:
    """Refuse options without an effect, and a missing --reader."""
    context = click.get_current_context()
    options = {str(parameter.name): parameter.opts[0] for parameter in context.command.params}
    given = {name for name in options if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if (question is None) == (run_file is None):
        raise click.UsageError("give a QUESTION, or --run FILE with --data DATASET.")
    if "reader" not in given:
        raise click.UsageError("give a reader: --reader NAME. gnnretrieval encoder train reader trains one.")
    names, other = (_OF_SPLIT, "--run") if question is not None else (_OF_QUESTION, "a QUESTION")
    if wrong := [name for name in names if name in given]:
        raise click.UsageError(f"{options[wrong[0]]} goes with {other}.")
    if run_file is not None and "data" not in given:
        raise click.UsageError("--run needs the texts and answers: give --data DATASET.")
    if {"weight", "dev_run"} <= given:
        raise click.UsageError("--dev-run chooses --weight: give one of them.")


def _opened(settings: ReaderSettings, device: str) -> Reader:
    from gnnretrieval.encoders.reader import Reader

    return Reader(settings, device)


def _answer_one(retriever: Retriever, reader: Reader, question: str, as_json: bool) -> None:
    retriever.warm_up(reader.settings.passages)
    start = time.perf_counter()
    best = retriever.answer(question, reader)
    milliseconds = 1000 * (time.perf_counter() - start)
    passage = retriever.passage(best.passage)
    if as_json:
        title = {"title": passage.title, "text": passage.text}
        echo_json({"question": question, **best._asdict(), **title, "milliseconds": round(milliseconds, 1)})
        return
    echo(best.answer)
    name = best.passage if passage.title in ("", best.passage) else f"{best.passage}  {passage.title}"
    echo(f"  rank {best.rank}, probability {best.probability:.2f}  {name}")
    echo(f"  {_in_context(passage.text, best)}")
    read = min(reader.settings.passages, retriever.num_passages)
    echo(f"read {read:,} of {retriever.num_passages:,} passages in {milliseconds:.0f} ms")


def _in_context(text: str, best: Answer) -> str:
    """The answer in brackets, with the text around it, in one line."""
    start, end = max(0, best.start - _AROUND), best.end + _AROUND
    marked = f"{text[start : best.start]}[{best.answer}]{text[best.end : end]}"
    return f"{'…' if start else ''}{' '.join(marked.split())}{'…' if end < len(text) else ''}"


def _answer_split(
    settings: ReaderSettings,
    device: str,
    dataset: Dataset,
    split: str,
    run_file: Path,
    dev_run: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    from gnnretrieval.data.runs.trec import read_run
    from gnnretrieval.evaluation import answer_values, answered_queries, choose_weight, mean
    from gnnretrieval.index.answering import read_passages
    from gnnretrieval.training.gnn.held_out import dev_split

    gold = answered_queries(dataset, split)
    texts = {query.id: query.text for query in dataset.queries_of(split) if query.id in gold}
    run, weight, chosen = read_run(run_file), settings.weight, None
    reader = _opened(settings, device)
    if dev_run is not None:
        dev = dev_split(dataset)
        if dev is None or dev == split:
            raise InputError(f"--dev-run needs a dev split besides {split!r}: add qrels/dev.tsv.", dataset.path)
        of_dev = answered_queries(dataset, dev)
        dev_texts = {query.id: query.text for query in dataset.queries_of(dev) if query.id in of_dev}
        chosen = choose_weight(read_passages(reader, dataset, dev_texts, read_run(dev_run)), of_dev)
        weight = chosen.weight
    predicted = {query: one.answer(weight) for query, one in read_passages(reader, dataset, texts, run).items()}
    values = answer_values(predicted, gold)
    if out is not None:
        _write(out, predicted, values)
    means = mean(values)
    if as_json:
        on_dev = {} if chosen is None else {"dev": chosen.measures[weight]}
        sizes = {"questions": len(gold), "answered": sum(one is not None for one in predicted.values())}
        echo_json({"run": str(run_file), "split": split, **sizes, "weight": weight, **on_dev, "measures": means})
        return
    echo(f"{run_file}: {len(gold):,} questions of {split} with answers, {settings.passages} passages each, × 100")
    for name, value in means.items():
        echo(f"  {name} {100 * value:5.1f}")
    how = "" if chosen is None else ", chosen on dev"
    echo(f"weight of the retrieval score {weight:g}{how}")


def _write(out: Path, predicted: Mapping[str, Answer | None], values: Mapping[str, Mapping[str, float]]) -> None:
    from gnnretrieval.storage.artifacts import whole_file

    with whole_file(out) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        for query, measures in _by_query(values).items():
            best = predicted.get(query)
            record = {"query": query, **(best._asdict() if best else {"answer": ""}), **measures}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def _by_query(values: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    names: Sequence[str] = list(values)
    return {query: {name: values[name][query] for name in names} for query in values[names[0]]}
