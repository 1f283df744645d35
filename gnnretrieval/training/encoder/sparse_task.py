r"""Training task of a sparse encoder (SPLADE): its ranking loss, and what its terms cost to search.

.. math:: \ell_{\mathrm{FLOPS}} = \sum_j \Bigl( \frac{1}{N} \sum_{i=1}^{N} w_j^{(i)} \Bigr)^2

is the expected number of products of a search (Paria et al. 2020): it drives to 0 the terms that many texts share. It
has one weight for queries and one for passages, which grow quadratically over the first steps, so that the ranking is
learned before terms are lost (`Formal et al. 2021 <https://arxiv.org/abs/2109.10086>`_, section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnretrieval.encoders.checkpoint import Checkpoint
from gnnretrieval.encoders.loading import has_language_model_head, is_splade, load_sparse_encoder
from gnnretrieval.encoders.prompts import Side
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.encoders.sparse_encoder import contained, largest_logits, pooled_terms
from gnnretrieval.errors import InputError
from gnnretrieval.progress import say
from gnnretrieval.training.cached_step import Batch
from gnnretrieval.training.encoder.dual_task import DualEncoderTask
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings
from gnnretrieval.training.encoder.towers import Item, TextTower, attention_on, item_batches

_SAMPLE = 256  # passages that the head's bias is shifted by
_OWN = 0.9  # share of a passage's own terms that have a weight at the start


class SparseTower(TextTower):
    """A masked language model: pooled logits are weights of terms. Arguments and errors as :class:`TextTower`."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        similarity: Similarity,
        device: torch.device,
        *,
        max_tokens: int | None = None,
        dropout: float | None = None,
        own_terms: bool = False,
        side: Side = "passage",
        prompt: str | None = None,
    ) -> None:
        self.own_terms, self._is_trained = own_terms, is_splade(checkpoint)
        if not has_language_model_head(checkpoint):
            say(f"{checkpoint.name} has no head for masked language modelling: it starts at random")
        module = load_sparse_encoder(checkpoint, device, **attention_on(device))
        transformer = self.begin(module, checkpoint, similarity, side, prompt, max_tokens, dropout)
        if getattr(transformer.get_output_embeddings(), "bias", None) is None:
            raise InputError(
                "the head of this checkpoint has no bias: it cannot be trained here.", checkpoint.directory
            )
        self.sentences, self.token_match, self._late = "none", "all", None
        self.max_tokens = module.max_seq_length
        self.width = self.measured_width()

    def center(self, texts: Sequence[str], terms: int, token_budget: int) -> Tensor | None:
        """The change of the head's bias that gives texts ``terms`` terms on average; None if they have no more.

        A shift of all logits changes no prediction of a masked language model. So their level means nothing before
        training, and most terms of the vocabulary may have a weight. Each term's logit is taken relative to its mean
        over texts, which removes the words of every text. Then all are lowered alike.

        Args:
            texts: Some passages.
            terms: Number of terms.
            token_budget: Maximum number of tokens that are encoded together.

        Returns:
            What to add to the bias ``(V,)``.
        """
        if self._is_trained or len(texts) < 2:  # one text has no mean of others to be compared with
            return None
        items, vocabulary = self.items("", texts), self.width
        largest, own = [], []  # of each text, the largest logit of each term, and whether it contains it
        with torch.inference_mode():
            for chosen in item_batches(items, token_budget):
                features = self.padded([items[number] for number in chosen])
                own.append(contained(features["input_ids"], self.tokenizer, vocabulary).cpu())
                largest.append(largest_logits(self.module, features)["token_embeddings"][:, 0].cpu())
        logits = torch.cat(largest)  # (texts, V)
        relative = logits - logits.mean(0)
        if self.own_terms:
            values = relative[torch.cat(own)]
            return -logits.mean(0) - values.quantile(1 - _OWN)
        if float((logits > 0).sum(1).float().mean()) <= terms:
            return None
        kept = relative.flatten().topk(min(terms * len(logits), relative.numel())).values
        return -logits.mean(0) - kept[-1]

    def shift(self, change: Tensor) -> None:
        """Add ``change`` ``(V,)`` to the head's bias."""
        bias = self.module[0].auto_model.get_output_embeddings().bias
        with torch.no_grad():
            bias.add_(change.to(bias))

    def pooled(self, features: dict[str, Any], items: Sequence[Item]) -> Tensor:
        """Weights ``(b, V)`` of padded texts.

        Only terms above 0 have a gradient, at the token of their largest logit. These logits alone are computed again
        with a gradient, so the gradient of all ``(b, t, V)`` is never made.
        """
        transformer, pooling = self.module
        if not torch.is_grad_enabled() or pooling.pooling_strategy != "max":
            return pooled_terms(self.module, features, own_terms=self.own_terms)
        output, read = transformer.auto_model.get_output_embeddings(), list[Tensor]()

        def without_gradient(_: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
            read.append(given[0])
            return (given[0].detach(),)

        hook = output.register_forward_pre_hook(without_gradient)
        try:
            logits = transformer(features)["token_embeddings"].detach()  # (b, t, V)
        finally:
            hook.remove()
        states = read[0]  # (b, t, d)
        logits.masked_fill_(features["attention_mask"][..., None] == 0, -torch.inf)
        largest, tokens = logits.max(1)  # (b, V)
        active = largest > 0
        if self.own_terms:
            active &= contained(features["input_ids"], self.tokenizer, largest.shape[1])
        texts, terms = active.nonzero(as_tuple=True)
        weights = output.weight[terms].float()  # (active, d)
        values = (states[texts, tokens[texts, terms]].float() * weights).sum(1)
        values = values + output.bias[terms].float()
        rows = torch.zeros(largest.shape, device=values.device).index_put((texts, terms), values)
        ones = torch.ones(len(rows), 1, device=rows.device)
        pooled: Tensor = pooling({"token_embeddings": rows[:, None], "attention_mask": ones})["sentence_embedding"]
        return pooled


def center_towers(towers: Mapping[str, TextTower], texts: Sequence[str], settings: DualEncoderTrainSettings) -> None:
    """Shift the bias of both towers' heads by some of the passages (:meth:`SparseTower.center`)."""
    passage = towers["passage"]
    assert isinstance(passage, SparseTower)
    sample = np.random.default_rng([settings.seed, 0, 4]).permutation(len(texts))[:_SAMPLE]
    change = passage.center([texts[row] for row in sample.tolist()], settings.start_terms, settings.token_budget)
    if change is not None:
        start = f"{_OWN:.0%} of its terms" if passage.own_terms else f"{settings.start_terms:,} terms on average"
        say(f"the head's bias is shifted, so that a passage starts with {start}")
        for tower in {id(tower.module): tower for tower in towers.values()}.values():  # shared weights once
            assert isinstance(tower, SparseTower)
            tower.shift(change)


class SparseTask(DualEncoderTask):
    """Batches for a sparse encoder; arguments as :class:`DualEncoderTask`."""

    def batch(self, epoch: int, number: int) -> Batch:
        """As :meth:`DualEncoderTask.batch`, with the cost of search in the loss."""
        made, settings = super().batch(epoch, number), self.settings
        queries = sum(item.tower == "query" for item in made.items)
        ramp = settings.flops_warmup * settings.epochs * self.steps_per_epoch
        share = min(1.0, (epoch * self.steps_per_epoch + number + 1) / ramp) ** 2 if ramp else 1.0
        weights = share * settings.query_flops, share * settings.passage_flops
        return Batch(made.items, WithFlops(made.loss, queries, *weights))


@dataclass(frozen=True)
class WithFlops:
    """A loss, with the cost of search by rows ``(B + C, V)``.

    Attributes:
        loss: The loss of ranking.
        queries: Number of queries ``B``: the first rows.
        of_queries: Weight of the cost of their terms.
        of_passages: Weight of the cost of the passages' terms.
    """

    loss: Callable[[Tensor], Tensor]
    queries: int
    of_queries: float
    of_passages: float

    def __call__(self, rows: Tensor) -> Tensor:
        """The loss of all rows."""
        costs = self.of_queries * flops(rows[: self.queries]) + self.of_passages * flops(rows[self.queries :])
        return self.loss(rows) + costs


def flops(weights: Tensor) -> Tensor:
    r""":math:`\ell_{\mathrm{FLOPS}}` of texts with weights ``(N, V)``."""
    return weights.mean(0).square().sum()
