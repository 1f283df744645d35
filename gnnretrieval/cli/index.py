"""``gnnretrieval index``: FAISS indexes."""

from __future__ import annotations

from pathlib import Path

import click

from gnnretrieval.cli.options import PATH, out_option, overwrite_option
from gnnretrieval.progress import say


@click.group()
def index() -> None:
    """FAISS indexes over passage vectors."""


@index.command()
@click.argument("vectors", type=PATH)
@out_option
@click.option("--changed", is_flag=True, help="Bring the index at --out up to embeddings that were updated.")
@click.option("--sentences", is_flag=True, help="Index the sentences of features; passages are ranked by them (DCSR).")
@overwrite_option
def build(vectors: Path, out: Path, changed: bool, sentences: bool, overwrite: bool) -> None:
    """Index VECTORS: a GNN-encoder's embeddings, or a dual-encoder's features (the baseline). Search is exact.

    \b
    Example: gnnretrieval index build work/embeddings --out work/index
    Example: gnnretrieval index build work/embeddings --out work/index --changed
    Example: gnnretrieval index build work/features --sentences --out work/sentence-index
    """
    from gnnretrieval.encoders.features import KIND as FEATURES
    from gnnretrieval.encoders.features import open_features
    from gnnretrieval.index.faiss_index import build_index, update_index
    from gnnretrieval.training.embeddings import open_embeddings

    if changed and sentences:
        raise click.UsageError("--changed goes with a GNN-encoder's embeddings, and --sentences with features.")
    is_features = _kind(vectors) == FEATURES
    if changed:
        made = update_index(open_embeddings(vectors), out, say=say)
    else:
        source = open_features(vectors) if is_features else open_embeddings(vectors)
        made = build_index(source, out, sentences=sentences, overwrite=overwrite, say=say)
    unit = f" by {made.meta['num_sentences']:,} sentences" if made.is_of_sentences else ""
    click.echo(
        f"{out}: {made.meta['num_passages']:,} passages{unit}, {made.meta['bytes'] / 2**20:.1f} MiB, exact search"
    )


def _kind(path: Path) -> str:
    import json

    try:
        meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
        return str(meta["kind"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""  # opening it says what is wrong
