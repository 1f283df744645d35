"""``gnnretrieval serve``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gnnretrieval.cli.options import (
    PATH,
    RANKING,
    device_option,
    endpoint_option,
    ranking_options,
    ranking_settings,
    verify_option,
)
from gnnretrieval.cli.sections import SectionedCommand
from gnnretrieval.cli.settings_options import settings_from, settings_options
from gnnretrieval.encoders.settings import ReaderSettings
from gnnretrieval.errors import GnnRetrievalError

DEFAULT_RUN = Path("graphs/docstrings")


_SECTIONS = {
    "Who may ask": ("token_file", "no_auth", "hosts", "rate"),
    "Hybrid search and reranking": RANKING,
    "Answers": tuple(ReaderSettings.model_fields),
}


@click.command(cls=SectionedCommand, sections=_SECTIONS)
@click.argument("path", type=PATH, default=DEFAULT_RUN, required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0: on every network.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any that is free.")
@click.option("--token-file", type=PATH, help="File with the token that requests must give; others must not read it.")
@click.option("--no-auth", is_flag=True, help="Let everybody ask, where others can reach --host.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="Name to answer to; may be repeated.")
@click.option(
    "--rate",
    type=click.FloatRange(0),
    help="Requests a second of one client; 0: any number. (default: 50; any number on a loopback address)",
)
@click.option(
    "--watch",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Look this often for a new version of the index, and serve it. SIGHUP does so at once.",
)
@click.option(
    "--feedback",
    type=PATH,
    metavar="FILE",
    help="Offer thumbs in the explorer, and add them to this file (.jsonl) for feedback import; wants --token-file.",
)
@click.option(
    "--explore",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="Swap neighbouring passages at random in this share of the searches of the API, so that clicks show the "
    "position bias.",
)
@endpoint_option
@ranking_options
@settings_options(ReaderSettings)
@verify_option
@device_option
def serve(
    path: Path,
    host: str,
    port: int,
    token_file: Path | None,
    no_auth: bool,
    hosts: tuple[str, ...],
    rate: float | None,
    watch: float | None,
    feedback: Path | None,
    explore: float,
    endpoint: str | None,
    verify: bool,
    device: str,
    **more: Any,
) -> None:
    """The HTTP search API and the explorer page over PATH, an index or what a run made (default: the quickstart's).

    \b
    Example: gnnretrieval serve
    Example: gnnretrieval serve work/index --port 8080 --hybrid
    Example: gnnretrieval serve graphs/docstrings --pipeline
    Example: gnnretrieval serve work/index --host 0.0.0.0 --token-file token --watch 10
    Example: gnnretrieval serve work/index --token-file token --feedback thumbs.jsonl
    Example: gnnretrieval serve work/index --reader work/reader/reader
    """
    from gnnretrieval.serve import serve as run
    from gnnretrieval.storage.verifying import require_as_made

    reader = _reader_settings(more)
    if path == DEFAULT_RUN and not path.exists():
        raise GnnRetrievalError(
            f"{path}: there is nothing to serve yet. Run gnnretrieval quickstart, or give an index."
        )
    if verify:
        require_as_made(path)
    ranking = ranking_settings({name: more[name] for name in RANKING}, path)
    run(
        path,
        host=host,
        port=port,
        device=device,
        endpoint=endpoint,
        ranking=ranking,
        token_file=token_file,
        no_auth=no_auth,
        allowed_hosts=hosts,
        rate=rate,
        watch=watch,
        feedback=feedback,
        explore=explore,
        reader=reader,
    )
    sys.stderr.flush()
    os._exit(0)  # the interpreter's own end waits for threads, and takes seconds where torch is loaded


def _reader_settings(values: Mapping[str, Any]) -> ReaderSettings | None:
    """The reader's settings; None without ``--reader``, which the other options of a reader go with."""
    given = settings_from(ReaderSettings, values)
    if given and "reader" not in given:
        raise click.UsageError(f"--{next(iter(given)).replace('_', '-')} goes with --reader.")
    return ReaderSettings.parse(given) if given else None
