"""The report of a recipe's run: one offline page beside its artifacts, which names the file behind every figure.

It begins with the verdict and the comparison; every other part is folded under its heading.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gnnretrieval.errors import counted
from gnnretrieval.evaluation import Comparison
from gnnretrieval.evaluation.comparison_page import comparison_sections
from gnnretrieval.evaluation.tables import html_comparison
from gnnretrieval.graph.inspection.inspect import inspect_graph
from gnnretrieval.graph.inspection.page import summary_of, tiles_of
from gnnretrieval.graph.inspection.plots import plots_of
from gnnretrieval.index.hybrid import PIPELINES
from gnnretrieval.maps.passage_map import PassageMap
from gnnretrieval.maps.picture import picture_of
from gnnretrieval.mining.examples import REPORT as MINED
from gnnretrieval.mining.examples import open_examples
from gnnretrieval.pages.html import (
    Card,
    Html,
    element,
    figures,
    inputs_of,
    page,
    paragraph,
    section,
    source,
    table,
    tiles,
    warnings,
    write_page,
)
from gnnretrieval.progress import say
from gnnretrieval.recipes.encoder_recipe import BM25, FEATURES, START
from gnnretrieval.recipes.hybrid import fusion_lines
from gnnretrieval.recipes.report_examples import examples
from gnnretrieval.recipes.report_parts import (
    Reported,
    costs,
    data,
    training,
    what_was_run,
    where_it_is_from,
)
from gnnretrieval.recipes.run import RecipeRun
from gnnretrieval.recipes.run_encoder import EncoderRun
from gnnretrieval.recipes.same_labels import SameLabels
from gnnretrieval.storage.artifacts import kind_of, open_artifact
from gnnretrieval.storage.provenance import sha256_of_json

REPORT = "report.html"
MAP = "map.html"  # linked if it is there
_CHANGED = 5  # helped questions, and hurt questions, per encoder
_FORM = 7  # version of the page: a page of another version is written again
_STAGES = {  # kind by directory
    "features": "features",
    "graph": "graph",
    "model": "gnn-encoder",
    "model-joint": "gnn-encoder",
    "features-joint": "features",
    "embeddings": "embeddings",
    "index": "index",
    "index-dual-encoder": "index",
    "embeddings-one-vector": "embeddings",
    "index-one-vector": "index",
    "map": "map",
    "rankings": "rankings",
    "baselines": "baselines",
}


def write_report(run: RecipeRun | EncoderRun) -> Path:
    """Write ``report.html`` into the run's directory, unless it is there and was made from the same inputs.

    The same run gives the same bytes.

    Returns:
        Path of the page.
    """
    reported = _reported(run)
    path = reported.directory / REPORT
    made = {name: [artifact.hash, artifact.meta["made"]] for name, artifact in reported.artifacts.items()}
    inputs = sha256_of_json(
        {
            "form": _FORM,
            "comparison": reported.comparison.as_json(),
            "made": made,
            "map": (reported.directory / MAP).is_file(),
        }
    )
    if inputs_of(path) == inputs:
        say(f"{path}: already made from these inputs, reused")
        return path
    cards = list(_of_gnn(reported, run) if isinstance(run, RecipeRun) else _of_encoders(reported, run))
    name = reported.comparison.provenance["recipe"]["name"]
    summary = f"{counted(reported.comparison.queries, 'query')} of {reported.comparison.split}, measures × 100."
    first, *further = cards
    head = [_verdict(run), first] if isinstance(run, RecipeRun) else [first]
    write_page(page(f"{name}: the run", summary, *head, *(card.folded() for card in further), inputs=inputs), path)
    say(f"{path}: written")
    return path


def _verdict(run: RecipeRun) -> Card:
    """The verdict in words, beside a picture of the map where the graph moved passages."""
    verdict = _with_code(" ".join(run.verdict().sentences()))
    if run.map is None:
        return section("Verdict", verdict)
    whole: tuple[object, ...] = ()
    if (run.directory / MAP).is_file():
        whole = (" ", element("a", "The map to move, zoom and search", href=MAP), ".")
    if not run.map.meta["share_moved"]:
        why = "Messages along the graph turned no passage's vector, so there are no displacements to draw."
        return section("Verdict", verdict, paragraph(why, *whole))
    return section("Verdict", element("div", verdict, _picture(run.map, whole), class_="beside"))


def _picture(shown: PassageMap, whole: tuple[object, ...]) -> Html:
    """A picture of the map, and how to read it."""
    head = ", all after the linear heads" if shown.meta["after_head"] else ""
    moved = 100 * shown.meta["share_moved"]
    meaning = f"A dot is a passage, and its line begins where it was before{head}: {moved:.0f} % moved. "
    meaning += "A diamond is a training question."
    if shown.meta["displacement_kept"] is not None:
        kept = 100 * shown.meta["displacement_kept"]
        meaning += f" Two dimensions show {kept:.0f} % of the squared displacements."
    caption = element("figcaption", paragraph(meaning, *whole), source("map/meta.json"))
    return element("figure", picture_of(shown), caption)


def _with_code(text: str) -> Html:
    """A paragraph in which text between backticks is code."""
    return paragraph(*(element("code", part) if number % 2 else part for number, part in enumerate(text.split("`"))))


def _reported(run: RecipeRun | EncoderRun) -> Reported:
    names = [system.name for system in run.comparison.systems]
    if isinstance(run, RecipeRun):
        kinds = dict(_STAGES)
        if run.recipe.joint is None:
            del kinds["model-joint"]
        if run.map is None:
            del kinds["map"]
        if run.same_labels is None:
            del kinds["baselines"]
        if run.joint_features is None:
            del kinds["features-joint"]
        if not run.index.has_questions:
            del kinds["embeddings-one-vector"], kinds["index-one-vector"]
        texts = "features"
    else:
        kinds = {name: artifact.meta["kind"] for name, artifact in run.made.items()}
        features = [f"{name}{FEATURES}" for name in names if name != BM25]
        kinds |= {name: str(kind_of(run.directory / name)) for name in features} | {"rankings": "rankings"}
        texts = f"{START}{FEATURES}"
    artifacts = {name: open_artifact(run.directory / name, kind) for name, kind in kinds.items()}
    if run.dataset.path.resolve() == (run.directory / "dataset").resolve():
        artifacts = {"dataset": open_artifact(run.dataset.path, "dataset"), **artifacts}
    return Reported(run.directory, run.dataset, artifacts, run.comparison, run.runs, texts, run.answers)


def _of_gnn(reported: Reported, run: RecipeRun) -> Iterator[Card]:
    provenance = reported.comparison.provenance
    encoder = run.features.meta["encoder"]["checkpoint"]
    facts = {
        "recipe": provenance["recipe"]["name"],
        "dual-encoder": f"{encoder} ({provenance['encoder_source']})",
        "dataset": f"{reported.dataset.name}: {len(reported.dataset.passage_ids):,} passages",
        "seed": provenance["seed"],
    }
    compared, *tests = comparison_sections(reported.evidence(), most=0)
    yield compared
    if run.same_labels is not None:
        yield _same_labels(run.same_labels)
    if run.hybrids is not None:
        yield _with_bm25(run.hybrids)
    yield examples(reported, run, run.model.path.name)
    yield what_was_run(reported, facts)
    yield data(reported)
    yield _graph(reported, run)
    for name in ("model", "model-joint"):
        if name in reported.artifacts:
            yield training(reported, name)
    yield from tests
    yield costs(reported)
    yield where_it_is_from(reported)


def _graph(reported: Reported, run: RecipeRun) -> Card:
    inspection = inspect_graph(run.graph, reported.dataset.path)
    return section(
        "Graph",
        paragraph(summary_of(inspection)),
        warnings(inspection.warnings),
        tiles(tiles_of(inspection)),
        source(*(f"graph/{name}" for name in run.graph.meta["files"] if "/" not in name)),
        figures(plots_of(inspection, "graph")),
    )


def _with_bm25(hybrids: Comparison) -> Card:
    """Hybrids of BM25 and each dense ranking, as most deployments use them."""
    meaning = f"BM25's ranking joined with each dense one ({hybrids.provenance['fusion']}), as most deployments do."
    return section(
        "With BM25",
        paragraph(meaning),
        html_comparison(hybrids),
        *map(paragraph, fusion_lines(hybrids)),
        source(PIPELINES),
    )


def _same_labels(compared: SameLabels) -> Card:
    """Baselines that use the same labels without a GNN."""
    chosen = compared.comparison.provenance["baselines"]
    header, *rows = compared.rows()
    numbers = range(1, len(header))
    return section(
        "The same labels without a GNN",
        html_comparison(compared.comparison),
        table(header, rows, numbers=numbers, name="Questions about passages with and without training questions"),
        table(
            ("baseline", "RR@10 on dev", "setting chosen on dev"),
            [(name, f"{100 * choice['dev']:.1f}", choice["said"]) for name, choice in chosen.items()],
            numbers=[1],
            name="Baselines",
        ),
        source("comparison-same-labels.json", "baselines/meta.json"),
    )


def _of_encoders(reported: Reported, run: EncoderRun) -> Iterator[Card]:
    recipe = reported.comparison.provenance["recipe"]
    facts = {
        "recipe": recipe["name"],
        "stages": ", ".join(f"{name} ({artifact.meta['kind']})" for name, artifact in run.made.items()),
        "settings for small data": "yes" if reported.comparison.provenance["small"] else "no",
        "dataset": f"{reported.dataset.name}: {len(reported.dataset.passage_ids):,} passages",
    }
    compared, *tests = comparison_sections(reported.evidence(), most=_CHANGED)
    yield compared
    yield what_was_run(reported, facts)
    yield data(reported)
    for name, artifact in run.made.items():
        yield training(reported, name) if "encoder" in artifact.meta["kind"] else _mined(reported, name)
    yield from tests
    yield costs(reported)
    yield where_it_is_from(reported)


def _mined(reported: Reported, name: str) -> Card:
    """The report of a mining stage: what it kept and dropped, and why."""
    report = open_examples(reported.directory / name).report
    return section(f"Mining: {name}", element("pre", report.to_text()), source(f"{name}/{MINED}"))
