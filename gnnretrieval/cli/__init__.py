"""The command line: one tree of click commands. It imports every room, and no room imports it."""

from __future__ import annotations

import os
import sys

import click

from gnnretrieval import __version__
from gnnretrieval.cli.answer import answer
from gnnretrieval.cli.baselines import baselines
from gnnretrieval.cli.data import data
from gnnretrieval.cli.encoder import encoder
from gnnretrieval.cli.evaluate import compare, evaluate
from gnnretrieval.cli.feedback import feedback
from gnnretrieval.cli.fuse import fuse
from gnnretrieval.cli.graph import graph
from gnnretrieval.cli.index import index
from gnnretrieval.cli.map import map_
from gnnretrieval.cli.mine import mine
from gnnretrieval.cli.output import echo
from gnnretrieval.cli.run import quickstart, run
from gnnretrieval.cli.search import search
from gnnretrieval.cli.serve import serve
from gnnretrieval.cli.train import embed, train
from gnnretrieval.cli.update import rollback, update
from gnnretrieval.cli.verify import verify
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import show_progress


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="gnnretrieval")
def cli() -> None:
    """Graph-centric dense retrieval: train a GNN-encoder over the query-passage graph of your dual-encoder.

    Start with: gnnretrieval quickstart
    """
    show_progress()


for command in (
    quickstart,
    run,
    data,
    feedback,
    encoder,
    mine,
    graph,
    train,
    embed,
    baselines,
    index,
    map_,
    search,
    answer,
    serve,
    update,
    rollback,
    evaluate,
    compare,
    fuse,
    verify,
):
    cli.add_command(command)


def main() -> None:
    """Run the command line; bad input ends in one sentence and exit code 1 (2 for a usage error)."""
    keep_freed_memory()
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except GnnRetrievalError as error:
        echo(f"Error: {error}", err=True)
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        echo("\nStopped. Run the same command again to continue.", err=True)
        sys.exit(130)
    except MemoryError:
        echo("Error: there is not enough memory.", err=True)
        sys.exit(1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        echo(f"Error: {where}{error.strerror or error}.", err=True)
        sys.exit(1)
