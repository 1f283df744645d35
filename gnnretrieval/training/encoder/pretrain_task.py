r"""Pre-training on passages without labels: masked language modelling, RetroMAE, Condenser and coCondenser.

**RetroMAE** (`Xiao et al. 2022 <https://arxiv.org/abs/2205.12035>`_) masks a passage lightly for the encoder, and
heavily for a decoder of one layer, which must rebuild the passage from the encoder's one vector. The decoder is weak,
so the vector must hold the passage. The loss is the sum of both, each a mean over predicted tokens:

.. math:: L = L_{\mathrm{enc}} + L_{\mathrm{dec}}

The decoder reads two streams (section 2.3, enhanced decoding). The queries are the vector plus each token's position,
and the context is the vector and the embeddings of all tokens with their positions. A token attends to a random part of
the context, never to itself, so every token is predicted, each from another part.

**Condenser** (`Gao and Callan 2021 <https://arxiv.org/abs/2104.08253>`_) predicts the same masked tokens twice: from
the last layer, and by a head of two layers that reads the token states of the middle layer beside the vector of the
last one (section 3.2). The head sees what the late layers do through this vector alone. The loss is the sum of both.

**coCondenser** (`Gao and Callan 2022 <https://arxiv.org/abs/2108.05540>`_, section 3.2) adds a contrastive loss. Two
spans of a passage are positives of each other, and all other spans of the batch are negatives. With the spans' vectors
``h``:

.. math:: L_{ij} = -\log \frac{\exp(h_{i1} \cdot h_{i2})}{\sum_{k, l} 1_{kl \ne ij} \exp(h_{ij} \cdot h_{kl})}
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
from gnnretrieval.losses.contrastive import contrastive_loss
from gnnretrieval.training.cached_step import Batch
from gnnretrieval.training.encoder.head_tower import HeadTower
from gnnretrieval.training.encoder.pretrain_heads import CondenserHead, EnhancedDecoder
from gnnretrieval.training.encoder.settings import PretrainSettings
from gnnretrieval.training.encoder.towers import Item, Tower, item_batches
from gnnretrieval.training.ranks import Ranks

TEXT = "text"  # name of the tower
_COLUMNS = 5  # of a row, before a span's vector
_ENCODER, _ENCODER_TOKENS, _RIGHT, _DECODER, _DECODER_TOKENS = range(_COLUMNS)


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
        self._is_condenser = settings.objective in ("condenser", "cocondenser")
        self.width = _COLUMNS + (self.model.config.hidden_size if settings.objective == "cocondenser" else 0)
        parts = nn.ModuleDict({"model": self.model})
        if settings.objective != "mlm":
            shape = self.model.config.hidden_size, getattr(self.model.config, "num_attention_heads", 1)
            decoder = CondenserHead(*shape) if self._is_condenser else EnhancedDecoder(*shape, settings.max_tokens)
            parts["decoder"] = decoder.to(device)
        self.module = parts

    @property
    def rounded(self) -> nn.Module:
        """The language model; the decoder computes in float32."""
        module: nn.Module = self.model
        return module

    def items(self, texts: Sequence[str], max_tokens: int) -> list[Item]:
        """Items of texts, one row each."""
        ids = self.tokenizer(list(texts), truncation=True, max_length=max_tokens)["input_ids"]
        return [Item(TEXT, tuple(text)) for text in ids]

    def rows(self, items: Sequence[Item]) -> Tensor:
        """Rows ``(texts, 5)`` float32, or with coCondenser ``(texts, 5 + d)``.

        The columns are the encoder's summed loss, the number of tokens that it predicts and that of right predictions,
        then the decoder's or the head's summed loss and number of tokens, then the vector.
        """
        padded: Any = self.tokenizer.pad({"input_ids": [list(item.ids) for item in items]}, return_tensors="pt")
        ids, present = padded["input_ids"].to(self.device), padded["attention_mask"].to(self.device)
        special = torch.isin(ids, torch.tensor(self.tokenizer.all_special_ids, device=self.device))
        text = present.bool() & ~special  # (b, t)
        chosen = _some(text, self.settings.mask_share)
        masked = self._masked(ids, chosen)
        output = self.model.base_model(masked, attention_mask=present, output_hidden_states=self._is_condenser)
        states = output.last_hidden_state
        logits = self._logits(states[chosen])  # (masked, V)
        loss = _sums(F.cross_entropy(logits, ids[chosen], reduction="none"), chosen)
        right = _sums((logits.argmax(-1) == ids[chosen]).float(), chosen)
        rows = [loss, chosen.sum(1).float(), right.detach()]
        if self.settings.objective == "mlm":
            return torch.stack([*rows, torch.zeros_like(loss), torch.zeros_like(loss)], dim=1)
        vectors = self._vectors(states.float(), present)
        if self._is_condenser:
            early = output.hidden_states[(len(output.hidden_states) - 1) // 2].float()  # the first are the embeddings
            rows += self._predicted(self.module["decoder"](vectors, early, present.bool()), ids, chosen)
        else:
            rows += self._decoded(ids, text, vectors)
        columns = torch.stack(rows, dim=1)
        return torch.cat([columns, vectors], dim=1) if self.width > _COLUMNS else columns

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
        return self._predicted(self.module["decoder"](vectors, embedded, hidden), ids, text)

    def _predicted(self, states: Tensor, ids: Tensor, places: Tensor) -> list[Tensor]:
        """Summed loss and number of the tokens at the True places, predicted from states ``(b, t, d)``."""
        loss = F.cross_entropy(self._logits(states[places]), ids[places], reduction="none")
        return [_sums(loss, places), places.sum(1).float()]

    def _logits(self, states: Tensor) -> Tensor:
        """Logits ``(n, V)`` float32 of states ``(n, d)`` by the language model's head."""
        logits: Tensor = self._head(states.to(self.model.get_output_embeddings().weight.dtype))
        return logits.float()

    def save(self, directory: Path) -> None:
        """Save the language model and its tokenizer, without the decoder or head."""
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
        self._halves = settings.objective == "cocondenser"  # a text gives two spans
        self.items = tower.items(texts, settings.max_tokens * (2 if self._halves else 1))
        self.dev = tower.items(dev, settings.max_tokens)
        self.tower, self.settings = tower, settings
        self.steps_per_epoch = -(-len(self.items) // settings.batch_size)

    def batch(self, epoch: int, number: int) -> Batch:
        """A batch of texts; with coCondenser of their spans, the two of a text side by side."""
        size = self.settings.batch_size
        order = np.random.default_rng([self.settings.seed, epoch]).permutation(len(self.items))
        items = [self.items[row] for row in order[number * size : (number + 1) * size]]
        if self._halves:
            rng = np.random.default_rng([self.settings.seed, epoch, number])
            items = [span for item in items for span in _spans(item, self.settings.max_tokens, rng)]
        return Batch(items, pretrain_loss)

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


def _spans(item: Item, max_tokens: int, rng: np.random.Generator) -> list[Item]:
    """Two disjoint spans of a text, cut at a random place of its middle half; twice the text if it has one token."""
    (first, *text, last), least = item.ids, len(item.ids) // 4
    cut = int(rng.integers(least, len(text) - least, endpoint=True))
    parts = (text[:cut], text[cut:]) if len(text) > 1 else (text, text)
    return [Item(item.tower, (first, *part[: max_tokens - 2], last)) for part in parts]


def pretrain_loss(rows: Tensor) -> Tensor:
    """Loss of rows as of :meth:`PretrainTower.rows`: of the encoder, of the decoder or head, and of spans."""
    total = rows[:, :_COLUMNS].sum(0)
    counts = total.detach().clamp_min(1)
    loss = total[_ENCODER] / counts[_ENCODER_TOKENS] + total[_DECODER] / counts[_DECODER_TOKENS]
    return loss + _span_loss(rows[:, _COLUMNS:]) if rows.shape[1] > _COLUMNS else loss


def _span_loss(vectors: Tensor) -> Tensor:
    """Contrastive loss of the vectors of spans ``(2n, d)``, the two of a text side by side (coCondenser)."""
    here = torch.arange(len(vectors), device=vectors.device)
    other = here ^ 1  # the text's other span
    is_excluded = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    return contrastive_loss(vectors @ vectors.T, other, is_excluded)
