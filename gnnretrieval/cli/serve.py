"""``gnnretrieval serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnnretrieval.cli.options import (
    PATH,
    device_option,
    endpoint_option,
    ranking_options,
    ranking_settings,
    verify_option,
)
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.progress import say

DEFAULT_RUN = Path("graphs/docstrings")


@click.command()
@click.argument("path", type=PATH, default=DEFAULT_RUN, required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0: on every network.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any that is free.")
@endpoint_option
@ranking_options
@verify_option
@device_option
def serve(path: Path, host: str, port: int, endpoint: str | None, verify: bool, device: str, **joining: Any) -> None:
    """The HTTP search API and the explorer page over PATH, an index or what a run made (default: the quickstart's).

    \b
    Example: gnnretrieval serve
    Example: gnnretrieval serve work/index --port 8080 --hybrid
    """
    from gnnretrieval.serve import serve as run
    from gnnretrieval.storage.verifying import require_as_made

    if path == DEFAULT_RUN and not path.exists():
        raise GnnRetrievalError(
            f"{path}: there is nothing to serve yet. Run gnnretrieval quickstart, or give an index."
        )
    if verify:
        require_as_made(path)
    ranking = ranking_settings(joining)
    run(path, host=host, port=port, device=device, endpoint=endpoint, ranking=ranking, say=say)
