"""Training of the query encoder against fixed passage vectors (ADORE, Zhan et al. 2021), and of a head with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gnnretrieval.encoders.exact_search import exact_top_k
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.losses import contrastive_loss
from gnnretrieval.mining.examples import Example
from gnnretrieval.training.cached_step import Batch
from gnnretrieval.training.encoder.dev import RetrievalDev
from gnnretrieval.training.encoder.dual_task import QUERY, Dev, DualEncoderTask
from gnnretrieval.training.encoder.pair_data import Drawn, Texts, draw
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings
from gnnretrieval.training.encoder.towers import TextTower


class FixedRetrievalDev(RetrievalDev):
    """Evaluation on dev with passages that are encoded once."""

    @cached_property
    def _vectors(self) -> Tensor:
        return super().passage_vectors()

    def passage_vectors(self) -> Tensor:
        """Vectors of the passages, of the first measurement."""
        return self._vectors


class TrainedHead:
    """A matrix ``H`` ``(d, d)`` on queries and passages, trained by the loop beside the query encoder.

    The loop has one learning rate, and a matrix needs a higher one than an encoder. So what is trained is ``Δ`` in
    ``H = start + rate · Δ``: with Adam, ``H`` moves ``rate`` times as fast.

    Args:
        start: Where it starts ``(d, d)``.
        rate: Its learning rate over the loop's.
        device: Where it is.
        processes: Number of processes that train together: each computes the whole gradient, and they are summed.
    """

    def __init__(self, start: Tensor, rate: float, device: torch.device, processes: int = 1) -> None:
        self.start, self.rate = start.to(device), rate
        self.change = nn.Parameter(torch.zeros_like(self.start))
        self.change.register_hook(lambda gradient: gradient / processes)  # type: ignore[no-untyped-call]
        self.module: nn.Module = nn.ParameterList([self.change])
        self.rounded: nn.Module = nn.Module()  # always float32

    @property
    def matrix(self) -> Tensor:
        """``H``, with gradient."""
        return self.start + self.rate * self.change

    def trained(self) -> list[nn.Parameter]:
        """The parameters."""
        return [self.change]


class FixedPassagesTask(DualEncoderTask):
    r"""Batches of queries alone: a query's negatives are the passages that score highest for it now.

    .. math::
        L = -\frac{1}{B} \sum_q \log \frac{e^{s(q, p^+)}}{e^{s(q, p^+)} + \sum_{p \in N} e^{s(q, p)}}, \qquad
        N = \bigcup_{q'} \mathrm{top}_k(q') \setminus \{\text{passages relevant to } q\}

    The union is over the queries :math:`q'` of the batch. Stored passage vectors do not change, so that no index of
    them has to be made again, and a step costs what encoding ``B`` queries does. With a head ``H``, queries and
    passages are compared as ``H q`` and ``H p``; as :math:`(H q)^\top H p = (H^\top H q)^\top p`, the search for
    candidates needs the head only on the queries.

    Args:
        examples: Training examples; their mined negatives are not used.
        texts: Texts of their queries and of all passages.
        towers: The towers ``query`` and ``passage``.
        similarity: Similarity of their vectors.
        settings: Batch size and ``fixed_top``, :math:`k`.
        dev: Evaluation on dev.
        ids: Ids of the passages.
        vectors: Their vectors ``(m, d)``.
        head: Head on both sides; None: the identity.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        texts: Texts,
        towers: Mapping[str, TextTower],
        similarity: Similarity,
        settings: DualEncoderTrainSettings,
        dev: Dev,
        ids: Sequence[str],
        vectors: NDArray[np.float16],
        head: TrainedHead | None = None,
    ) -> None:
        super().__init__(examples, texts, towers, similarity, settings, dev)
        self.ids, self.vectors, self.head = ids, vectors, head
        self._row = {id_: row for row, id_ in enumerate(ids)}
        self.top = min(settings.fixed_top, len(ids))

    def batch(self, epoch: int, number: int) -> Batch:
        """A batch: rows of its queries."""
        drawn = draw(self.examples, self.settings.batch_size, 0, self.settings.seed, epoch, number)
        items = self._items(QUERY, [self.texts.queries[one.query] for one in drawn])
        return Batch(items, lambda queries: self._loss(queries, drawn))

    def _loss(self, queries: Tensor, drawn: Sequence[Drawn]) -> Tensor:
        search_by, matrix = queries.detach(), None
        if self.head is not None:
            matrix = self.head.matrix
            queries = self.similarity.prepare(queries @ matrix.T)  # H q
            search_by = queries.detach() @ matrix.detach()  # H^T H q
        retrieved, _ = exact_top_k(search_by.cpu().numpy(), self.vectors, self.top, self.similarity)
        positives = np.array([self._row[one.positive.passage] for one in drawn])
        candidates = np.union1d(retrieved, positives)  # sorted
        stored = torch.from_numpy(self.vectors[candidates]).to(queries.device)
        passages = self.similarity.prepare(stored if matrix is None else stored.float() @ matrix.T)
        relevant = self.relevance.mask([one.query for one in drawn], [self.ids[row] for row in candidates])
        return contrastive_loss(
            self.similarity.scale * queries @ passages.T,
            torch.from_numpy(np.searchsorted(candidates, positives)).to(queries.device),
            torch.from_numpy(relevant).to(queries.device),
        )
