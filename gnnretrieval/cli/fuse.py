"""``gnnretrieval fuse``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gnnretrieval.cli.options import PATH, beside
from gnnretrieval.cli.output import echo, echo_next
from gnnretrieval.errors import counted
from gnnretrieval.progress import say

if TYPE_CHECKING:
    from gnnretrieval.evaluation import FusionChoice
    from gnnretrieval.index.fuse import Method


def _weights(context: click.Context, parameter: click.Parameter, value: str | None) -> list[float] | None:
    try:
        return None if value is None else [float(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value!r}: write one number per run, such as 0.3,0.7.") from None


@click.command()
@click.argument("runs", type=PATH, nargs=-1, required=True)
@click.option(
    "--out", type=PATH, help="TREC run to write; gzipped where it ends in .gz.  [default: fused.run beside the first]"
)
@click.option(
    "--method",
    type=click.Choice(["rrf", "weighted"]),
    help="By reciprocal ranks, or by scores normalised to 0 … 1 (default: rrf).",
)
@click.option("--weights", callback=_weights, help="One weight per run, separated by commas (default: 1 each).")
@click.option(
    "--choose-on",
    type=PATH,
    help="Judgements of dev questions, such as my-data/qrels/dev.tsv: choose the weights of two runs' normalised "
    "scores by RR@10 on them, or keep the better run alone.",
)
@click.option(
    "--dev-run",
    "dev_runs",
    type=PATH,
    multiple=True,
    help="With --choose-on, twice: the runs of the same two systems on the dev questions, in the order of RUNS.",
)
@click.option("--rrf-k", type=click.IntRange(1), default=60, show_default=True, help="The constant of rrf.")
@click.option("--depth", type=click.IntRange(1), default=1000, show_default=True, help="Passages per query.")
def fuse(
    runs: tuple[Path, ...],
    out: Path | None,
    method: Method | None,
    weights: list[float] | None,
    choose_on: Path | None,
    dev_runs: tuple[Path, ...],
    rrf_k: int,
    depth: int,
) -> None:
    """Join several TREC RUNS into one, such as those of BM25 and a GNN-encoder.

    \b
    Example: gnnretrieval fuse work/bm25.run work/gnn-encoder.run --out work/hybrid.run
    Example: gnnretrieval fuse a.run b.run --choose-on dev.tsv --dev-run a-dev.run --dev-run b-dev.run --out ab.run
    """
    from gnnretrieval.data.runs.trec import read_run, write_run
    from gnnretrieval.evaluation.fusion_choice import METHOD
    from gnnretrieval.index.fuse import fuse as fuse_runs

    out = out or beside(runs[0], "fused.run")
    if out.resolve() in {run.resolve() for run in (*runs, *dev_runs)}:
        raise click.UsageError(
            f"{out} is one of the runs to join, and would be replaced: name another file with --out."
        )
    is_given = click.get_current_context().get_parameter_source("rrf_k") is ParameterSource.COMMANDLINE
    if is_given and (choose_on is not None or method == METHOD):
        raise click.UsageError("--rrf-k is the constant of reciprocal ranks: leave it out with normalised scores.")
    if choose_on is not None:
        if method is not None or weights is not None:
            raise click.UsageError(
                "--choose-on chooses the weights of normalised scores: leave out --method and --weights."
            )
        choice = _choice(runs, choose_on, dev_runs)
        say(choice.line([run.name for run in runs]))
        method, weights = METHOD, list(choice.weights)
    elif dev_runs:
        raise click.UsageError("--dev-run goes with --choose-on.")
    fused = fuse_runs([read_run(run) for run in runs], method or "rrf", weights=weights, k=rrf_k, depth=depth)
    write_run(out, fused, out.name.removesuffix(".gz").rsplit(".", 1)[0])
    echo(f"{out}: {counted(len(fused), 'query')} of {len(runs)} runs")
    echo_next(f"gnnretrieval compare {shlex.join(map(str, (*runs, out)))} --data DATASET")


def _choice(runs: tuple[Path, ...], choose_on: Path, dev_runs: tuple[Path, ...]) -> FusionChoice:
    from gnnretrieval.data.beir import read_qrels
    from gnnretrieval.data.runs.trec import read_run
    from gnnretrieval.evaluation import choose_fusion

    if len(runs) != 2 or len(dev_runs) != 2:
        raise click.UsageError(
            f"--choose-on needs two RUNS and two --dev-run; there are {len(runs)} and {len(dev_runs)}."
        )
    return choose_fusion([read_run(run) for run in dev_runs], read_qrels(choose_on))
