"""The dry run of a recipe: the stages, their work and sizes, and what is already made. It makes nothing."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gnnretrieval.data import Dataset, make_docstring_corpus
from gnnretrieval.encoders.checkpoint import directory_on_disk
from gnnretrieval.encoders.trained import JOINT
from gnnretrieval.errors import GnnRetrievalError, InputError, counted
from gnnretrieval.graph.inspection.memory_needs import TrainingShape, memory_needs
from gnnretrieval.recipes.changed_stages import changed_stages, is_other_encoder
from gnnretrieval.recipes.dry_run_sizes import Sizes, stage_bytes
from gnnretrieval.recipes.plan import PlannedDownload, PlannedMemory, PlannedSizes, PlannedStage, RunPlan
from gnnretrieval.recipes.recipe import DOCSTRINGS, Recipe, SizeSettings, read_recipe
from gnnretrieval.recipes.source_files import folder_of, is_dataset, is_there
from gnnretrieval.training.gnn.corpus_part import most_nodes
from gnnretrieval.training.gnn.ladder import MOST_SETTINGS, STEPS
from gnnretrieval.training.gnn.message_memory import bytes_of_messages
from gnnretrieval.training.gnn.messages import passages_of_part


def dry_run(path: str | Path, *, data: str | Path | None = None, out: str | Path | None = None) -> RunPlan:
    """What :func:`gnnretrieval.recipes.run.run_recipe` would do with these arguments.

    Counts come from the dataset where it exists, otherwise from the recipe's ``[size]``. Sizes of finished stages are
    bytes on disk; the others are estimates from the shapes of the arrays. A finished stage counts as not made if its
    settings or inputs changed.

    Raises:
        InputError: the recipe has an error, or there is neither a dataset nor ``[size]``.
    """
    path = Path(path)
    recipe = read_recipe(path)
    directory = Path(out) if out is not None else path.parent / recipe.name
    place = there = _dataset_place(recipe, path, data, directory)
    with TemporaryDirectory() as temporary:
        summaries = DOCSTRINGS.get(recipe.data.source or "")
        if place is None and data is None and recipe.size is None and summaries is not None:
            place = make_docstring_corpus(Path(temporary) / "dataset", summaries).path
        sizes = _sizes(recipe, place, path, directory)
    planned = _stages(recipe, sizes, place, directory)
    metas = {folder: meta for _, folder, _ in planned if folder != "dataset" and (meta := _meta(directory / folder))}
    dataset = None if there is None or not metas else _dataset(recipe, there)
    changed = changed_stages(recipe, metas, dataset, path.parent)
    stages, several = [], _keeps_several(metas.get("model-joint", metas.get("model", {})))
    for name, folder, work in planned:
        on_disk = None if folder in changed else _on_disk(directory / folder)
        made, written = on_disk or (False, stage_bytes(recipe, sizes, folder, several=several))
        work = f"made again, as settings or inputs changed: {work}" if folder in changed else work
        stages.append(PlannedStage(name=name, path=str(directory / folder), made=made, bytes=written, work=work))
    missing = [stage.bytes for stage in stages if not stage.made]
    known = [count for count in missing if count is not None]
    return RunPlan(
        recipe=recipe.name,
        directory=str(directory),
        downloads=_downloads(recipe, path, data),
        sizes=PlannedSizes(**dict(sizes), source="recipe" if place is None else "dataset"),
        stages=stages,
        disk_bytes=sum(known) if len(known) == len(missing) else None,
        free_bytes=shutil.disk_usage(_existing(directory)).free,
        memory_bytes=_memory(recipe, sizes),
        joint=_is_joint(recipe),
    )


def _existing(directory: Path) -> Path:
    return next(place for place in (directory.absolute(), *directory.absolute().parents) if place.exists())


def _dataset_place(recipe: Recipe, path: Path, data: str | Path | None, directory: Path) -> Path | None:
    """The dataset directory; None where there is none yet."""
    settings = recipe.data
    if data is not None and is_dataset(Path(data)):
        return Path(data)
    made_here = settings.files or settings.source in DOCSTRINGS
    place = directory / "dataset" if made_here else path.parent / (settings.source or "")
    if (made_here or settings.source) and is_dataset(place):
        return place
    return None


def _dataset(recipe: Recipe, place: Path) -> Dataset:
    return Dataset.open(place, recipe.data.qrels, recipe.data.where)


def _sizes(recipe: Recipe, place: Path | None, path: Path, directory: Path) -> Sizes:
    widths = (_dimension(recipe, directory), _edge_dimension(recipe, directory))
    if place is not None:
        dataset = _dataset(recipe, place)
        return Sizes(
            passages=len(dataset.passage_ids),
            queries=len(dataset.query_ids),
            graph_queries=len(dataset.split(recipe.graph.split)),
            reported_queries=len(dataset.query_ids_of(recipe.compare.split)),
            text_bytes=sum((place / name).stat().st_size for name in ("corpus.jsonl", "queries.jsonl")),
            dimension=widths[0],
            edge_dimension=widths[1],
            id_bytes=sum(sum(map(len, ids)) / len(ids) for ids in (dataset.passage_ids, dataset.query_ids)),
        )
    if recipe.size is None:
        raise InputError(
            "there is no dataset, and the recipe has no [size]. Give a dataset with --data, or a [size] with "
            f"{', '.join(SizeSettings.model_fields)}.",
            path,
        )
    counts = recipe.size.model_dump(include=set(Sizes.model_fields) - {"dimension", "edge_dimension", "id_bytes"})
    return Sizes(**counts, dimension=widths[0], edge_dimension=widths[1])


def _dimension(recipe: Recipe, directory: Path) -> int | None:
    made = _meta(directory / "features")
    if "dimension" in made and (recipe.vectors is not None or not is_other_encoder(recipe.encoder, made)):
        return int(made["dimension"])
    return recipe.size.dimension if recipe.size is not None else _hidden_size(recipe.encoder.checkpoint)


def _edge_dimension(recipe: Recipe, directory: Path) -> int | None:
    graph = recipe.graph
    if graph.edge_vectors == "none":
        return 0
    if graph.edge_dimensions is not None:
        return graph.edge_dimensions
    if recipe.size is not None:
        return recipe.size.edge_dimension
    return _hidden_size(graph.cross_encoder)


def _hidden_size(checkpoint: str | None) -> int | None:
    """Width of a checkpoint that is on this disk; None for another, which a dry run does not download."""
    try:
        directory = directory_on_disk(str(checkpoint))
        if directory is None:
            return None
        return int(json.loads((directory / "config.json").read_text(encoding="utf-8"))["hidden_size"])
    except (GnnRetrievalError, OSError, ValueError, KeyError, TypeError):
        return None


def _meta(directory: Path) -> dict[str, Any]:
    try:
        meta: dict[str, Any] = json.loads((directory / "meta.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return meta


def _on_disk(directory: Path) -> tuple[bool, int] | None:
    """True and the bytes of an artifact; None where it is not made."""
    if not (directory / "meta.json").is_file() and not directory.is_file():
        return None
    files = [directory] if directory.is_file() else [file for file in directory.rglob("*") if file.is_file()]
    # A file that several artifacts share by hard links is on the disk once.
    return True, sum(file.stat().st_size // file.stat().st_nlink for file in files)


def _stages(recipe: Recipe, sizes: Sizes, place: Path | None, directory: Path) -> list[tuple[str, str, str]]:
    """Name, folder and work of each stage, in order."""
    m, n = sizes.passages, sizes.graph_queries
    texts = f"{m:,} passages and {sizes.queries:,} queries to encode"
    pairs = f"{n * recipe.graph.k:,} edges"
    if recipe.graph.reads_pairs:
        loops = n + m if recipe.graph.self_loops == "cross-encoder" else 0
        pairs += f", {n * recipe.graph.k + loops:,} pairs for the cross-encoder to read"
    stages: list[tuple[str, str, str]] = []
    if recipe.data.files or recipe.data.source in DOCSTRINGS:
        stages.append(("data", "dataset", f"{m:,} passages and {sizes.queries:,} queries to import"))
    stages += [
        ("features", "features", texts if recipe.vectors is None else "vectors to import"),
        ("graph", "graph", pairs),
        ("training", "model", _steps(recipe, n, joint=False)),
    ]
    if recipe.joint is not None:
        stages.append(("joint training", "model-joint", _steps(recipe, n, joint=True)))
    model = _meta(directory / stages[-1][1])
    if JOINT in model or (not model and _is_joint(recipe)):  # a dual-encoder that did not gain on dev is not kept
        stages.append(
            ("features of the jointly trained dual-encoder", "features-joint", f"{texts}, if it gains on dev")
        )
    baselines = (("baselines", "baselines", "simple uses of the same labels, on the same queries"),)
    several = _keeps_several(model)
    more = ", and a vector for each of their training questions" * several
    reduced = (
        ("embeddings of one vector a passage", "embeddings-one-vector", f"{m:,} passages"),
        ("index of one vector a passage", "index-one-vector", f"{m:,} vectors"),
    )
    shown = (("map", "map", f"{m:,} passages in two dimensions, if any gain on dev is significant"),)
    return [
        *stages,
        ("embeddings", "embeddings", f"{m:,} passages through the GNN-encoder{more}"),
        ("index", "index", f"{m:,} vectors{more}"),
        ("index of the dual-encoder", "index-dual-encoder", f"{m:,} vectors"),
        *(reduced if several else ()),
        *(shown if model.get("dev", {}).get("believed", True) else ()),  # a kept dual-encoder moved nothing
        ("rankings", "rankings", f"3 systems, {sizes.reported_queries:,} queries, {recipe.compare.depth:,} deep"),
        *(baselines if recipe.compare.baselines else ()),
        ("comparison", "comparison.json", ", ".join(recipe.compare.measures)),
    ]


def _keeps_several(model: Mapping[str, Any]) -> bool:
    """Whether a model's training kept several vectors a passage."""
    return bool(model.get("questions", {}).get("questions"))


def _is_joint(recipe: Recipe) -> bool:
    return recipe.joint is not None or recipe.train.is_joint


def _steps(recipe: Recipe, queries: int, joint: bool) -> str:
    settings = recipe.joint if joint and recipe.joint is not None else recipe.train
    if settings.layer == "linear":
        heads = f"heads trained for up to {', '.join(map(str, STEPS))} steps"
        return f"{heads}; at most {MOST_SETTINGS} settings measured on dev"
    masked = 1.0 if settings.mask_unit == "none" else settings.mask_ratio
    steps = math.ceil(round(masked * queries) / settings.batch_size) or 1
    beside = ", together with the dual-encoder" if settings.is_joint else ""
    return f"{counted(settings.epochs, 'epoch')} of about {steps:,} steps of {settings.batch_size:,} queries{beside}"


def _memory(recipe: Recipe, sizes: Sizes) -> PlannedMemory:
    """Bytes of memory of the largest stages: training (at least for the graph), and an exact index."""
    if sizes.dimension is None or sizes.edge_dimension is None:
        return PlannedMemory(training=None, index=None)
    settings = recipe.joint or recipe.train
    k = recipe.graph.k
    index = 4 * sizes.dimension * sizes.passages
    if settings.layer == "linear":
        part = passages_of_part(settings, sizes.dimension, sizes.passages, sizes.graph_queries)
        nodes = sizes.passages + sizes.graph_queries if part is None else most_nodes(part)
        held = bytes_of_messages(sizes.dimension, nodes)
        return PlannedMemory(training=held, index=index)
    needs = memory_needs(
        sizes.passages,
        sizes.graph_queries,
        k,
        sizes.dimension,
        len(recipe.graph.edge_features) + sizes.edge_dimension,
        queries_per_candidate=max(1.0, sizes.graph_queries * k / sizes.passages),
        shape=TrainingShape(settings.batch_size, settings.hard_negatives, settings.mask_ratio),
    )
    whole = settings.candidates == "corpus"
    return PlannedMemory(training=needs.training_corpus if whole else needs.training_batch, index=index)


def _downloads(recipe: Recipe, path: Path, data: str | Path | None) -> list[PlannedDownload]:
    folder = folder_of(recipe.data, path, data)
    return [
        PlannedDownload(
            **dict(download),
            there=all(is_there(name, recipe.data, folder) for name in download.holds or (download.name,)),
        )
        for download in recipe.data.download
    ]
