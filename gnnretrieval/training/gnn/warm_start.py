"""A warm start with layer = linear: heads go on learning from new labels, and the messages keep their settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.features import Features
from gnnretrieval.graph.store import Graph
from gnnretrieval.nn.label_messages import MessageGraph, Messages, message_vectors
from gnnretrieval.resampling import corrected_ps
from gnnretrieval.storage.artifacts import relative_to
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.training.gnn.head import train_heads
from gnnretrieval.training.gnn.held_out import held_out_queries
from gnnretrieval.training.gnn.judged import Judged
from gnnretrieval.training.gnn.ladder import message_graph
from gnnretrieval.training.gnn.message_memory import require_fit
from gnnretrieval.training.gnn.messages import WEIGHTS, TrainedMessages, in_words
from gnnretrieval.training.gnn.model import KIND, GNNEncoderModel
from gnnretrieval.training.gnn.model_card import CARD, model_card
from gnnretrieval.training.gnn.settings import TrainSettings, as_before
from gnnretrieval.training.gnn.train import of_graph

_FEW_MORE = 0.25
REPLAY = 3.0  # old labels that are trained on again, for each new one


def continue_messages(
    graph: MessageGraph, start: TrainedMessages, fresh: NDArray[np.bool_], *, seed: int = 0, replay: float = REPLAY
) -> TrainedMessages:
    """Train the heads of ``start`` further, on the labels of new queries and on a sample of the others.

    The sample keeps them from forgetting (experience replay, Rolnick et al. 2019). Each label is seen as often as in
    training from scratch, so a hundredth of new labels takes about a twenty-fifth of its steps. The messages keep
    their settings; the label means follow from the graph. Without a head nothing is trained.

    Args:
        graph: The graph, with the labels of old and new queries.
        start: What was trained before.
        fresh: ``(n,)`` bool, True for queries with new or changed labels.
        seed: Seed of the sample and of the order of the labels.
        replay: Labels of other queries for each of a fresh query.
    """
    if start.heads is None:
        return start
    of_fresh = torch.from_numpy(fresh)[graph.labels[:, 0]]  # (L,)
    rng = np.random.default_rng([seed, 0, 7])
    others = np.unique(graph.labels[~of_fresh, 0].numpy())
    wanted = min(len(others), round(replay * int(fresh.sum())))
    taught = fresh.copy()
    taught[rng.permutation(others)[:wanted]] = True
    labels = int(torch.from_numpy(taught)[graph.labels[:, 0]].sum())
    if not int(of_fresh.sum()):
        return start
    messages = start.messages
    steps = max(1, round(messages.steps * labels / len(graph.labels)))
    heads = train_heads(
        graph,
        steps,
        sides=messages.sides,
        mean=messages.trained_mean,
        seed=seed,
        taught=torch.from_numpy(taught),
        start=start.heads,
    )
    return TrainedMessages(heads, messages)


def grew_enough(labels: int, before: int, served: TrainedMessages, growth: float) -> bool:
    """Whether training begins from scratch: the labels have grown by ``growth`` since it last did.

    Without a head there is nothing to go on from, and a quarter of the labels more is enough.

    Args:
        labels: Number of labels now.
        before: Number of labels when training last began from scratch; 0: it never did.
        served: The promoted model.
        growth: The share.
    """
    return labels >= (1 + (growth if served.heads is not None else min(growth, _FEW_MORE))) * before


def keep_trained(
    trained: Callable[[], TrainedMessages],
    store: Graph,
    dataset: Dataset,
    features: Features,
    settings: TrainSettings,
    out: str | Path,
    *,
    how: Mapping[str, Any],
    start: GNNEncoderModel | None = None,
) -> GNNEncoderModel:
    """Make a model with layer = linear from parameters that no ladder chose, measured on the dev questions.

    Without a dev split these are training questions. They are not in the graph that they are measured over, but a head
    has learned from them: the record then says so.

    Args:
        trained: Returns the parameters; called only if the model is not there yet.
        store: The graph.
        dataset: The dataset of the graph.
        features: The features that the graph was built from.
        settings: Settings of the training that it goes on from.
        out: Directory of the model; another model there is replaced.
        how: Settings that decide the parameters besides, as JSON values.
        start: The model that was trained further; None: none was.
    """

    def write(directory: Path) -> dict[str, Any]:
        require_fit(store)
        made = trained()
        made.save(directory / WEIGHTS)
        held_out = held_out_queries(store, dataset, features, settings.seed)
        graph = message_graph(store, held_out.hidden)
        judged = Judged.of(graph, {}, held_out.queries, held_out.relevant, held_out.clicked)
        vectors = message_vectors(graph, made.heads, made.messages)
        now, before = judged.measure_vectors(vectors), judged.measure_vectors(graph.passages)
        known = not held_out.is_split and made.heads is not None
        gains = np.round(now - before, 12)
        labelled = len(np.unique(store.labels[:, 0]))
        p = corrected_ps(gains[None])[0] if gains.any() else 1.0
        kept = made.messages != Messages()
        meta = of_graph(store, dataset) | {
            "messages": made.messages._asdict(),
            "dev": {
                "split": f"{held_out.name}, which the head learned from" if known else held_out.name,
                "queries": len(held_out.relevant),
                "passages": store.num_passages,
                "by_clicks": held_out.clicked is not None,
                "dual_encoder": {"RR@10": float(before.mean())},
                "cross_validated": 0,
                "best": {"gain": float(gains.mean()), "p": p, "tried": 1},
                "believed": kept,
                "evidence": settings.evidence,
                "chosen": {"RR@10": float(now.mean())},
                "kept": in_words(made.messages),
            },
            "queries": {"trained_on": 0 if start is None else labelled, "labelled": labelled},
            "made_from": {"graph": relative_to(out, store.path)},
        }
        (directory / CARD).write_text(model_card(meta, settings, store), encoding="utf-8")
        return meta

    artifact = make_artifact(
        out,
        KIND,
        inputs={"graph": store.hash, "dataset": dataset.hash} | ({} if start is None else {"start": start.hash}),
        config=as_before(settings.model_dump(mode="json")) | dict(how),
        write=write,
        seed=settings.seed,
        overwrite=True,
    )
    return GNNEncoderModel(artifact.path, artifact.meta)
