"""``gnnretrieval index``: FAISS indexes, exact and approximate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gnnretrieval.cli.options import (
    PATH,
    WORKERS,
    beside,
    given_workers,
    json_option,
    out_beside_option,
    overwrite_option,
    worker_options,
)
from gnnretrieval.cli.output import echo, echo_json, echo_next, quoted
from gnnretrieval.cli.settings_options import settings_from, settings_options
from gnnretrieval.errors import counted
from gnnretrieval.index.settings import IndexSettings

if TYPE_CHECKING:
    from gnnretrieval.encoders.features import Features
    from gnnretrieval.training.gnn.embeddings import Embeddings


@click.group()
def index() -> None:
    """FAISS indexes over passage vectors."""


@index.command()
@click.argument("vectors", type=PATH)
@out_beside_option
@settings_options(IndexSettings)
@click.option("--changed", is_flag=True, help="Bring the index at --out up to embeddings that were updated.")
@click.option("--sentences", is_flag=True, help="Index the sentences of features; passages are ranked by them (DCSR).")
@worker_options("parts")
@overwrite_option
def build(vectors: Path, out: Path | None, changed: bool, sentences: bool, overwrite: bool, **settings: Any) -> None:
    """Index VECTORS: a GNN-encoder's embeddings, or a dual-encoder's features (the baseline).

    Search is exact unless --factory says otherwise or the corpus is large; recall against exact search and times are
    measured on a sample of queries, printed and kept.

    \b
    Example: gnnretrieval index build work/embeddings
    Example: gnnretrieval index build work/embeddings --factory IVF4096,SQ8 --target-recall 0.98 --out work/index-ivf
    Example: gnnretrieval index build work/embeddings --changed
    Example: gnnretrieval index build work/features --sentences
    Example: gnnretrieval index build work/embeddings --parts 16 --workers 4
    """
    from gnnretrieval.encoders.features import KIND as FEATURES
    from gnnretrieval.encoders.features import open_features
    from gnnretrieval.index.faiss_index import build_index
    from gnnretrieval.index.updating import update_index
    from gnnretrieval.shards import Sharding
    from gnnretrieval.storage.artifacts import kind_of
    from gnnretrieval.training.gnn.embeddings import open_embeddings

    workers = {name: settings.pop(name) for name in WORKERS}
    given = settings_from(IndexSettings, settings)
    if (named := given_workers()) and "parts" not in given:
        raise click.UsageError(f"--{named[0]} says who builds the parts of an index: give --parts too.")
    if changed and (sentences or given or overwrite):
        raise click.UsageError(
            "--changed goes with a GNN-encoder's embeddings alone: the index stays of its kind, and --sentences, "
            "--overwrite and settings are of a new one."
        )
    of_features = kind_of(vectors) == FEATURES
    if changed:
        embeddings = open_embeddings(vectors)
        made = update_index(embeddings, out := out or beside(vectors, _name(embeddings, sentences)))
    else:
        source = open_features(vectors) if of_features else open_embeddings(vectors)
        out = out or beside(vectors, _name(source, sentences))
        parsed = IndexSettings.parse(given)
        sharding = Sharding.parse({"shards": parsed.parts, **workers}) if named else None
        made = build_index(source, out, parsed, sentences=sentences, sharding=sharding, overwrite=overwrite)
    echo(made.inspect().to_text())
    explained = "" if of_features else " --explain"
    echo_next(f'gnnretrieval search "a question" --index {quoted(out)}{explained}, or gnnretrieval serve {quoted(out)}')


def _name(source: Embeddings | Features, sentences: bool) -> str:
    """Name of the index of some vectors in a directory."""
    from gnnretrieval.index.faiss_index import PLACES, system_of

    system = system_of(source, sentences)
    return PLACES.get(system, f"index-{system}")


@index.command()
@click.argument("place", metavar="INDEX", type=PATH)
@json_option
def inspect(place: Path, as_json: bool) -> None:
    """What INDEX is: its kind, size and search setting, and the recall and times that were measured.

    \b
    Example: gnnretrieval index inspect work/index
    """
    from gnnretrieval.index.faiss_index import open_index

    opened = open_index(place)
    if as_json:
        echo_json(opened.inspect().as_json())
        return
    echo(opened.inspect().to_text())
    source, where = next(iter(opened.meta["made_from"].items()))
    echo(f"  made from: {source} {where}, of {opened.encoder_settings.checkpoint}")
    if len(opened.removed):
        echo(f"  removed: {counted(len(opened.removed), 'passage')}")


@index.command()
@click.argument("place", metavar="INDEX", type=PATH)
@click.argument("ids", nargs=-1)
@click.option("--ids-file", type=PATH, help="Ids of more passages, one a line.")
@click.option(
    "--purge",
    is_flag=True,
    help="Take texts and vectors off the disk too: out of INDEX, and the features, graph and embeddings behind it.",
)
def remove(place: Path, ids: tuple[str, ...], ids_file: Path | None, purge: bool) -> None:
    """Take the passages called IDS out of every answer of INDEX, in place. They come back when it is built again.

    \b
    Example: gnnretrieval index remove work/index p17 p23
    Example: gnnretrieval index remove work/index --ids-file withdrawn.txt --purge
    """
    from gnnretrieval.data.lines import read_lines
    from gnnretrieval.index.purging import purge_passages
    from gnnretrieval.index.updating import remove_passages
    from gnnretrieval.storage.places import settle

    settle(place, "index")
    more = [] if ids_file is None else [line.strip() for _, line in read_lines(ids_file, "ids of passages, one a line")]
    made = (purge_passages if purge else remove_passages)(place, [*ids, *more])
    echo(f"{place}: now {counted(made.meta['num_passages'], 'passage')}, {len(made.removed):,} removed")


@index.command()
@click.argument("place", metavar="INDEX", type=PATH)
@click.option("--out", type=PATH, help="File to write: .npy (and .ids.txt beside it) or .parquet.")
@click.option("--dsn", help="PostgreSQL with pgvector to copy into, such as postgresql://user@host/name.")
@click.option("--qdrant", help="Qdrant to copy into: the URL of a server, or a directory for its local mode.")
@click.option("--lancedb", help="LanceDB to write into: a directory, or a URI such as s3://bucket/search.")
@click.option("--table", default="passages", show_default=True, help="Table or collection to make in a database.")
@click.option("--hnsw", is_flag=True, help="Make an approximate (HNSW) index in the database.")
@click.option("--overwrite", is_flag=True, help="Replace a table or collection of that name.")
def export(
    place: Path,
    out: Path | None,
    dsn: str | None,
    qdrant: str | None,
    lancedb: str | None,
    table: str,
    hnsw: bool,
    overwrite: bool,
) -> None:
    """Copy the vectors of INDEX with ids and texts to another engine, as they are compared (of length 1 under cosine).

    \b
    Example: gnnretrieval index export work/index --out work/vectors.parquet
    Example: gnnretrieval index export work/index --dsn postgresql://me@localhost/search --table passages
    Example: gnnretrieval index export work/index --qdrant http://localhost:6333
    Example: gnnretrieval index export work/index --lancedb work/lancedb
    """
    from gnnretrieval.index.export import write_vectors
    from gnnretrieval.index.export_databases import write_lancedb, write_pgvector, write_qdrant
    from gnnretrieval.index.faiss_index import open_index

    if sum(target is not None for target in (out, dsn, qdrant, lancedb)) != 1:
        raise click.UsageError("give --out FILE, --dsn DATABASE, --qdrant PLACE or --lancedb PLACE: one of them.")
    if hnsw and dsn is None and qdrant is None:
        raise click.UsageError("--hnsw goes with --dsn and --qdrant.")
    table_given = click.get_current_context().get_parameter_source("table") is ParameterSource.COMMANDLINE
    if out is not None and (overwrite or table_given):
        raise click.UsageError(f"{'--overwrite' if overwrite else '--table'} goes with a database.")
    opened = open_index(place)
    if out is not None:
        files = write_vectors(opened, out)
        vectors = opened.meta.get("num_vectors", opened.meta["num_passages"])
        echo(f"{', '.join(map(str, files))}: {counted(vectors, 'vector')}")
        return
    if dsn is not None:
        asking = write_pgvector(opened, dsn, table, approximate=hnsw, overwrite=overwrite)
    elif qdrant is not None:
        asking = write_qdrant(opened, qdrant, table, approximate=hnsw, overwrite=overwrite)
    else:
        assert lancedb is not None
        asking = write_lancedb(opened, lancedb, table, overwrite=overwrite)
    vectors = opened.meta.get("num_vectors", opened.meta["num_passages"])
    echo(f"{table}: {counted(vectors, 'vector')}. To ask: {asking}")
