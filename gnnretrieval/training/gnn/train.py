"""Training of a GNN-encoder into an artifact, chosen on dev."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.runs.trec import are_writable, write_run
from gnnretrieval.encoders.features import Features, encoder_records
from gnnretrieval.encoders.trained import JOINT, PASSAGE, QUERY
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, counted
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.mining.examples import Examples
from gnnretrieval.platform.devices import as_device
from gnnretrieval.progress import say
from gnnretrieval.storage.artifacts import relative_to
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.purged import require_unpurged
from gnnretrieval.training.encoder.loop import with_precision
from gnnretrieval.training.gnn.dev import DevSet
from gnnretrieval.training.gnn.examples import LearnedFrom, new_queries, probability_column, unseen_queries
from gnnretrieval.training.gnn.held_out import HeldOut, held_out_queries
from gnnretrieval.training.gnn.joint import JointEncoders, require_encoder
from gnnretrieval.training.gnn.joint_messages import JointMessages, train_joint_messages
from gnnretrieval.training.gnn.judged import rows_of
from gnnretrieval.training.gnn.loop import ENCODER, GNNTraining
from gnnretrieval.training.gnn.messages import LOG, QUESTION_WEIGHTS, WEIGHTS, MessagesTraining, train_messages
from gnnretrieval.training.gnn.model import HELD_OUT_DEPTH, HELD_OUT_RUN, KIND, GNNEncoderModel
from gnnretrieval.training.gnn.model_card import CARD, model_card
from gnnretrieval.training.gnn.selection import Selection
from gnnretrieval.training.gnn.settings import TrainSettings, as_before
from gnnretrieval.training.ranks import ALONE, Ranks


def train_gnn(
    store: Graph,
    dataset: Dataset,
    features: Features,
    settings: TrainSettings,
    out: str | Path,
    *,
    examples: Sequence[Examples] = (),
    start: GNNEncoderModel | None = None,
    device: str = "cpu",
    ranks: Ranks = ALONE,
    overwrite: bool = False,
) -> GNNEncoderModel:
    """Train a GNN-encoder over ``store``, choosing on dev. After an interruption, the same call continues.

    Args:
        store: The graph.
        dataset: The dataset of the graph, whose dev split is used; without one, training queries are held out.
        features: The features that the graph was built from.
        settings: Settings of training.
        out: Directory of the model.
        examples: Mined examples: their positives join the labels, and hard negatives are sampled from theirs.
        start: A GNN-encoder of the same shape to start from; None: the identity. It may have been trained over another
            dual-encoder of the same width.
        device: Where to compute.
        ranks: The processes that train together; one with ``layer = linear`` over a frozen dual-encoder.
        overwrite: Replace a model made from other inputs.

    Returns:
        The model; on all but the first process an empty one.

    Raises:
        ArtifactError: The graph was built from other features, or ``start`` has another shape.
        GnnRetrievalError: There are no dev questions, settings and inputs do not fit together, or training diverges.
    """
    if ranks.count > 1 and settings.layer == "linear" and not settings.is_joint:
        raise GnnRetrievalError(
            "layer = linear over a frozen dual-encoder trains in one process, in seconds to minutes: start it without "
            "torchrun, or give layer = gat (--layer gat) or mode = joint (--mode joint)."
        )
    require_unpurged(store, features)
    plan = TrainingPlan.of(store, dataset, features, settings, examples, start)

    def write(directory: Path) -> dict[str, Any]:
        ranks.begin()
        _say_how_it_chooses(plan.held_out)
        write_layer = _write_linear if settings.layer == "linear" else _write_layers
        made = write_layer(plan, directory, device, ranks)
        if not ranks.first:
            return {}
        meta = of_graph(store, dataset) | made.meta | {"made_from": _made_from(out, plan, examples)}
        towers = [name for name in (PASSAGE, QUERY) if (directory / name).is_dir()]
        (directory / CARD).write_text(model_card(meta, settings, store, made.choice, towers), encoding="utf-8")
        return meta

    if not ranks.first:
        write(Path(out))
        return GNNEncoderModel(Path(out), {})
    config = as_before(with_precision(settings, device))
    artifact = make_artifact(
        out,
        KIND,
        inputs={"graph": store.hash, "dataset": dataset.hash}
        | {f"examples {number}": part.hash for number, part in enumerate(examples, 1)}
        | ({"start": start.hash} if start is not None else {}),
        config=config,
        write=write,
        seed=settings.seed,
        overwrite=overwrite,
    )
    return GNNEncoderModel(artifact.path, artifact.meta)


class _Trained(NamedTuple):
    """What training gave: entries of the metadata, and the choice on dev of attention and other graph layers."""

    meta: dict[str, Any]
    choice: Selection | None = None


def _write_layers(plan: TrainingPlan, directory: Path, device: str, ranks: Ranks) -> _Trained:
    """Train graph layers, such as layer = gat, into ``directory``."""
    settings, store, start = plan.settings, plan.store, plan.start
    training = plan.training(directory, device, ranks)
    if seen := len(training.labelled) - len(training.learnable):
        say(
            f"training on the {len(training.learnable):,} queries that the dual-encoder did not learn from; "
            f"the other {seen:,} are only in the graph"
        )
    weights = training.run()
    if not ranks.first:
        return _Trained({})
    choice = Selection.of(training.best_record, settings, store, start)
    if not choice.is_significant:
        weights["context_scale"] = torch.zeros_like(weights["context_scale"])
    for line in choice.lines(training.progress.history, settings, start):
        say(line)
    of_encoder = {}
    if training.encoders is not None and choice.chosen["epoch"] > 0:
        of_encoder = _save_encoder(training.encoders, weights, directory, training.learnable)
    of_gnn = {name: value.cpu().contiguous() for name, value in weights.items() if not name.startswith(ENCODER)}
    save_file(of_gnn, directory / WEIGHTS)
    return _Trained(_described(plan, training, choice) | of_encoder, choice)


def _write_linear(plan: TrainingPlan, directory: Path, device: str, ranks: Ranks) -> _Trained:
    """Train with layer = linear into ``directory``."""
    store, settings, taught = plan.store, plan.settings, plan.learned.taught
    training: MessagesTraining | JointMessages
    if settings.is_joint:
        training = train_joint_messages(store, plan.held_out, settings, directory, taught, device, ranks)
        encoder = training.encoder
    else:
        training = train_messages(store, plan.held_out, settings, torch.from_numpy(taught), device=as_device(device))
        training.write_log(directory / LOG)
        encoder = None
    if not ranks.first:
        return _Trained({})
    for line in training.lines():
        say(line)
    training.trained.save(directory / WEIGHTS)
    several = training.several if isinstance(training, MessagesTraining) else None
    if several is not None:
        several.save(directory / QUESTION_WEIGHTS)
    if isinstance(training, MessagesTraining) and not plan.held_out.is_split:
        _write_held_out_run(training, plan, directory)
    labelled = np.unique(store.labels[:, 0])
    if plan.held_out.is_split and plan.held_out.hidden is not None:
        labelled = labelled[~plan.held_out.hidden[labelled]]
    return _Trained(
        {
            **({} if encoder is None else {JOINT: encoder.model_dump(mode="json")}),
            "messages": training.trained.messages._asdict(),
            **({} if several is None else {"questions": several.messages._asdict()}),
            "dev": {
                "split": plan.held_out.name,
                "queries": len(plan.held_out.relevant),
                "by_clicks": plan.held_out.clicked is not None,
                **training.described(),
            },
            "queries": {"trained_on": int(taught[labelled].sum()), "labelled": len(labelled)},
        }
    )


def _write_held_out_run(training: MessagesTraining, plan: TrainingPlan, directory: Path) -> None:
    """Rank the held-out questions by the model that lacks them, for choices that come later (fusion with BM25)."""
    with plan.store.texts() as texts:
        passage_ids = texts.passage_ids()
    held_out = plan.held_out.only(rows_of(len(plan.held_out.ids)).tolist())
    if training.judged is not None and are_writable([*held_out.ids, *passage_ids]):
        run = training.judged.run(training.trained.messages, held_out.ids, passage_ids, HELD_OUT_DEPTH)
        write_run(directory / HELD_OUT_RUN, run, KIND)


class TrainingPlan(NamedTuple):
    """Checked inputs of a training run that has not started.

    Attributes:
        store: View of the graph with the edges that the settings select.
        settings: Settings of training.
        held_out: Dev questions.
        learned: Positives and negatives.
        start: A GNN-encoder to start from; None: the identity.
    """

    store: Graph
    settings: TrainSettings
    held_out: HeldOut
    learned: LearnedFrom
    start: GNNEncoderModel | None

    @classmethod
    def of(
        cls,
        store: Graph,
        dataset: Dataset,
        features: Features,
        settings: TrainSettings,
        examples: Sequence[Examples] = (),
        start: GNNEncoderModel | None = None,
    ) -> TrainingPlan:
        """Check the inputs and make the plan; raises as :func:`train_gnn`."""
        _require_fits(store, dataset, features, settings, start, bool(examples))
        if settings.distillation:
            probability_column(store)
        if settings.is_joint:
            require_encoder(store)
        taught = unseen_queries(store, features, settings.learn_from)
        chosen_by = unseen_queries(store, features, "auto")
        held_out = held_out_queries(store, dataset, features, settings.seed, chosen_by)
        held_out = held_out._replace(may_join=new_queries(store, features) if held_out.is_split else chosen_by)
        view = store.view(k=settings.k, passage_edges=settings.passage_edges)
        return cls(view, settings, held_out, LearnedFrom.of(store, examples, taught), start)

    def training(self, directory: Path, device: str = "cpu", ranks: Ranks = ALONE) -> GNNTraining:
        """The training run in ``directory``, ready to start."""
        store, settings, held_out = self.store, self.settings, self.held_out
        encoders = None
        if settings.is_joint:
            encoders = JointEncoders(store, held_out.texts, settings, as_device(device), ranks)
        return GNNTraining(
            store,
            DevSet(held_out.queries, held_out.relevant, store.similarity, device, held_out.parts, held_out.clicked),
            settings,
            directory,
            device,
            held_out.hidden,
            learned=self.learned,
            encoders=encoders,
            start=None if self.start is None else self.start.load().state_dict(),
            ranks=ranks,
        )


def _require_fits(
    store: Graph,
    dataset: Dataset,
    features: Features,
    settings: TrainSettings,
    start: GNNEncoderModel | None,
    taught_by_examples: bool,
) -> None:
    if store.meta["inputs"]["features"] != features.hash:
        raise ArtifactError(
            f"{store.path}: built from other features than {features.path}. "
            "Give the features it was built from, or build the graph again."
        )
    if unused := settings.unused:
        raise GnnRetrievalError(f"{unused}.")
    if store.dimension % settings.encoder.heads:
        raise GnnRetrievalError(
            f"{settings.encoder.heads} heads cannot share the {store.dimension} dimensions of {store.path} equally: "
            "give a divisor."
        )
    features.require_of(dataset)
    if settings.layer == "linear" and (start is not None or taught_by_examples):
        raise GnnRetrievalError(
            "layer = linear learns only from the graph's labels: with mined examples or a GNN-encoder to start from "
            "(--start-from), train with layer = gat (--layer gat)."
        )
    if store.meta["inputs"]["dataset"] != dataset.hash:
        raise ArtifactError(f"{store.path}: the judgements of {dataset.path} have changed. Build the graph again.")
    if not settings.epochs and start is None:
        raise GnnRetrievalError(
            "epochs = 0 only chooses the context scale of a trained GNN-encoder: give one to start from (--start-from)."
        )
    if start is not None:
        _require_start_fits(start, store, settings)


def _require_start_fits(start: GNNEncoderModel, store: Graph, settings: TrainSettings) -> None:
    start.require_fits(store, any_encoder=True)
    if start.is_linear:
        raise ArtifactError(f"{start.path}: trained with layer = linear: it has no graph layers to start from.")
    if (layer := start.config.get("layer", "gat")) != settings.layer:
        raise ArtifactError(f"{start.path}: trained with layer = {layer}. Give the same (--layer {layer}).")
    decisive = ("heads", "layers", "gate", *(["gate_start"] if start.settings.gate == "constant" else []))
    shape = {name: start.settings.model_dump()[name] for name in decisive}
    if shape != settings.encoder.model_dump(include=set(shape)):
        described = ", ".join(f"{name} = {value}" for name, value in shape.items())
        raise ArtifactError(f"{start.path}: this GNN-encoder has other settings ({described}). Give the same ones.")
    if (edges := start.config.get("passage_edges", "all")) != settings.passage_edges:
        raise ArtifactError(f"{start.path}: trained with passage_edges = {edges}. Give the same (--passage-edges).")
    if start.has_encoder:
        raise ArtifactError(
            f"{start.path}: trained jointly with another dual-encoder than this graph's. Build a graph over that "
            "encoder's features."
        )


def _described(plan: TrainingPlan, training: GNNTraining, choice: Selection) -> dict[str, Any]:
    """A model's dev figures and training queries, for its metadata."""
    store, best = plan.store, training.best_record
    return {
        "dev": {
            "split": plan.held_out.name,
            "queries": len(training.dev),
            "passages": store.num_passages if training.pool is None else len(training.pool),
            "by_clicks": plan.held_out.clicked is not None,
            "dual_encoder": {"RR@10": best["dual_encoder"]},
            "best": {name: best[name] for name in ("epoch", "context_scale", "dev", "gain", "p")},
            "believed": choice.is_significant,
            "evidence": choice.evidence,
            "chosen": choice.chosen,
        },
        "queries": {"trained_on": len(training.learnable), "labelled": len(training.labelled)},
    }


def of_graph(store: Graph, dataset: Dataset) -> dict[str, Any]:
    """Entries of a model's metadata that follow from its graph."""
    return {
        "dimension": store.dimension,
        "edge_dim": store.edge_dim,
        "edge_features": store.edge_names,
        **encoder_records(store.meta),
        "similarity": store.similarity.model_dump(),
        "dataset": dataset.provenance(),
    }


def _made_from(out: str | Path, plan: TrainingPlan, examples: Sequence[Examples]) -> dict[str, Any]:
    """Paths of the inputs, relative to the model."""
    paths = {"graph": plan.store.path} | {f"examples {n}": part.path for n, part in enumerate(examples, 1)}
    if plan.start is not None:
        paths["start"] = plan.start.path
    return {name: relative_to(out, path) for name, path in paths.items()}


def _save_encoder(
    encoders: JointEncoders, weights: dict[str, Tensor], directory: Path, queries: Rows
) -> dict[str, Any]:
    """Write the dual-encoder that was trained with the GNN; returns its metadata."""
    snapshot = {name.removeprefix(ENCODER): value for name, value in weights.items() if name.startswith(ENCODER)}
    return {JOINT: encoders.save(snapshot, directory, queries).model_dump(mode="json")}


def _say_how_it_chooses(held_out: HeldOut) -> None:
    if held_out.clicked is not None:
        say(
            "labels are clicks: a dev question ranks the passages that it was shown, and counts by the inverse of its "
            "chance of a label"
        )
    if held_out.hidden is None:
        return
    count = int(held_out.hidden.sum())
    if held_out.is_split:
        say(f"{count:,} queries of {held_out.name} are also in the graph: training leaves them out")
        return
    passages, topics, single = np.bincount(held_out.parts, minlength=3).tolist()
    say(
        f"no dev split: {counted(count, 'training query is', 'training queries are')} held out: {passages:,} by "
        f"passage, {topics:,} by topic, {single:,} single ones. A dev split like your future questions would be better"
    )
