r"""Pre-training on passages without labels: masked language modelling, and RetroMAE's masked auto-encoding.

RetroMAE (`Xiao et al. 2022 <https://arxiv.org/abs/2205.12035>`_) masks a passage lightly for the encoder, and heavily
for a decoder of one layer, which must rebuild the passage from the encoder's one vector. The decoder is weak, so the
vector must hold the passage. The loss is the sum of both, each a mean over predicted tokens:

.. math:: L = L_{\mathrm{enc}} + L_{\mathrm{dec}}

The decoder reads two streams (section 2.3, enhanced decoding). The queries are the vector plus each token's position,
and the context is the vector and the embeddings of all tokens with their positions. A token attends to a random part of
the context, never to itself, so every token is predicted, each from another part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnretrieval.encoders.checkpoint import Checkpoint
from gnnretrieval.encoders.loading import load_language_model
from gnnretrieval.errors import InputError
from gnnretrieval.training.cached_step import Batch
from gnnretrieval.training.encoder.head_tower import HeadTower
from gnnretrieval.training.encoder.settings import PretrainSettings
from gnnretrieval.training.encoder.towers import Item, Tower, item_batches
from gnnretrieval.training.ranks import Ranks

TEXT = "text"  # name of the tower
_IGNORED = -100  # label of a token that is not predicted
_ENCODER, _ENCODER_TOKENS, _RIGHT, _DECODER, _DECODER_TOKENS = range(5)  # columns of a row


class EnhancedDecoder(nn.Module):
    """RetroMAE's decoder: one layer of attention from positions to a random part of the context.

    Args:
        width: Width ``d`` of the encoder.
        heads: Number of attention heads.
        positions: Maximum number of tokens.
    """

    def __init__(self, width: int, heads: int, positions: int) -> None:
        super().__init__()
        self.positions = nn.Embedding(positions, width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.forward_layer = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, vectors: Tensor, embedded: Tensor, hidden: Tensor) -> Tensor:
        """States ``(b, t, d)`` that predict each token.

        Args:
            vectors: The texts' vectors ``(b, d)``.
            embedded: Embeddings of their tokens ``(b, t, d)``.
            hidden: ``(b, t, t)`` bool, True where token ``j`` is hidden from token ``i``.
        """
        places = self.positions.weight[: embedded.shape[1]]  # (t, d)
        queries = vectors[:, None] + places
        context = torch.cat([vectors[:, None], embedded + places], dim=1)  # (b, 1 + t, d)
        mask = F.pad(hidden, (1, 0)).repeat_interleave(self.attention.num_heads, 0)  # the vector is always seen
        attended, _ = self.attention(queries, context, context, attn_mask=mask, need_weights=False)
        states = self.norms[0](queries + attended)
        decoded: Tensor = self.norms[1](states + self.forward_layer(states))
        return decoded


class PretrainTower(HeadTower):
    """A masked language model. Its rows are its losses on texts, which it masks itself.

    Random choices are by torch's generator, which the loop seeds for every part of a batch.

    Args:
        checkpoint: Any encoder checkpoint; a head for masked language modelling starts at random if it has none.
        device: Where to compute.
        settings: Objective, masking and lengths.

    Raises:
        InputError: As :class:`HeadTower`, or the tokenizer has no mask token, or the head is of an unknown kind.
    """

    width = 5

    def __init__(self, checkpoint: Checkpoint, device: torch.device, settings: PretrainSettings) -> None:
        super().__init__(load_language_model, checkpoint, device, settings.max_tokens, settings.dropout)
        if self.tokenizer.mask_token_id is None:
            raise InputError("its tokenizer has no mask token: it cannot be pre-trained here.", checkpoint.directory)
        self.settings, self.model = settings, self.module
        head = getattr(self.model, "cls", None) or getattr(self.model, "lm_head", None)  # BERT's, RoBERTa's
        if head is None:
            raise InputError(
                f"its model is a {type(self.model).__name__}: pre-training here knows the heads of BERT and RoBERTa.",
                checkpoint.directory,
            )
        self._head: Any = head
        parts = nn.ModuleDict({"model": self.model})
        if settings.objective == "retromae":
            config = self.model.config
            heads = getattr(config, "num_attention_heads", 1)
            parts["decoder"] = EnhancedDecoder(config.hidden_size, heads, settings.max_tokens).to(device)
        self.module = parts

    @property
    def rounded(self) -> nn.Module:
        """The language model; the decoder computes in float32."""
        module: nn.Module = self.model
        return module

    def items(self, texts: Sequence[str]) -> list[Item]:
        """Items of texts, one row each."""
        ids = self.tokenizer(list(texts), truncation=True, max_length=self.settings.max_tokens)["input_ids"]
        return [Item(TEXT, tuple(text)) for text in ids]

    def rows(self, items: Sequence[Item]) -> Tensor:
        """Rows ``(texts, 5)`` float32.

        The columns are the encoder's summed loss, the number of tokens that it predicts and that of right predictions,
        then the decoder's summed loss and number of tokens.
        """
        padded: Any = self.tokenizer.pad({"input_ids": [list(item.ids) for item in items]}, return_tensors="pt")
        ids, present = padded["input_ids"].to(self.device), padded["attention_mask"].to(self.device)
        special = torch.isin(ids, torch.tensor(self.tokenizer.all_special_ids, device=self.device))
        text = present.bool() & ~special  # (b, t)
        chosen = _some(text, self.settings.mask_share)
        states = self.model.base_model(input_ids=self._masked(ids, chosen), attention_mask=present).last_hidden_state
        logits = self._logits(states[chosen])  # (masked, V)
        loss = _sums(F.cross_entropy(logits, ids[chosen], reduction="none"), chosen)
        right = _sums((logits.argmax(-1) == ids[chosen]).float(), chosen)
        rows = [loss, chosen.sum(1).float(), right.detach()]
        if self.settings.objective == "retromae":
            rows += self._decoded(ids, text, self._vectors(states.float(), present))
        return torch.stack(rows + [torch.zeros_like(loss)] * (self.width - len(rows)), dim=1)

    def _masked(self, ids: Tensor, chosen: Tensor) -> Tensor:
        """Ids with 80 % of the chosen tokens masked, 10 % random and 10 % as they are (BERT)."""
        draw = torch.rand(ids.shape, device=ids.device)
        masked = torch.where(chosen & (draw < 0.8), self.tokenizer.mask_token_id, ids)
        anything = torch.randint(len(self.tokenizer), ids.shape, device=ids.device)
        return torch.where(chosen & (draw >= 0.9), anything, masked)

    def _vectors(self, states: Tensor, present: Tensor) -> Tensor:
        """Vectors of texts ``(b, d)`` from last hidden states ``(b, t, d)``."""
        if self.settings.pooling == "cls":
            return states[:, 0]
        mask = present[..., None].float()
        return (states * mask).sum(1) / mask.sum(1)

    def _decoded(self, ids: Tensor, text: Tensor, vectors: Tensor) -> list[Tensor]:
        """Summed loss and number of tokens of the decoder, for each text."""
        hidden = torch.rand(*ids.shape, ids.shape[1], device=ids.device) < self.settings.decoder_mask_share
        hidden |= torch.eye(ids.shape[1], dtype=torch.bool, device=ids.device) | ~text[:, None]
        embedded = self.model.get_input_embeddings()(ids).float()
        states = self.module["decoder"](vectors, embedded, hidden)
        logits = self._logits(states[text])
        return [_sums(F.cross_entropy(logits, ids[text], reduction="none"), text), text.sum(1).float()]

    def _logits(self, states: Tensor) -> Tensor:
        """Logits ``(n, V)`` float32 of states ``(n, d)`` by the language model's head."""
        logits: Tensor = self._head(states.to(self.model.get_output_embeddings().weight.dtype))
        return logits.float()

    def save(self, directory: Path) -> None:
        """Save the language model and its tokenizer, without the decoder."""
        self.model.save_pretrained(directory)
        self.tokenizer.save_pretrained(directory)


def _some(text: Tensor, share: float) -> Tensor:
    """A random share of the True places ``(b, t)``, at least one in a row that has any."""
    draw = torch.rand(text.shape, device=text.device).masked_fill(~text, 2.0)
    least = draw.argmin(1, keepdim=True)
    return text & ((draw < share) | torch.zeros_like(text).scatter(1, least, True))


def _sums(values: Tensor, places: Tensor) -> Tensor:
    """Sums by row ``(b,)`` of values at the True places ``(b, t)``."""
    return torch.zeros(places.shape, device=values.device).masked_scatter(places, values).sum(1)


class PretrainTask:
    """Batches of passages.

    Args:
        texts: Texts to train on.
        dev: Texts that the epoch is chosen on.
        tower: The model to train.
        settings: Batch size and seed.
    """

    def __init__(
        self, texts: Sequence[str], dev: Sequence[str], tower: PretrainTower, settings: PretrainSettings
    ) -> None:
        self.items, self.dev = tower.items(texts), tower.items(dev)
        self.tower, self.settings = tower, settings
        self.steps_per_epoch = -(-len(self.items) // settings.batch_size)

    def batch(self, epoch: int, number: int) -> Batch:
        """A batch of texts."""
        size = self.settings.batch_size
        order = np.random.default_rng([self.settings.seed, epoch]).permutation(len(self.items))
        return Batch([self.items[row] for row in order[number * size : (number + 1) * size]], pretrain_loss)

    def before_step(self, step: int, towers: Mapping[str, Tower], directory: Path, ranks: Ranks) -> None:
        """Do nothing: the texts do not change."""

    def measure(self, towers: Mapping[str, Tower]) -> dict[str, float]:
        """Share of masked tokens that are predicted, on the dev texts; the same tokens are masked every time."""
        with torch.inference_mode(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.settings.seed)
            rows = [
                self.tower.rows([self.dev[number] for number in chosen]).sum(0).cpu()
                for chosen in item_batches(self.dev, self.settings.token_budget)
            ]
        total = torch.stack(rows).sum(0)
        return {"predicted": float(total[_RIGHT] / total[_ENCODER_TOKENS])}


def pretrain_loss(rows: Tensor) -> Tensor:
    """Loss of rows as of :meth:`PretrainTower.rows`: of the encoder, and of the decoder if there is one."""
    total = rows.sum(0)
    counts = rows.detach().sum(0).clamp_min(1)
    return total[_ENCODER] / counts[_ENCODER_TOKENS] + total[_DECODER] / counts[_DECODER_TOKENS]
