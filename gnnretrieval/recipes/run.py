"""Run a recipe: every stage in order, reusing artifacts that were made from the same inputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnretrieval.baselines.rankings import Baselines, rank_baselines
from gnnretrieval.data import Dataset, make_docstring_corpus
from gnnretrieval.data.runs.trec import Run, read_run, require_writable_ids
from gnnretrieval.encoders.faiss_search import import_faiss
from gnnretrieval.encoders.features import Features, encode_dataset
from gnnretrieval.encoders.opening import fingerprint_of
from gnnretrieval.encoders.trained import GNN_ENCODER, trained_settings
from gnnretrieval.encoders.vectors import VectorSettings, import_vectors
from gnnretrieval.errors import InputError
from gnnretrieval.evaluation import (
    AnswerHits,
    Comparison,
    compare,
    find_answers,
    judged_in,
    leave_out_self,
    parse_measures,
    require_answers,
)
from gnnretrieval.graph.build import build_graph, require_k
from gnnretrieval.graph.store import Graph
from gnnretrieval.index.faiss_index import ONE_VECTOR, PLACES, Index, build_index
from gnnretrieval.index.hybrid import PIPELINES, Ranker, RankingSettings
from gnnretrieval.index.rerankers import require_reranker
from gnnretrieval.maps.building import build_map
from gnnretrieval.maps.passage_map import PassageMap
from gnnretrieval.progress import say
from gnnretrieval.recipes.hybrid import compare_with_bm25
from gnnretrieval.recipes.rankings import BM25_SYSTEM, DUAL_ENCODER, rank_systems
from gnnretrieval.recipes.recipe import DOCSTRINGS, DataSettings, Recipe, read_recipe
from gnnretrieval.recipes.same_labels import SameLabels, compare_same_labels
from gnnretrieval.recipes.source_files import dataset_of_files, folder_of, is_dataset
from gnnretrieval.recipes.stages import timed_stage, write_comparison
from gnnretrieval.recipes.verdict import Verdict
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.storage.provenance import git_revision, library_versions
from gnnretrieval.training.gnn.embeddings import Embeddings, embed_passages
from gnnretrieval.training.gnn.held_out import dev_split, require_new_queries
from gnnretrieval.training.gnn.message_memory import fits_memory
from gnnretrieval.training.gnn.model import GNNEncoderModel
from gnnretrieval.training.gnn.train import train_gnn


@dataclass(frozen=True)
class RecipeRun:
    """What a recipe's run made.

    Attributes:
        directory: Directory of the artifacts.
        recipe: The recipe.
        dataset: The dataset.
        features: Features by the dual-encoder that the graph was built with.
        graph: The graph.
        model: The GNN-encoder.
        joint_features: Features by the dual-encoder that was trained jointly with the model; None: there is none.
        index: Index of the GNN-encoder's embeddings.
        map: The map of the embeddings; None: training kept the dual-encoder, so that nothing moved.
        runs: Run by system, on the reported split.
        answers: Retrieved passages that contain an answer.
        comparison: The comparison of the systems.
        same_labels: The comparison with baselines that use the same labels; None: the recipe has no baselines.
        hybrids: The comparison of hybrids with BM25; None: the recipe has no hybrids.
    """

    directory: Path
    recipe: Recipe
    dataset: Dataset
    features: Features
    graph: Graph
    model: GNNEncoderModel
    joint_features: Features | None
    index: Index
    map: PassageMap | None
    runs: dict[str, Run]
    answers: AnswerHits
    comparison: Comparison
    same_labels: SameLabels | None
    hybrids: Comparison | None

    def verdict(self, directory: Path | None = None) -> Verdict:
        """What the run showed.

        Args:
            directory: The directory as the reader would type it; None: its name.
        """
        return Verdict(
            self.comparison,
            self.same_labels,
            self.hybrids,
            system=GNN_ENCODER,
            bm25=BM25_SYSTEM,
            kept=_is_kept(self.model),
            directory=directory or Path(self.directory.name),
            uses_graph=_has_messages(self.model),
        )


def run_recipe(
    path: str | Path,
    *,
    data: str | Path | None = None,
    out: str | Path | None = None,
    device: str = "cpu",
) -> RecipeRun:
    """Run every stage of the recipe at ``path`` into the directory ``out``.

    Args:
        path: The TOML file.
        data: Dataset directory, instead of the recipe's.
        out: Where everything goes; None: a directory beside the recipe, with the recipe's name.
        device: Where to compute.

    Raises:
        GnnRetrievalError: a stage fails, or its input is wrong.
    """
    path = Path(path)
    recipe = read_recipe(path)
    directory = Path(out) if out is not None else path.parent / recipe.name
    with timed_stage("data"):
        dataset = dataset_of(recipe.data, path, data, directory)
        _refuse_early(recipe, path, dataset, directory)
        train, reported = dataset.split(recipe.graph.split), _reported(recipe, dataset)
        say(
            f"{len(dataset.passage_ids):,} passages, {len(train):,} training and {len(reported):,} "
            f"{recipe.compare.split} queries"
        )
    made = _make(recipe, path, dataset, directory, device)
    with timed_stage("comparison"):
        return _compared(recipe, dataset, made, reported, directory)


@dataclass(frozen=True)
class _Made:
    """The artifacts of a run."""

    features: Features
    graph: Graph
    model: GNNEncoderModel
    joint_features: Features | None
    embeddings: Embeddings
    index: Index
    map: PassageMap | None
    rankings: Artifact
    baselines: Baselines | None
    with_graph: list[str]


def _make(recipe: Recipe, path: Path, dataset: Dataset, directory: Path, device: str) -> _Made:
    """Run the stages up to the rankings."""
    common: dict[str, Any] = {"device": device, "overwrite": True}
    with timed_stage("features"):
        features = _features(recipe, path, dataset, directory / "features", device)
    with timed_stage("graph"):
        graph = build_graph(dataset, features, recipe.graph, directory / "graph", **common)
    with timed_stage("training"):
        model = train_gnn(graph, dataset, features, recipe.train, directory / "model", **common)
    if recipe.joint is not None:
        with timed_stage("joint training"):
            model = train_gnn(graph, dataset, features, recipe.joint, directory / "model-joint", start=model, **common)
    joint_features = None
    if model.has_encoder:
        with timed_stage("features of the jointly trained dual-encoder"):
            joint_encoder = recipe.encoder.for_checkpoint(model.path)
            joint_features = encode_dataset(dataset, joint_encoder, directory / "features-joint", **common)
    with timed_stage("embeddings"):
        embeddings = embed_passages(model, graph, directory / "embeddings", features=joint_features, **common)
    with timed_stage("index"):
        index = build_index(embeddings, directory / PLACES[GNN_ENCODER], overwrite=True)
        baseline = build_index(features, directory / "index-dual-encoder", overwrite=True)
    systems = {DUAL_ENCODER: (baseline, features), GNN_ENCODER: (index, joint_features or features)}
    if embeddings.has_questions:
        with timed_stage("index of one vector a passage"):
            place = directory / "embeddings-one-vector"
            reduced = embed_passages(model, graph, place, features=joint_features, one_vector=True, **common)
            smaller = build_index(reduced, directory / PLACES[ONE_VECTOR], overwrite=True)
        systems[ONE_VECTOR] = (smaller, joint_features or features)
    shown = None
    if _is_kept(model) and model.is_linear and not fits_memory(graph):
        say("no map: its vectors do not fit into memory")
    elif _is_kept(model):
        with timed_stage("map"):
            shown = build_map(embeddings, directory / "map", overwrite=True)
    with timed_stage("rankings"):
        ranking = None if recipe.ranking is None else _resolved(recipe.ranking, path)
        ranker = None if ranking is None else Ranker(index, ranking, device, graph)
        rankings = rank_systems(recipe, dataset, systems, ranker, model, directory)
    baselines = _baselines(recipe, dataset, features, graph, directory, device)
    with_graph = [name for name in (ONE_VECTOR, GNN_ENCODER) if name in systems]
    return _Made(features, graph, model, joint_features, embeddings, index, shown, rankings, baselines, with_graph)


def _baselines(
    recipe: Recipe, dataset: Dataset, features: Features, graph: Graph, directory: Path, device: str
) -> Baselines | None:
    """Rank the baselines; None where the recipe has none, or they do not fit into memory."""
    if not recipe.compare.baselines:
        return None
    if not fits_memory(graph):
        say("no baselines: their vectors do not fit into memory")
        return None
    with timed_stage("baselines"):
        baselines = rank_baselines(
            graph,
            dataset,
            features,
            recipe.compare.split,
            directory / "baselines",
            depth=recipe.compare.depth,
            seed=recipe.train.seed,
            device=device,
            overwrite=True,
        )
        for line in baselines.lines():
            say(line)
    return baselines


def _is_kept(model: GNNEncoderModel) -> bool:
    """Whether training kept more than the dual-encoder."""
    return bool(model.meta["dev"]["believed"])


def _has_messages(model: GNNEncoderModel) -> bool:
    """Whether the model has more than a head."""
    if not model.is_linear:
        return True
    messages = model.load_messages().messages
    return bool(model.question_weight or messages.mean or messages.needs_all or messages.prior or messages.scaling)


def _compared(
    recipe: Recipe, dataset: Dataset, made: _Made, reported: dict[str, dict[str, int]], directory: Path
) -> RecipeRun:
    """Compare the systems, with baselines and with BM25, and write the comparisons."""
    baselines = made.baselines
    names = [BM25_SYSTEM, DUAL_ENCODER, *made.with_graph]
    if recipe.ranking is not None:
        names.append(GNN_ENCODER + recipe.ranking.suffix)
    runs = {name: read_run(made.rankings.path / f"{name}.run", may_be_empty=True) for name in names}
    runs, self_excluded = leave_out_self(runs, dataset.path, reported)
    measures, split = parse_measures(recipe.compare.measures), recipe.compare.split
    baseline_runs = {} if baselines is None else baselines.runs()
    answers = find_answers(dataset, [*runs.values(), *baseline_runs.values()], measures, reported)
    provenance = _provenance(recipe, dataset, made, self_excluded)
    comparison = compare(reported, runs, DUAL_ENCODER, measures, split, provenance, answers=answers)
    write_comparison(comparison, directory / "comparison")
    baseline_runs, _ = leave_out_self(baseline_runs, dataset.path, reported)
    same_labels = None
    if baselines is not None:
        same_labels = compare_same_labels(
            reported,
            runs,
            baseline_runs,
            baselines,
            made.graph,
            recipe.compare,
            GNN_ENCODER,
            DUAL_ENCODER,
            provenance,
            answers,
        )
    write_comparison(same_labels and same_labels.comparison, directory / "comparison-same-labels")
    hybrids = compare_with_bm25(
        recipe,
        dataset,
        reported,
        runs | baseline_runs,
        ([BM25_SYSTEM], [DUAL_ENCODER], made.with_graph),
        made.rankings,
        baselines,
        provenance,
        answers,
    )
    write_comparison(hybrids, directory / PIPELINES)
    return RecipeRun(
        directory,
        recipe,
        dataset,
        made.features,
        made.graph,
        made.model,
        made.joint_features,
        made.index,
        made.map,
        runs,
        answers,
        comparison,
        same_labels,
        hybrids,
    )


def _provenance(recipe: Recipe, dataset: Dataset, made: _Made, self_excluded: int) -> dict[str, Any]:
    """What the comparisons were made from; ``self_excluded`` counts questions that had retrieved themselves."""
    artifacts = (made.features, made.graph, made.model, made.embeddings, made.rankings)
    return {
        "recipe": recipe.model_dump(mode="json"),
        "dataset": dataset.provenance(),
        "encoder_source": made.features.meta["source"],
        "chosen_on_dev": made.model.meta["dev"],
        "seed": (recipe.joint or recipe.train).seed,
        "self_excluded": self_excluded,
        "artifacts": {
            artifact.meta["kind"]: {"hash": artifact.hash, "git_revision": artifact.meta["git_revision"]}
            for artifact in artifacts
        },
        "versions": library_versions(),
        "git_revision": git_revision(),
    }


def _reported(recipe: Recipe, dataset: Dataset) -> dict[str, dict[str, int]]:
    return judged_in(dataset, recipe.compare.split, parse_measures(recipe.compare.measures))


def _refuse_early(recipe: Recipe, path: Path, dataset: Dataset, directory: Path) -> None:
    """Check before any work what a later stage would refuse."""
    if directory.resolve() == dataset.path.resolve():
        raise InputError("the results would go into the dataset's directory: choose another with --out.", directory)
    if (directory / "index").is_symlink():
        raise InputError("gnnretrieval update keeps its versions here: choose another directory with --out.", directory)
    graph, reported = dataset.split(recipe.graph.split), _reported(recipe, dataset)
    dev = dev_split(dataset)
    if recipe.compare.split == dev:
        raise InputError(
            f"split {recipe.compare.split!r} is the dev split, which chooses settings, and cannot be reported on. "
            "Give another compare.split.",
            dataset.path,
        )
    require_new_queries(dataset, recipe.compare.split, graph.keys())
    ranked = [*reported, *(dataset.split(dev) if dev is not None else ())]
    require_writable_ids([*dataset.passage_ids, *ranked], dataset.path)
    require_answers(dataset, parse_measures(recipe.compare.measures), reported)
    require_k(recipe.graph.k, dataset)
    import_faiss()
    if recipe.ranking is not None and (rerank := _resolved(recipe.ranking, path).rerank) is not None:
        require_reranker(rerank)
    if recipe.vectors is None:
        fingerprint_of(trained_settings(recipe.encoder))


def _features(recipe: Recipe, path: Path, dataset: Dataset, out: Path, device: str) -> Features:
    """Node features, by the recipe's encoder or from its files of vectors."""
    vectors = recipe.vectors
    if vectors is None:
        return encode_dataset(dataset, recipe.encoder, out, device=device, overwrite=True)
    files = {
        name: path.parent / file
        for name in ("passages", "queries", "passage_ids", "query_ids")
        if (file := getattr(vectors, name)) is not None
    }
    settings = VectorSettings.parse(vectors.model_dump(include=set(VectorSettings.model_fields)))
    return import_vectors(
        dataset,
        files["passages"],
        files["queries"],
        settings,
        out,
        passage_ids=files.get("passage_ids"),
        query_ids=files.get("query_ids"),
        overwrite=True,
    )


def _resolved(ranking: RankingSettings, path: Path) -> RankingSettings:
    """The settings with a re-ranker that is a directory beside the recipe at ``path`` as a path from here."""
    if ranking.rerank is None or not (path.parent / ranking.rerank).is_dir():
        return ranking
    return ranking.model_copy(update={"rerank": str(path.parent / ranking.rerank)})


def dataset_of(settings: DataSettings, path: Path, data: str | Path | None, directory: Path) -> Dataset:
    """The dataset of the recipe at ``path``, or ``data`` if it is given; made first if the recipe says how.

    Raises:
        InputError: neither the recipe nor ``data`` names a dataset.
    """
    if settings.files and (data is None or not is_dataset(Path(data))):
        place = dataset_of_files(settings, folder_of(settings, path, data), directory)
    elif data is not None:
        place = Path(data)
    elif settings.source is not None and (summaries := DOCSTRINGS.get(settings.source)):
        place = make_docstring_corpus(directory / "dataset", summaries, overwrite=True).path
    elif settings.source is not None:
        place = path.parent / settings.source
    else:
        raise InputError("the recipe names no data: give a dataset directory with --data.", path)
    return Dataset.open(place, settings.qrels, settings.where)
