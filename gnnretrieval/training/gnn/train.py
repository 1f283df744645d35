"""Train a GNN-encoder into an artifact, choosing epoch and context scale on dev."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.features import Features, encoder_records
from gnnretrieval.encoders.trained import JOINT, PASSAGE, QUERY
from gnnretrieval.errors import ArtifactError, GnnRetrievalError
from gnnretrieval.graph.build import require_features_of
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.mining.examples import Examples
from gnnretrieval.storage.artifacts import relative_to
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.purged import require_unpurged
from gnnretrieval.training.encoder.loop import with_precision
from gnnretrieval.training.gnn.choice import Choice
from gnnretrieval.training.gnn.dev import DevSet
from gnnretrieval.training.gnn.examples import LearnedFrom, probability_column, unseen_queries
from gnnretrieval.training.gnn.held_out import HeldOut, held_out_queries
from gnnretrieval.training.gnn.joint import JointEncoders, require_encoder
from gnnretrieval.training.gnn.loop import ENCODER, GNNTraining
from gnnretrieval.training.gnn.messages import WEIGHTS, train_messages
from gnnretrieval.training.gnn.model import KIND, GNNEncoderModel
from gnnretrieval.training.gnn.model_card import CARD, model_card
from gnnretrieval.training.gnn.settings import TrainSettings
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
    say: Callable[[str], None] = lambda line: None,
) -> GNNEncoderModel:
    """Train a GNN-encoder over ``store`` into the artifact ``out``, choosing epoch and context scale on dev.

    Args:
        store: The graph.
        dataset: Its dev split is what is chosen by; without one, training queries are held out.
        features: Features of the dataset's queries: the ones that the store was made from.
        settings: How to train.
        out: Where the model goes.
        examples: Mined examples: denoised positives are positives beside the labels, negatives are drawn from theirs.
        start: A GNN-encoder to go on from, of the same shape; None: the identity. It may have been trained over another
            dual-encoder of the same width.
        device: Where to compute.
        ranks: The processes that train together, with ``mode = joint``.
        overwrite: Replace a model made from other inputs.
        say: Receives lines for the user.

    Returns:
        The model; on all but the first process it is empty.

    Raises:
        ArtifactError: the store was made from other features than the ones given, or ``start`` is of another shape.
        GnnRetrievalError: there are no questions to choose by, or nothing to distil.
    """
    if ranks.count > 1 and not settings.is_joint:
        raise GnnRetrievalError("several processes share out the encoding of mode = joint: train a frozen one in one.")
    require_unpurged(store, features)
    plan = Plan.of(store, dataset, features, settings, examples, start)

    def write(directory: Path) -> dict[str, Any]:
        ranks.begin()
        _say_how_it_chooses(plan.held_out, say)
        if settings.layer == "linear":
            return _write_linear(plan, dataset, Path(out), directory, say)
        training = plan.training(directory, device, ranks)
        if spared := len(training.labelled) - len(training.learnable):
            say(
                f"training on the {len(training.learnable):,} queries that the dual-encoder did not learn from; "
                f"the {spared:,} it did are in the graph"
            )
        weights = training.run()
        if not ranks.first:
            return {}
        choice = Choice.of(training.best_record, settings, store, start)
        if not choice.believed:
            weights["context_scale"] = torch.zeros_like(weights["context_scale"])
        for line in choice.lines(training.progress.history, settings, start):
            say(line)
        its_encoder = {}
        if training.encoders is not None and choice.chosen["epoch"] > 0:
            its_encoder = _save_encoder(training.encoders, weights, directory, training.learnable)
        of_gnn = {name: value.cpu().contiguous() for name, value in weights.items() if not name.startswith(ENCODER)}
        save_file(of_gnn, directory / WEIGHTS)
        towers = [name for name in (PASSAGE, QUERY) if (directory / name).is_dir()]
        meta = (
            _described(plan, dataset, training, choice) | its_encoder | {"made_from": _made_from(out, plan, examples)}
        )
        (directory / CARD).write_text(model_card(meta, settings, store, choice, towers), encoding="utf-8")
        return meta

    if not ranks.first:
        write(Path(out))
        return GNNEncoderModel(Path(out), {})
    config = with_precision(settings, device)
    if settings.is_joint:
        config["dual_encoder"] = with_precision(settings.dual_encoder, device)
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
        say=say,
    )
    return GNNEncoderModel(artifact.path, artifact.meta)


def _write_linear(
    plan: Plan, dataset: Dataset, out: Path, directory: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Train with layer = linear into ``directory``; returns what the model says of itself."""
    store, settings = plan.store, plan.settings
    training = train_messages(store, plan.held_out, settings, directory, torch.from_numpy(plan.learned.taught))
    for line in training.lines():
        say(line)
    training.trained.save(directory / WEIGHTS)
    labelled = np.unique(store.labels[:, 0])
    meta = _of_graph(store, dataset) | {
        "messages": training.trained.messages._asdict(),
        "dev": {
            "split": plan.held_out.name,
            "queries": len(plan.held_out.relevant),
            "passages": store.num_passages,
            **training.described(),
        },
        "queries": {"trained_on": int(plan.learned.taught[labelled].sum()), "labelled": len(labelled)},
        "made_from": _made_from(out, plan, ()),
    }
    (directory / CARD).write_text(model_card(meta, settings, store), encoding="utf-8")
    return meta


class Plan(NamedTuple):
    """A training run of which everything was checked and nothing begun.

    Attributes:
        store: The graph, with no more edges than the settings say.
        settings: How to train.
        held_out: What is chosen by.
        learned: What is learned from.
        start: A GNN-encoder to go on from.
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
    ) -> Plan:
        """The plan of these inputs; errors as :func:`train_gnn`."""
        _require_fits(store, dataset, features, settings, start, bool(examples))
        if settings.distillation:
            probability_column(store)
        if settings.is_joint:
            require_encoder(store)
        taught = unseen_queries(store, features, settings.learn_from)
        chosen_by = unseen_queries(store, features, "auto")
        held_out = held_out_queries(store, dataset, features, settings.seed, chosen_by)
        view = store.view(k=settings.k, passage_edges=settings.passage_edges)
        return cls(view, settings, held_out, LearnedFrom.of(store, examples, taught), start)

    def training(self, directory: Path, device: str = "cpu", ranks: Ranks = ALONE) -> GNNTraining:
        """The run in ``directory``, ready to go."""
        store, settings, held_out = self.store, self.settings, self.held_out
        encoders = None
        if settings.is_joint:
            encoders = JointEncoders(
                store, held_out.texts, settings.dual_encoder, torch.device(device), settings.seed, ranks
            )
        return GNNTraining(
            store,
            DevSet(held_out.queries, held_out.relevant, store.similarity, device, held_out.parts),
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
            f"{store.path}: made from other features than {features.path}. "
            "Give the features it was built from, or build the graph again."
        )
    if store.dimension % settings.encoder.heads:
        raise GnnRetrievalError(
            f"{settings.encoder.heads} heads cannot share the {store.dimension} dimensions of {store.path}: "
            "give a number that divides them."
        )
    require_features_of(dataset, features)
    if settings.layer == "linear" and (start is not None or taught_by_examples):
        raise GnnRetrievalError(
            "layer = linear learns from the graph's labels alone: with mined examples or a GNN-encoder to go on from, "
            "train with --layer gat."
        )
    if store.meta["inputs"]["dataset"] != dataset.hash:
        raise ArtifactError(
            f"{store.path}: the judgements of {dataset.path} changed since this graph was built. Build it again."
        )
    if not settings.epochs and start is None:
        raise GnnRetrievalError(
            "epochs = 0 only chooses the context scale of a GNN-encoder that was trained before: "
            "name it (--start-from)."
        )
    if start is not None:
        start.require_fits(store, any_encoder=True)
        if start.is_linear:
            raise ArtifactError(f"{start.path}: trained with layer = linear, and has no GAT to go on from.")
        shape = {name: start.settings.model_dump()[name] for name in ("heads", "layers", "gate")}
        if shape != settings.encoder.model_dump(include=set(shape)):
            raise ArtifactError(
                f"{start.path}: a GNN-encoder of another shape ({', '.join(f'{k} = {v}' for k, v in shape.items())}) "
                "than these settings. Give the same ones."
            )
        if (heard := start.config.get("passage_edges", "all")) != settings.passage_edges:
            raise ArtifactError(f"{start.path}: trained with --passage-edges {heard}. Give the same.")
        if start.has_encoder:
            raise ArtifactError(
                f"{start.path}: trained jointly with a dual-encoder of its own, which this graph's features are not "
                "of. Build a graph over that encoder's features to go on."
            )


def _described(plan: Plan, dataset: Dataset, training: GNNTraining, choice: Choice) -> dict[str, Any]:
    """What a model says of itself: its graph's width, what it was chosen by, and how that went."""
    store, best = plan.store, training.best_record
    return _of_graph(store, dataset) | {
        "dev": {
            "split": plan.held_out.name,
            "queries": len(training.dev),
            "passages": store.num_passages if training.pool is None else len(training.pool),
            "dual_encoder": {"RR@10": best["dual_encoder"]},
            "best": {name: best[name] for name in ("epoch", "context_scale", "dev", "gain", "p")},
            "believed": choice.believed,
            "evidence": choice.evidence,
            "chosen": choice.chosen,
        },
        "queries": {"trained_on": len(training.learnable), "labelled": len(training.labelled)},
    }


def _of_graph(store: Graph, dataset: Dataset) -> dict[str, Any]:
    return {
        "dimension": store.dimension,
        "edge_dim": store.edge_dim,
        "edge_features": store.edge_names,
        **encoder_records(store.meta),
        "similarity": store.similarity.model_dump(),
        "dataset": dataset.provenance(),
    }


def _made_from(out: str | Path, plan: Plan, examples: Sequence[Examples]) -> dict[str, Any]:
    """Where the inputs lie, seen from the model."""
    found = {"graph": plan.store.path} | {f"examples {n}": part.path for n, part in enumerate(examples, 1)}
    if plan.start is not None:
        found["start"] = plan.start.path
    return {name: relative_to(out, path) for name, path in found.items()}


def _save_encoder(
    encoders: JointEncoders, weights: dict[str, Tensor], directory: Path, queries: Rows
) -> dict[str, Any]:
    """Write the dual-encoder that was trained with the GNN; returns what the model says of it."""
    its = {name.removeprefix(ENCODER): value for name, value in weights.items() if name.startswith(ENCODER)}
    return {JOINT: encoders.save(its, directory, queries).model_dump(mode="json")}


def _say_how_it_chooses(held_out: HeldOut, say: Callable[[str], None]) -> None:
    if held_out.hidden is None:
        return
    count = int(held_out.hidden.sum())
    if held_out.is_split:
        say(f"{count:,} queries are in train and {held_out.name}: they are kept out of training")
        return
    topics = int(held_out.parts.sum())
    say(
        f"no dev split: {count:,} training queries are held out to choose by, {topics:,} of them of whole topics; "
        "what helps both kinds is chosen. A dev split like the questions to come chooses better"
    )
