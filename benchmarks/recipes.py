"""GNN-encoder against its dual-encoder and BM25 on each recipe's test split, over several training seeds.

    .venv/bin/python benchmarks/recipes.py --data DIRECTORY

DIRECTORY holds two sets in the BEIR layout: fairytaleqa (FairytaleQA, Xu et al. 2022, sections as passages) and
squad-open (SQuAD v1.1 paragraphs, the domain ``squad``, split by question); one that is not there is skipped, which is
said. The docstring corpus is made. Writes results/recipes.json and results/recipes.md; with --only, the others stay
there as they are, each with the settings and the revision it was made with. Epoch and context scale are chosen on each
set's dev split; nothing is chosen on test.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.evaluation import markdown_comparison, mean, paired_test, per_query
from gnnretrieval.graph.inspect import inspect_graph
from gnnretrieval.index import build_index
from gnnretrieval.index.search import index_run
from gnnretrieval.memory import keep_freed_memory
from gnnretrieval.progress import say
from gnnretrieval.provenance import git_revision, library_versions, write_json
from gnnretrieval.recipes import RecipeRun, run_recipe
from gnnretrieval.training import embed_passages, train_gnn

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
SETS = {"docstrings": None, "docstrings-cut": None, "fairytaleqa": "fairytaleqa", "squad-open": "squad-open"}


def measure_seed(run: RecipeRun, seed: int) -> dict[str, Any]:
    """Train with another seed, everything else as the recipe has it, and measure on test."""
    compared, index, model = run.recipe.compare, run.index, run.model
    if seed != run.recipe.train.seed:
        settings = run.recipe.train.model_copy(update={"seed": seed})
        place = run.directory / "seeds" / str(seed)
        common: dict[str, Any] = {"overwrite": True, "say": say}
        model = train_gnn(run.graph, run.dataset, run.features, settings, place / "model", **common)
        embeddings = embed_passages(model, run.graph, place / "embeddings", **common)
        index = build_index(embeddings, place / "index", **common)
    queries = list(run.dataset.split(compared.split))
    found = index_run(index, queries, run.features.queries[run.features.rows_of(queries)], compared.depth)
    judgements = run.dataset.split(compared.split)
    (after,) = per_query(judgements, found, ["RR@10"]).values()
    (before,) = per_query(judgements, run.runs["dual-encoder"], ["RR@10"]).values()
    test = paired_test(after, before)
    return {
        "seed": seed,
        "RR@10": mean({"RR@10": after})["RR@10"],
        "difference": test.difference,
        "p": test.p,
        "chosen_on_dev": model.meta["dev"]["chosen"],
    }


def figures(inspected: dict[str, Any]) -> dict[str, Any]:
    """What says beforehand how much a graph can help (docs/when-a-graph-helps.md)."""
    asked = (inspected["overlap"].get("splits") or {}).get("test", {})
    return {
        "passages": inspected["passages"],
        "queries": inspected["queries"],
        "k": inspected["k"],
        "paraphrase": inspected["agreement"].get("paraphrase"),
        "recall_ceiling": inspected["labelled_passage_among_neighbours"][str(inspected["k"])],
        "test": {name: asked.get(name) for name in ("share_with_training_questions", "share_never_found")},
    }


def markdown(results: dict[str, Any]) -> str:
    """All tables as a page."""
    seeds = max(len(result["seeds"]) for result in results["recipes"].values())
    lines = [
        "# GNN-encoder on the recipes",
        "",
        f"Regenerate: `.venv/bin/python benchmarks/recipes.py --data DIRECTORY --seeds {seeds}`",
        "",
    ]
    for name, result in results["recipes"].items():
        lines += [f"## {name}", "", result["table"].strip(), ""]
        rows = result["seeds"]
        values = [100 * row["difference"] for row in rows]
        gaining = sum(row["difference"] > 0 and row["p"] < 0.01 for row in rows)
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        lines += [
            f"Over {len(rows)} seeds: GNN-encoder {statistics.mean(100 * row['RR@10'] for row in rows):.1f} RR@10, "
            f"{statistics.mean(values):+.1f}{spread} over the dual-encoder (worst {min(values):+.1f}, best "
            f"{max(values):+.1f}; {gaining} of {len(rows)} gain with p < 0.01, paired t-test). "
            f"{result['train']['epochs']} epochs.",
            "",
        ]
    return "\n".join(lines)


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Folder with fairytaleqa and squad-open.")
@click.option("--work", type=click.Path(path_type=Path), help="Keep the artifacts here (default: made anew, not kept).")
@click.option("--only", type=click.Choice(list(SETS)), multiple=True, help="Some of the sets.")
@click.option("--seeds", type=click.IntRange(1), default=5, show_default=True)
def main(data: Path, work: Path | None, only: tuple[str, ...], seeds: int) -> None:
    """Run every recipe and write the result files."""
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as temporary:
        results = measure(data, work or Path(temporary), only or tuple(SETS), seeds)
    file = RESULTS / "recipes.json"
    before = json.loads(file.read_text(encoding="utf-8"))["recipes"] if only and file.is_file() else {}
    results["recipes"] = {
        name: {**before, **results["recipes"]}[name] for name in SETS if name in {*before, *results["recipes"]}
    }
    write_json(RESULTS / "recipes.json", results)
    (RESULTS / "recipes.md").write_text(markdown(results), encoding="utf-8")
    click.echo(markdown(results))


def measure(data: Path, work: Path, names: Collection[str], seeds: int) -> dict[str, Any]:
    """Run every recipe that has its data."""
    recipes: dict[str, Any] = {}
    for name, folder in SETS.items():
        if name not in names:
            continue
        if folder is not None and not (data / folder).is_dir():
            say(f"{name}: skipped, {data / folder} is not there")
            continue
        try:
            run = run_recipe(
                ROOT / "graphs" / f"{name}.toml", data=data / folder if folder else None, out=work / name, say=say
            )
        except GnnRetrievalError as error:
            raise click.ClickException(str(error)) from None
        measured = [measure_seed(run, seed) for seed in range(seeds)]
        recipes[name] = {
            "comparison": run.comparison.as_json(),
            "table": markdown_comparison(run.comparison),
            "seeds": measured,
            "graph": figures(inspect_graph(run.graph)),
            "train": run.recipe.train.model_dump(mode="json"),
            "git_revision": git_revision(),
        }
    return {"recipes": recipes, "cores": os.cpu_count(), "versions": library_versions()}


if __name__ == "__main__":
    main()
