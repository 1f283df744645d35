"""Options that several commands share."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from gnnretrieval.errors import InputError

if TYPE_CHECKING:
    from gnnretrieval.graph.store import Graph
    from gnnretrieval.index.explanations import Explainer
    from gnnretrieval.index.hybrid import RankingSettings
    from gnnretrieval.shards import Shard, Sharding

Command = TypeVar("Command", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
out_option = click.option("--out", type=PATH, required=True, help="Directory to make.")
out_beside_option = click.option("--out", type=PATH, help="Directory to make.  [default: beside the input]")
overwrite_option = click.option("--overwrite", is_flag=True, help="Replace an artifact made from other inputs.")
verify_option = click.option("--verify", is_flag=True, help="Check the sha256 of every file that is read first.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def _columns(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for field, sign, name in pairs:
        if not field or not sign or not name:
            raise click.BadParameter(f"{field!r}: write FIELD=NAME, such as text=body.")
    fields = [field for field, _, _ in pairs]
    if twice := next((field for field in fields if fields.count(field) > 1), None):
        raise click.BadParameter(f"{twice!r} is given twice: give each field one name.")
    return {field: name for field, _, name in pairs}


columns_option = click.option(
    "--column",
    "columns",
    metavar="FIELD=NAME",
    multiple=True,
    callback=_columns,
    help="Name of a table's column; may be repeated.",
)


def beside(path: Path, name: str) -> Path:
    """The place ``name`` in the directory that ``path`` lies in."""
    return _with_name(path).parent / name


def named_after(path: Path, ending: str) -> Path:
    """The place beside ``path`` that has its name and then ``ending``."""
    named = _with_name(path)
    return named.parent / f"{named.name}{ending}"


def _with_name(path: Path) -> Path:
    """The same place, by its name in the directory it lies in."""
    return path if path.name not in ("", "..") else path.resolve()


def _device(context: click.Context, parameter: click.Parameter, value: str) -> str:
    from gnnretrieval.platform.devices import as_device  # loads torch

    if not re.fullmatch(r"cpu|cuda(:\d+)?", value):
        raise click.BadParameter(f"{value!r} cannot be used: give cpu, cuda or cuda:NUMBER.")
    try:
        as_device(value)
    except InputError as error:
        raise click.BadParameter(str(error)) from None
    return value


device_option = click.option(
    "--device", default="cpu", show_default=True, callback=_device, help="cpu, cuda, cuda:1, …"
)


WORKERS = ("engine", "workers", "address", "storage")
SHARDS = ("shards", "shard", *WORKERS)


def shard_options(command: Command) -> Command:
    """Decorator: options of a stage in shards, for :func:`sharding_of` and :func:`shard_of`."""
    command = worker_options("shards")(command)
    command = click.option("--shard", metavar="I/N", help="Do only the Ith of N shards, then stop; --shards N joins.")(
        command
    )
    return shards_option(command)


dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Estimate bytes and time by workers from a short measurement, and make nothing."
)
shards_option = click.option(
    "--shards", type=click.IntRange(1), help="Split the work into shards; the result is the same."
)


def worker_options(parts: str) -> Callable[[Command], Command]:
    """Decorator: who makes the ``parts`` of an artifact."""
    options = (
        click.option(
            "--engine",
            type=click.Choice(["local", "ray"]),
            default="local",
            show_default=True,
            help=f"Who makes the {parts}: processes of this machine, or a Ray cluster.",
        ),
        click.option(
            "--workers", type=click.IntRange(1), help=f"Most {parts} at the same time.  [default: 1, or Ray's]"
        ),
        click.option("--address", help="Address of the Ray cluster, such as auto.  [default: this machine]"),
        click.option(
            "--storage",
            metavar="URL",
            help=f"Object store for {parts}, and for Ray's workers also for inputs, such as s3://bucket/work.",
        ),
    )

    def decorated(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def sharding_of(given: dict[str, Any]) -> Sharding | None:
    """Take the options of :func:`shard_options` out of ``given``; None if the work is not split."""
    from gnnretrieval.shards import Sharding

    values = {name: given.pop(name) for name in SHARDS if name in given}
    one = values.pop("shard", None) is not None
    if one and values["shards"] is not None:
        raise click.UsageError("--shard I/N does one shard, and --shards N all of them: give one.")
    if values["shards"] is None:
        if named := [name for name in given_workers() if not (one and name == "storage")]:
            raise click.UsageError(f"--{named[0]} says how shards are run: give --shards too.")
        return None
    return Sharding.parse(values)


def given_workers() -> list[str]:
    """The options of :func:`worker_options` that were given."""
    context = click.get_current_context()
    return [name for name in WORKERS if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]


def shard_of(given: Mapping[str, Any]) -> Shard | None:
    """The shard that ``--shard`` names; None without it."""
    from gnnretrieval.shards import Shard

    return None if given["shard"] is None else Shard.parse(given["shard"])


endpoint_option = click.option(
    "--endpoint", help="Address of the embeddings endpoint that encodes questions, if the index's encoder is one."
)


RERANKING = ("rerank", "rerank_depth", "pair_tokens", "adaptive", "adaptive_batch", "neighbors", "neighbors_by")
RANKING = ("pipeline", "hybrid", "fuse", "weights", "candidates", *RERANKING)


def ranking_options(command: Command) -> Command:
    """Decorator: options of hybrid search and reranking, for :func:`ranking_settings`."""
    options = (
        click.option(
            "--pipeline", is_flag=True, help="Rank as the best pipeline with the graph of the run that made the index."
        ),
        click.option("--hybrid", is_flag=True, help="Join the index's ranking with BM25's over the same passages."),
        click.option(
            "--fuse",
            type=click.Choice(["rrf", "weighted"]),
            default="rrf",
            show_default=True,
            help="How --hybrid joins them: by reciprocal ranks, or by scores normalised to 0 … 1.",
        ),
        click.option("--weights", help="Weights of index and BM25 for --hybrid, such as 0.7,0.3.  [default: 1,1]"),
        click.option(
            "--candidates",
            type=click.IntRange(1),
            default=100,
            show_default=True,
            help="Passages that --hybrid takes from each ranking, at least as many as are shown.",
        ),
        click.option(
            "--rerank",
            help="What reranks the best passages: name or path of a cross-encoder, or features by late interaction.",
        ),
        click.option(
            "--rerank-depth",
            type=click.IntRange(1),
            default=50,
            show_default=True,
            help="Passages that --rerank reranks.",
        ),
        click.option(
            "--pair-tokens",
            type=click.IntRange(8),
            default=192,
            show_default=True,
            help="Longest pair for --rerank with a cross-encoder, in tokens.",
        ),
        click.option(
            "--adaptive",
            type=click.Choice(["gar", "ladr"]),
            help="Rerank also neighbours of the passages that score highest, within --rerank-depth: by GAR, or LADR.",
        ),
        click.option(
            "--adaptive-batch",
            type=click.IntRange(1),
            default=16,
            show_default=True,
            help="Passages scored before --adaptive chooses the next.",
        ),
        click.option(
            "--neighbors",
            type=click.IntRange(1),
            default=16,
            show_default=True,
            help="Neighbours of a passage for --adaptive.",
        ),
        click.option(
            "--neighbors-by",
            type=click.Choice(["both", "questions", "vectors"]),
            default="both",
            show_default=True,
            help="What makes passages neighbours: shared training questions, near vectors, or both.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def require_effect() -> None:
    """Refuse an option of :func:`ranking_options` that would have no effect."""
    context = click.get_current_context()
    given = {name for name in RANKING if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if not given:
        return
    from gnnretrieval.index.hybrid import NEEDED  # imports take a second

    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    for name, needed in NEEDED.items():
        if name in given and needed not in given:
            raise click.UsageError(f"{options[name]} goes with {options[needed]}.")


def ranking_settings(joining: dict[str, Any], path: Path) -> RankingSettings:
    """The options of hybrid search and reranking as settings, for an index or a run's directory at ``path``."""
    from gnnretrieval.index.hybrid import RankingSettings

    weights = joining["weights"]
    if joining.pop("pipeline"):
        context = click.get_current_context()
        for name in ("hybrid", "fuse", "weights", "candidates"):
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                option = f"--{name}".replace("_", "-")
                raise click.UsageError(f"--pipeline says how the rankings are joined: leave out {option}.")
        require_effect()
        reranking = {name: joining[name] for name in RERANKING}
        return RankingSettings.of_run(path).model_copy(update=reranking)
    require_effect()
    given = joining | {"weights": None if weights is None else [part.strip() for part in weights.split(",")]}
    return RankingSettings.parse(given)


def dataset_options(command: Command) -> Command:
    """Decorator: ``--qrels`` and ``--where``, which select a part of a dataset directory."""
    where = click.option(
        "--where",
        metavar="KEY=VALUE",
        multiple=True,
        callback=_where,
        help="Keep only passages and queries whose metadata has this value; may be repeated.",
    )
    qrels = click.option("--qrels", default="qrels", show_default=True, help="Folder of judgements in the dataset.")
    return qrels(where(command))


def part_of(dataset: Path, qrels: str, where: dict[str, str]) -> str:
    """The words that select the same part of a dataset in another command."""
    words = ["--qrels", qrels] if qrels != "qrels" else []
    words += [word for key, value in where.items() for word in ("--where", f"{key}={value}")]
    return shlex.join([str(dataset), *words])


def _where(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for key, sign, _ in pairs:
        if not key or not sign:
            raise click.BadParameter(f"{key!r}: write KEY=VALUE, such as domain=squad.")
    return {key: value for key, _, value in pairs}


def explainer_of(store: Graph, model: Path | None, features: Path | None) -> Explainer | None:
    """The explainer of a graph's edges by the GNN-encoder at ``model``; None without a model."""
    if model is None:
        if features is not None:
            raise click.UsageError("--features goes with --model.")
        return None
    from gnnretrieval.encoders.features import open_features
    from gnnretrieval.index.explain import explainer_of as explainer_of_model
    from gnnretrieval.training.gnn.model import open_model

    opened, given = open_model(model), None if features is None else open_features(features)
    return explainer_of_model(opened, store, given, questions=bool(opened.question_weight))
