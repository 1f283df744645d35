"""The dual-encoder in joint training: node features are recomputed with gradient (§3.4, Algorithm 1, lines 8-11)."""

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
from gnnretrieval.training.encoder.dual_towers import Start, make_towers, save_towers
from gnnretrieval.training.encoder.encoded import encoded
from gnnretrieval.training.encoder.towers import Item
from gnnretrieval.training.gnn.dev import DevSet
from gnnretrieval.training.gnn.settings import TrainSettings
from gnnretrieval.training.ranks import ALONE, Ranks
from gnnretrieval.training.weights import MasterWeights

_TEXTS = 512  # texts tokenised at a time
_BEST = 20  # top passages of each dev query, by the stored features, that dev ranks among

NodeLoss = Callable[[Tensor, Tensor, Tensor], Tensor]


class JointEncoders:
    """The encoders ``E_Q`` and ``E_P`` of a graph's features, in training.

    A step encodes the batch's queries, its passages and the queries adjacent to these passages, and computes a loss of
    their vectors. :func:`add_gradient` is the same as in encoder training: gradient caching bounds the memory to that
    of one part of the batch, and with several processes each encodes a share of the batch.

    Args:
        store: The graph; its metadata names the encoder.
        dev_texts: Texts of the dev questions.
        settings: Settings of training; ``dual_encoder``, ``precision`` and ``seed`` are used.
        device: Where to compute.
        ranks: The processes that train together.

    Raises:
        GnnRetrievalError: As :func:`require_encoder`.
    """

    def __init__(
        self,
        store: Graph,
        dev_texts: Sequence[str],
        settings: TrainSettings,
        device: torch.device,
        ranks: Ranks = ALONE,
    ) -> None:
        self.store, self.settings, self.seed, self.ranks = store, settings.dual_encoder, settings.seed, ranks
        self.start = start = require_encoder(store)
        self.towers = make_towers(
            start,
            shared=start.query.hash == start.passage.hash,
            device=device,
            seed=settings.seed,
            dropout=self.settings.encoder_dropout,
            own_lengths=True,
        )
        self.weights = MasterWeights(list(self.towers.values()), weights_dtype(settings.precision, device))
        self._texts = store.texts()
        self._dev_items = self._items(QUERY, dev_texts)

    @property
    def parameters(self) -> nn.ParameterList:
        """The float32 weights that the optimizer updates."""
        return self.weights.parameters

    def add_gradient(self, queries: Rows, passages: Rows, adjacent: Rows, loss: NodeLoss, step: int) -> float:
        """Add the gradient of a step's loss to all weights; with several processes, this process's share for encoders.

        Args:
            queries: ``(b,)`` rows of the masked queries, without duplicates.
            passages: ``(C,)`` rows of ``P_b``.
            adjacent: ``(S,)`` rows of the queries that have an edge to one of these passages.
            loss: Computes the loss from the recomputed vectors ``(b, d)``, ``(C, d)`` and ``(S, d)``.
            step: Number of the step, which seeds dropout.

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
            # the GNN's dropout must be equal on every process
            torch.manual_seed(np.random.default_rng([self.seed, step, 7]).integers(2**62).item())
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
        return self.towers[tower].items(tower, texts)

    def pool(self, dev: DevSet) -> Rows | None:
        """Sorted rows of the passages that dev queries are ranked among; None: all."""
        store, most = self.store, self.settings.dev_passages
        if store.num_passages <= most:
            return None
        best, _ = exact_top_k(dev.queries.cpu().numpy(), store.passage_features, _BEST, store.similarity)
        wanted = np.union1d(dev.judged_rows, best)
        others = np.random.default_rng([self.seed, 0, 3]).permutation(store.num_passages)[:most]
        return np.union1d(wanted, others[: max(0, most - len(wanted))])

    def recomputed(self, dev: DevSet, among: Rows | None, visible: NDArray[np.bool_]) -> tuple[Graph, DevSet]:
        """The store and dev with features by the current encoder.

        Args:
            dev: The dev questions.
            among: Rows of the passages to encode, with the queries adjacent to them; None: all. Features of the other
                nodes are 0.
            visible: ``(n,)`` bool, False for queries that are not in the graph.
        """
        for tower in self.towers.values():
            tower.module.eval()
        store = self.store
        passages = np.zeros((store.num_passages, store.dimension), dtype=np.float16)  # untouched pages take no memory
        queries = np.zeros((store.num_queries, store.dimension), dtype=np.float16)
        rows = np.arange(store.num_passages) if among is None else among
        adjacent = np.unique(store.found_by(rows, visible)[0] // store.stride)
        with progress("encoding for dev", len(rows) + len(adjacent), "texts") as meter:
            for side, target, wanted, read in (
                (PASSAGE, passages, rows, self._texts.texts_of_passages),
                (QUERY, queries, adjacent, self._texts.texts_of_queries),
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
        """Write weights as checkpoints into a directory.

        Args:
            weights: A :meth:`MasterWeights.snapshot`.
            directory: Where the checkpoints go.
            queries: Rows of the queries that the encoder learned from.

        Returns:
            Settings that open the checkpoints.
        """
        self.weights.restore(weights)
        self.weights.to_float32()
        ids = self._texts.query_ids()
        return save_towers(self.towers, self.start, directory, (ids[row] for row in queries.tolist()))


def require_encoder(store: Graph) -> Start:
    """The dual-encoder of a graph's features, checked for joint training.

    Raises:
        ArtifactError: Its weights have changed since the graph was built.
        GnnRetrievalError: The features have no encoder, or their vectors are means over sentences or tokens.
    """
    start = Start.of(store.encoder_settings)
    if {"query": start.query.hash, "passage": start.passage.hash} != store.meta["checkpoint_hash"]:
        raise ArtifactError(
            f"{store.path}: the weights of {start.settings.checkpoint} have changed since the graph was built. "
            "Build the graph again."
        )
    if start.settings.sentences != "none" or start.settings.late_interaction is not None:
        parts = "sentences" if start.settings.late_interaction is None else "tokens"
        raise GnnRetrievalError(
            f"{start.settings.checkpoint} encodes a passage as the mean of its {parts}, which joint training cannot "
            "recompute: train with mode = frozen."
        )
    return start
