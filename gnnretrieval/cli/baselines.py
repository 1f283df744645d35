"""``gnnretrieval baselines``."""

from __future__ import annotations

from pathlib import Path

import click

from gnnretrieval.baselines import BASELINES, LEXICAL
from gnnretrieval.cli.evaluate import MEASURES
from gnnretrieval.cli.options import PATH, beside, device_option, json_option, out_beside_option, overwrite_option
from gnnretrieval.cli.output import echo, echo_json, echo_next, quoted


@click.command()
@click.argument("graph", type=PATH)
@out_beside_option
@click.option("--data", type=PATH, help="Dataset directory, if it moved since the graph was built.")
@click.option("--features", type=PATH, help="Features, if they moved since the graph was built.")
@click.option("--split", default="test", show_default=True, help="Split whose queries are ranked.")
@click.option("--depth", type=click.IntRange(1), default=100, show_default=True, help="Passages per query.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the heads' training.")
@click.option("--only", multiple=True, type=click.Choice(BASELINES), help="Rank only this baseline; may be repeated.")
@device_option
@overwrite_option
@json_option
def baselines(
    graph: Path,
    out: Path | None,
    data: Path | None,
    features: Path | None,
    split: str,
    depth: int,
    seed: int,
    only: tuple[str, ...],
    device: str,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Rank by baselines that use the labels in GRAPH without a GNN. Their settings are chosen on dev.

    Dense baselines over the same features are local-scaling, label-prior, label-mean, question-index, linear heads, and
    linear heads with label-mean and label-prior. document-expansion encodes passages with their training questions
    again, and bm25+questions is BM25 over these texts. Compare a GNN-encoder with the best of them.

    \b
    Example: gnnretrieval baselines work/graph
    """
    from gnnretrieval.baselines.rankings import rank_baselines
    from gnnretrieval.evaluation import compare, format_comparison, judged_in, leave_out_self, parse_measures
    from gnnretrieval.graph.store import open_graph

    out = out or beside(graph, "baselines")
    store = open_graph(graph)
    dataset = store.dataset(data)
    opened = store.features(features)
    measures = parse_measures([name for name in MEASURES.split(",") if int(name.partition("@")[2]) <= depth])
    judged = judged_in(dataset, split, measures)
    made = rank_baselines(
        store, dataset, opened, split, out, depth=depth, seed=seed, only=only, device=device, overwrite=overwrite
    )
    runs, _ = leave_out_self(made.runs(), dataset.path, judged)
    best = LEXICAL if made.names == [LEXICAL] else made.best_dense
    comparison = compare(judged, runs, best, measures, split, {"baselines": made.hash})
    if as_json:
        echo_json({"chosen": made.meta["chosen"], **comparison.as_json()})
        return
    echo("\n".join([*made.lines(), "", format_comparison(comparison)]))
    echo_next(
        f"gnnretrieval compare {quoted(out)}/*.run GNN_ENCODER.run --data {quoted(dataset.path)} --baseline {best}"
    )
