"""``gnnretrieval run`` and ``gnnretrieval quickstart``."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import click

from gnnretrieval.cli.options import PATH, device_option, json_option
from gnnretrieval.cli.output import echo, echo_json
from gnnretrieval.cli.show import short
from gnnretrieval.pages.text_table import in_columns
from gnnretrieval.recipes.stages import timed_stage

if TYPE_CHECKING:
    from gnnretrieval.recipes import RecipeRun

_SHOWN, _KEPT = 3, 6  # examples that are printed, and that are written for the explorer


@click.command()
@click.argument("recipe", type=PATH)
@click.option(
    "--data",
    type=PATH,
    help="Dataset directory, instead of the recipe's; or the folder with the files that the recipe imports.",
)
@click.option(
    "--out",
    type=PATH,
    help="Where everything goes (default: a directory beside the recipe, or graphs/NAME for a packaged recipe).",
)
@click.option("--dry-run", is_flag=True, help="Print what would be made, with sizes, and make nothing.")
@device_option
@json_option
def run(recipe: Path, data: Path | None, out: Path | None, dry_run: bool, device: str, as_json: bool) -> None:
    """Run every stage of a RECIPE: a TOML file or the name of a packaged recipe. Finished stages are reused.

    \b
    Example: gnnretrieval run my-data.toml
    Example: gnnretrieval run msmarco --dry-run
    Example: gnnretrieval run msmarco --data downloads
    """
    from gnnretrieval.recipes.recipe import find_recipe, is_packaged

    recipe = find_recipe(recipe)
    if is_packaged(recipe):
        out = out or Path("graphs") / recipe.stem
    if dry_run:
        from gnnretrieval.recipes.dry_run import dry_run as plan_run

        plan = plan_run(recipe, data=data, out=out)
        if as_json:
            echo_json(plan.as_json())
        else:
            echo(plan.to_text())
        return
    _show(_run(recipe, data, out, device), as_json)


@click.command()
@click.option("--out", type=PATH, help="Where everything goes (default: graphs/docstrings).")
@device_option
@json_option
def quickstart(out: Path | None, device: str, as_json: bool) -> None:
    """Run the whole pipeline offline on the docstring corpus, and compare a GNN-encoder with its dual-encoder.

    \b
    Example: gnnretrieval quickstart
    """
    from gnnretrieval.recipes.recipe import find_recipe, is_packaged

    recipe = _as_seen_from_here(find_recipe(Path("docstrings")))
    result = _run(recipe, None, out or (Path("graphs/docstrings") if is_packaged(recipe) else None), device)
    _show(result, as_json)
    if not as_json:
        _show_next(result)


def _run(recipe: Path, data: Path | None, out: Path | None, device: str) -> RecipeRun:
    from gnnretrieval.recipes import run_recipe, write_report
    from gnnretrieval.recipes.report import MAP
    from gnnretrieval.serve.map_page import write_map_file
    from gnnretrieval.serve.settings import MOST, MOST_TEXTS

    result = run_recipe(recipe, data=data, out=out, device=device)
    with timed_stage("report"):
        if result.map is not None:
            write_map_file(result.map, result.directory / MAP, most=MOST, most_texts=MOST_TEXTS)
        else:
            (result.directory / MAP).unlink(missing_ok=True)  # of an earlier run, whose GNN-encoder was kept
        write_report(result)
    return result


def _show(result: RecipeRun, as_json: bool) -> None:
    from gnnretrieval.evaluation import format_comparison
    from gnnretrieval.recipes.examples import changed_examples, write_examples
    from gnnretrieval.recipes.hybrid import fusion_lines

    examples, _ = changed_examples(result, _KEPT)
    write_examples(result, examples)
    if as_json:
        echo_json(result.comparison.as_json())
        return
    if result.same_labels is None:
        echo("\n" + format_comparison(result.comparison))
    else:
        echo("\n" + format_comparison(result.same_labels.comparison))
        echo("\n" + "\n".join(in_columns(result.same_labels.rows())))
    if result.hybrids is not None:
        echo(f"\nJoined with BM25 ({result.hybrids.provenance['fusion']}), as most deployments do:\n")
        echo("\n".join([format_comparison(result.hybrids), *fusion_lines(result.hybrids)]))
    echo("\nVerdict:")
    for sentence in result.verdict(_as_seen_from_here(result.directory)).sentences():
        echo(fill(sentence, 110, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False))
    if examples:
        echo("\nThe questions that gained most, and what moved their passages:")
    for example in examples[:_SHOWN]:
        before = f"rank {example.before}" if example.before else f"below {result.recipe.compare.depth}"
        why = example.why
        echo(
            f"\n  {short(example.question)}\n"
            f"    {example.passage_id}: {before} → rank {example.after}   "
            f"({why.gate}attention to itself {why.own_attention:z.2f})"
        )
        if example.passage_id in example.matched:
            echo(f"      found by its training question: {short(example.matched[example.passage_id], 80)}")
        if not why.neighbors:
            echo(f"      {why.without_neighbors}")
        for neighbor in why.neighbors:
            mark = " (labelled with it)" if neighbor.labelled else ""
            echo(f"      attention {neighbor.attention:z.3f}  {short(neighbor.text, 70)}{mark}")
    echo(f"\nThe report, to open in a browser: {_as_seen_from_here(result.directory / 'report.html')}")


def _show_next(result: RecipeRun) -> None:
    place = _as_seen_from_here(result.directory)
    is_default = place == Path("graphs/docstrings")
    searched, served = ("", "") if is_default else (f" --index {place}/index", f" {place}")
    echo(
        f"\nMade in {place}: dataset, features, graph, model, embeddings, index, map, rankings, baselines,\n"
        "comparison.json, comparison-same-labels.json, comparison-with-bm25.json, map.html, report.html\n"
        "Next (in a checkout, first `source .venv/bin/activate`; serve shows what moved and why at "
        "http://127.0.0.1:8000):\n"
        f"  gnnretrieval serve{served}\n"
        f'  gnnretrieval search "solve a linear system with a banded matrix" --explain{searched}\n'
        f"  gnnretrieval graph inspect {place}/graph\n"
        f"  gnnretrieval graph neighbors {place}/graph scipy.linalg.solve_banded\n"
        f"  gnnretrieval data inspect {place}/dataset\n"
        "  your own data: the README's five commands"
    )


def _as_seen_from_here(path: Path) -> Path:
    """``path`` relative to the working directory, if it is inside."""
    absolute = path.resolve()
    return absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else path
