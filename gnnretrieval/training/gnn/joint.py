"""The dual-encoder in joint training: node features recomputed with gradient (§3.4, Algorithm 1, lines 8-11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gnnretrieval.encoders.exact_search import exact_top_k
from gnnretrieval.encoders.loading import weights_dtype
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.trained import PASSAGE, QUERY
from gnnretrieval.errors import ArtifactError, GnnRetrievalError
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.progress import progress
from gnnretrieval.training.cached_step import Batch, add_gradient
from gnnretrieval.training.encoder.dev import encoded
from gnnretrieval.training.encoder.dual_towers import Start, make_towers, save_towers
from gnnretrieval.training.encoder.towers import Item
from gnnretrieval.training.gnn.dev import DevSet
from gnnretrieval.training.gnn.settings import JointSettings
from gnnretrieval.training.ranks import ALONE, Ranks
from gnnretrieval.training.weights import MasterWeights

_TEXTS = 512  # texts split to tokens together
_BEST = 20  # passages a dev query that measuring looks at, by the dual-encoder as it came

NodeLoss = Callable[[Tensor, Tensor, Tensor], Tensor]


class JointEncoders:
    """``E_Q`` and ``E_P`` of a graph's features, in training.

    A step encodes the batch's queries, its passages and the queries adjacent to those, each once, and learns from a
    loss of their vectors by the lines that encoders are trained by (:func:`add_gradient`): with gradient caching memory
    is that of one part of the batch, and over several processes each encodes its share and all learn from the whole.

    Args:
        store: The graph; its features name the encoder.
        dev_texts: Texts of the dev questions.
        settings: How the encoder is trained.
        device: Where to compute.
        seed: Of dropout.
        ranks: The processes that train together.

    Raises:
        GnnRetrievalError: as :func:`require_encoder`.
    """

    def __init__(
        self,
        store: Graph,
        dev_texts: Sequence[str],
        settings: JointSettings,
        device: torch.device,
        seed: int,
        ranks: Ranks = ALONE,
    ) -> None:
        self.store, self.settings, self.seed, self.ranks = store, settings, seed, ranks
        self.start = start = require_encoder(store)
        self.towers = make_towers(
            start,
            shared=start.query.hash == start.passage.hash,
            device=device,
            seed=seed,
            dropout=settings.encoder_dropout,
        )
        self.weights = MasterWeights(list(self.towers.values()), weights_dtype(settings.precision, device))
        self._texts = store.texts()
        self._dev_items = self._items(QUERY, dev_texts)

    @property
    def parameters(self) -> nn.ParameterList:
        """The float32 weights."""
        return self.weights.parameters

    def add_gradient(self, queries: Rows, passages: Rows, adjacent: Rows, loss: NodeLoss, step: int) -> float:
        """Add the gradient of a step's loss to all weights; over several processes, this one's share of the encoder's.

        Args:
            queries: ``(b,)`` rows of the masked queries, each once.
            passages: ``(C,)`` rows of ``P_b``.
            adjacent: ``(S,)`` rows of the queries that have an edge with one of them.
            loss: Of their recomputed vectors ``(b, d)``, ``(C, d)`` and ``(S, d)``.
            step: Its number, which decides dropout.

        Returns:
            The loss.
        """
        for tower in self.towers.values():
            tower.module.train()
        items = self._items(QUERY, self._texts.texts_of_queries(queries.tolist()))
        items += self._items(PASSAGE, self._texts.texts_of_passages(passages.tolist()))
        items += self._items(QUERY, self._texts.texts_of_queries(adjacent.tolist()))
        sizes = [len(queries), len(passages), len(adjacent)]

        def of_rows(rows: Tensor) -> Tensor:
            torch.manual_seed(np.random.default_rng([self.seed, step, 7]).integers(2**62).item())  # on every process
            return loss(*torch.split(rows, sizes))

        return add_gradient(
            self.towers,
            Batch(items, of_rows),
            cached=self.settings.gradient_cache,
            token_budget=self.settings.token_budget,
            ranks=self.ranks,
            seed=(self.seed, step),
        )

    def _items(self, tower: str, texts: Sequence[str]) -> list[Item]:
        return [Item(tower, tuple(ids)) for ids in self.towers[tower].tokens(texts)] if texts else []

    def pool(self, dev: DevSet) -> Rows | None:
        """Rows of the passages that dev is measured among, sorted; None: all."""
        store, most = self.store, self.settings.dev_passages
        if store.num_passages <= most:
            return None
        best, _ = exact_top_k(dev.queries.cpu().numpy(), store.passage_features, _BEST, store.similarity)
        wanted = np.union1d(dev.relevant_rows, best)
        others = np.random.default_rng([self.seed, 0, 3]).permutation(store.num_passages)[:most]
        return np.union1d(wanted, others[: max(0, most - len(wanted))])

    def recomputed(self, dev: DevSet, among: Rows | None, visible: NDArray[np.bool_]) -> tuple[Graph, DevSet]:
        """The store and dev with the features that the encoder gives now.

        Args:
            dev: The dev questions.
            among: Rows of the passages that are wanted; None: all. Features of others, and of queries that found none
                of these, are 0.
            visible: ``(n,)`` False for queries that are not in the graph.
        """
        for tower in self.towers.values():
            tower.module.eval()
        store = self.store
        passages = np.zeros((store.num_passages, store.dimension), dtype=np.float16)  # of the system, page by page
        queries = np.zeros((store.num_queries, store.dimension), dtype=np.float16)
        rows = np.arange(store.num_passages) if among is None else among
        asked = np.unique(store.found_by(rows, visible)[0] // store.stride)
        with progress("encoding for dev", len(rows) + len(asked), "texts") as meter:
            for side, target, wanted, read in (
                (PASSAGE, passages, rows, self._texts.texts_of_passages),
                (QUERY, queries, asked, self._texts.texts_of_queries),
            ):
                for start in range(0, len(wanted), _TEXTS):
                    part = wanted[start : start + _TEXTS]
                    target[part] = self._vectors(self._items(side, read(part.tolist())))
                    meter.advance(len(part))
        return store.with_features(passages, queries), dev.with_queries(self._vectors(self._dev_items))

    def _vectors(self, items: Sequence[Item]) -> NDArray[np.float16]:
        vectors: NDArray[np.float16] = (
            encoded(self.towers[items[0].tower], items, self.settings.token_budget).numpy().astype(np.float16)
        )
        return vectors

    def save(self, weights: dict[str, Tensor], directory: Path, queries: Rows) -> EncoderSettings:
        """Write these weights (of :meth:`MasterWeights.snapshot`) as checkpoints; returns settings that read them.

        ``queries`` are rows of those that were learned from.
        """
        self.weights.restore(weights)
        self.weights.to_float32()
        ids = self._texts.query_ids()
        return save_towers(self.towers, self.start, directory, (ids[row] for row in queries.tolist()))


def require_encoder(store: Graph) -> Start:
    """The dual-encoder that a graph's features are of, as joint training wants it.

    Raises:
        ArtifactError: it has other weights now than the features were made with.
        GnnRetrievalError: there is none, or it gives a passage several vectors.
    """
    start = Start.of(store.encoder_settings)
    if {"query": start.query.hash, "passage": start.passage.hash} != store.meta["checkpoint_hash"]:
        raise ArtifactError(
            f"{store.path}: {start.settings.checkpoint} holds other weights now than when the graph was built. "
            "Build the graph again."
        )
    if start.settings.sentences != "none":
        raise GnnRetrievalError(
            f"{start.settings.checkpoint} gives a passage the mean of its sentences' vectors, which joint training "
            "cannot recompute: train with mode = frozen."
        )
    return start
