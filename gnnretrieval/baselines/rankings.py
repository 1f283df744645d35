"""The artifact with the rankings of all baselines over one graph: chosen on dev, run on the reported split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnretrieval.baselines import BASELINES, DENSE, EXPANSION, LEXICAL
from gnnretrieval.baselines.dense import PRIOR, DenseBaseline, DenseSetting, choose_dense
from gnnretrieval.baselines.expansion import Expanded, choose_weight, expanding_encoder
from gnnretrieval.baselines.lexical import choose_lexical
from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.runs.trec import Run, are_writable, read_run, require_writable_ids, write_run
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.text_encoder import TextEncoder
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.graph.store import Graph
from gnnretrieval.index.lexical import label_questions, lexical_index, neighbour_questions
from gnnretrieval.index.search import bm25_run
from gnnretrieval.platform.devices import as_device
from gnnretrieval.platform.memory import require_memory
from gnnretrieval.progress import say
from gnnretrieval.storage.artifacts import Artifact, open_artifact, relative_to
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.training.gnn.examples import unseen_queries
from gnnretrieval.training.gnn.held_out import HeldOut, held_out_queries, require_new_queries
from gnnretrieval.training.gnn.judged import rows_of
from gnnretrieval.training.gnn.ladder import message_graph
from gnnretrieval.training.gnn.message_memory import memory_of_messages

KIND = "baselines"
DEV = "dev"  # folder of the rankings for dev questions


class Baselines(Artifact):
    """Rankings by baseline, and the setting that was chosen for each."""

    @property
    def names(self) -> list[str]:
        """Names of the baselines, the dense ones first."""
        return list(self.meta["chosen"])

    @property
    def best_dense(self) -> str:
        """Name of the dense baseline with the best RR@10 on dev; of equally good ones, the first."""
        chosen = self.meta["chosen"]
        best: str = max((name for name in chosen if name != LEXICAL), key=lambda name: float(chosen[name]["dev"]))
        return best

    def runs(self, dev: bool = False) -> dict[str, Run]:
        """Run by baseline, on the reported split or on dev."""
        folder = self.path / DEV if dev else self.path
        return {name: read_run(folder / f"{name}.run", may_be_empty=True) for name in self.names}

    def lines(self) -> list[str]:
        """The chosen setting of each baseline as text, one line each."""
        width = max(map(len, self.names))
        return [
            f"{name:<{width}}  dev RR@10 {100 * chosen['dev']:.1f}  by {chosen['said']}"
            for name, chosen in self.meta["chosen"].items()
        ]


def open_baselines(path: str | Path) -> Baselines:
    """Open the baselines at ``path``; for errors see :func:`gnnretrieval.storage.artifacts.open_artifact`."""
    artifact = open_artifact(path, KIND, ("chosen", "split"))
    return Baselines(artifact.path, artifact.meta)


def rank_baselines(
    store: Graph,
    dataset: Dataset,
    features: Features,
    split: str,
    out: str | Path,
    *,
    depth: int = 100,
    seed: int = 0,
    only: Sequence[str] = (),
    device: str = "cpu",
    overwrite: bool = False,
) -> Baselines:
    """Choose the setting of each baseline on dev, and rank a split's queries, into the artifact ``out``.

    The baselines see only the labels of the graph. Settings are chosen on the dev questions that
    :func:`gnnretrieval.training.gnn.train.train_gnn` uses, at most 2,000 of them. The questions of the dev split are
    ranked too; without one, those that are held out, by baselines that did not learn from them.

    Args:
        store: The graph.
        dataset: Dataset with the split to rank, and the dev split if there is one.
        features: Features of the dataset.
        split: The split to rank.
        out: Where the rankings go.
        depth: Passages per query.
        seed: Seed of the training of heads, and of the held-out questions if there is no dev split.
        only: Which of :data:`BASELINES` to rank; empty: all that cost no more than training. Document expansion is left
            out where the encoder is no checkpoint, or many passages would be encoded again, and those with a prior
            without a dev split.
        device: Where heads are trained, and passages encoded for document expansion.
        overwrite: Replace rankings made from other inputs.

    Raises:
        GnnRetrievalError: There are no questions to choose on, or no dev split for a baseline that needs one; the
            split is missing or chooses the settings, one of its queries is in the graph or chooses the settings, or
            the vectors do not fit into memory.
    """
    features.require_of(dataset)
    require_memory(memory_of_messages(store), f"ranking by {store.path}'s labels", "Use narrower vectors.")
    held_out = held_out_queries(store, dataset, features, seed, unseen_queries(store, features, "auto"))
    held_out = held_out.only(rows_of(len(held_out.relevant)).tolist())
    queries = {query.id: query.text for query in dataset.queries_of(split)}
    _require_rankable(store, dataset, held_out, split, queries, only)
    names = [name for name in BASELINES if name in only or not only]
    encoder = _expanding_encoder(store, features, only, device) if EXPANSION in names else None
    if encoder is None:
        names = [name for name in names if name != EXPANSION]

    def write(directory: Path) -> dict[str, Any]:
        rank = _Ranker(dataset, features, directory, depth)
        of_dev = dict(zip(held_out.ids, held_out.texts, strict=True))
        if held_out.is_split:  # all of them, also those that did not choose the settings
            of_dev = {query.id: query.text for query in dataset.queries_of(held_out.name)}
        queries_by_split = {split: queries} | ({DEV: of_dev} if are_writable(of_dev) else {})
        dense = [name for name in names if name in DENSE]
        chosen = _rank_dense(store, held_out, rank, queries_by_split, seed, dense, device)
        if encoder is not None:
            chosen |= _rank_expansion(store, held_out, rank, queries_by_split, encoder)
        if LEXICAL in names:
            chosen |= _rank_lexical(store, held_out, rank, queries_by_split)
        return {
            "split": split,
            "queries": len(queries),
            "chosen": chosen,
            "chosen_by": {"split": held_out.name, "queries": len(held_out.relevant)},
            "made_from": {
                name: relative_to(out, path)
                for name, path in (("graph", store.path), ("dataset", dataset.path), ("features", features.path))
            },
        }

    artifact = make_artifact(
        out,
        KIND,
        inputs={"graph": store.hash, "dataset": dataset.hash, "features": features.hash},
        # without a dev split, artifacts of earlier versions lack the rankings of the held-out questions
        config={"split": split, "depth": depth, "only": names}
        | ({} if held_out.is_split else {"held_out": len(held_out.ids)})
        | ({"seed": seed} if seed else {}),  # not 0: those of earlier versions, by the default seed, are reused
        write=write,
        seed=seed,
        overwrite=overwrite,
    )
    return Baselines(artifact.path, artifact.meta)


def _require_rankable(
    store: Graph, dataset: Dataset, held_out: HeldOut, split: str, queries: Mapping[str, str], only: Sequence[str]
) -> None:
    """Raise where a split cannot be ranked by the baselines."""
    if not held_out.is_split and (priors := [name for name in only if name.endswith(PRIOR)]):
        raise InputError(
            f"{priors[0]} needs a dev split, and there is none: only dev shows how often questions are about passages "
            "with training questions. Add one, or leave this baseline out.",
            dataset.path,
        )
    if split == held_out.name:
        raise InputError(f"split {split!r} chooses the settings: rank another split.", dataset.path)
    with store.texts() as texts:
        require_new_queries(dataset, split, set(texts.query_ids()))
    require_writable_ids([*dataset.passage_ids, *queries], dataset.path)


def _expanding_encoder(store: Graph, features: Features, only: Sequence[str], device: str) -> TextEncoder | None:
    """The encoder for document expansion; None where that costs too much and is not among ``only``."""
    try:
        return expanding_encoder(store, features, device, wanted=bool(only))
    except GnnRetrievalError as error:
        if only:
            raise
        say(f"without {EXPANSION}: {error}")
        return None


class _Ranker:
    """Writes runs on the splits of one dataset."""

    def __init__(self, dataset: Dataset, features: Features, directory: Path, depth: int) -> None:
        self.dataset, self.features, self.directory, self.depth = dataset, features, directory, depth
        self.passage_ids = dataset.passage_ids

    def by(self, baseline: DenseBaseline) -> Callable[[dict[str, str]], Run]:
        """How a dense baseline ranks queries."""

        def run_of(queries: dict[str, str]) -> Run:
            vectors = self.features.queries[self.features.rows_of(queries)]
            return baseline.run(list(queries), vectors, self.passage_ids, self.depth)

        return run_of

    def write(
        self,
        name: str,
        queries_by_split: dict[str, dict[str, str]],
        run_of: Callable[[dict[str, str]], Run],
        run_of_dev: Callable[[dict[str, str]], Run] | None = None,
    ) -> None:
        """Write the runs; ``run_of_dev`` ranks questions that are held out, without having learned from them."""
        for split, queries in queries_by_split.items():
            folder = self.directory / DEV if split == DEV else self.directory
            folder.mkdir(exist_ok=True)
            ranked = run_of_dev(queries) if split == DEV and run_of_dev is not None else run_of(queries)
            write_run(folder / f"{name}.run", ranked, name, may_be_empty=True)  # by words, perhaps


def _rank_dense(
    store: Graph,
    held_out: HeldOut,
    rank: _Ranker,
    queries_by_split: dict[str, dict[str, str]],
    seed: int,
    names: Sequence[str],
    device: str,
) -> dict[str, Any]:
    whole = message_graph(store, device=as_device(device))
    graph = whole if held_out.hidden is None else whole.without(torch.from_numpy(held_out.hidden))
    chosen = choose_dense(
        graph,
        whole,
        held_out.queries,
        held_out.relevant,
        held_out.parts,
        priors=held_out.is_split,
        learn_held_out=not held_out.is_split,
        seed=seed,
        names=names,
        clicked=held_out.clicked,
    )
    for name, baseline in chosen.items():
        rank.write(name, queries_by_split, rank.by(baseline), rank.by(baseline.inside or baseline))
    return {
        name: {"setting": baseline.setting._asdict(), "dev": baseline.dev, "said": baseline.setting.in_words()}
        for name, baseline in chosen.items()
    }


def _rank_expansion(
    store: Graph, held_out: HeldOut, rank: _Ranker, queries_by_split: dict[str, dict[str, str]], encoder: TextEncoder
) -> dict[str, Any]:
    hidden = held_out.hidden
    graph = message_graph(store, hidden)
    expanded = Expanded.of(store, encoder, None if hidden is None else ~hidden)
    weight, dev = choose_weight(graph, expanded, held_out.queries, held_out.relevant, held_out.parts, held_out.clicked)
    inside = baseline = DenseBaseline(DenseSetting(), dev, expanded.mixed(graph, weight), None)
    if hidden is not None:
        expanded = Expanded.of(store, encoder) if weight else expanded
        baseline = inside._replace(graph=expanded.mixed(message_graph(store), weight))
    rank.write(EXPANSION, queries_by_split, rank.by(baseline), rank.by(inside))
    said = f"weight {weight:g}" if weight else "the dual-encoder"
    return {EXPANSION: {"setting": {"weight": weight}, "dev": dev, "said": said}}


def _rank_lexical(
    store: Graph, held_out: HeldOut, rank: _Ranker, queries_by_split: dict[str, dict[str, str]]
) -> dict[str, Any]:
    with store.texts() as texts:

        def passages() -> Iterator[str]:
            return (passage.full_text for passage in texts.passages())

        hidden = np.zeros(store.num_queries, dtype=bool) if held_out.hidden is None else held_out.hidden
        choice = choose_lexical(
            passages,
            store.num_passages,
            label_questions(store, ~hidden),
            held_out.texts,
            held_out.relevant,
            neighbour_questions(store) if not hidden.any() else None,
            held_out.clicked,
        )
        neighbours = neighbour_questions(store) if choice.best.neighbour_weight else None
        bm25 = lexical_index(passages, store.num_passages, label_questions(store), choice.best, neighbours)
        inside = bm25
        if hidden.any():
            inside = lexical_index(passages, store.num_passages, label_questions(store, ~hidden), choice.best, None)

    def by(index: BM25) -> Callable[[dict[str, str]], Run]:
        return lambda queries: bm25_run(index, queries, rank.passage_ids, rank.depth)

    rank.write(LEXICAL, queries_by_split, by(bm25), by(inside))
    return {
        LEXICAL: {
            "setting": choice.best._asdict(),
            "dev": choice.dev[choice.best],
            "said": ", ".join(f"{name} {value:g}" for name, value in choice.best._asdict().items()),
        }
    }
