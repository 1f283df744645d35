r"""SPLADE: texts as weights of the vocabulary's terms (`Formal et al. 2021 <https://arxiv.org/abs/2109.10086>`_).

.. math:: w_j = \max_i \log(1 + \mathrm{ReLU}(z_{ij}))

where :math:`z_{ij}` is the logit of term :math:`j` at token :math:`i`, by a head for masked language modelling. Most
weights are 0, so inverted lists hold a corpus, and a question reads only the lists of its terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.encoders.batching import batches_by_tokens
from gnnretrieval.encoders.checkpoint import Checkpoint, find_checkpoint
from gnnretrieval.encoders.loading import (
    check_max_tokens,
    check_one_vocabulary,
    check_room,
    has_language_model_head,
    load_sparse_encoder,
    positions_of,
    weights_dtype,
)
from gnnretrieval.encoders.parallel_batches import map_batches
from gnnretrieval.encoders.prompts import Side, own_prompt
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.trained import trained_settings
from gnnretrieval.errors import InputError
from gnnretrieval.platform.devices import as_device
from gnnretrieval.platform.threads import one_thread


class TermWeights(NamedTuple):
    """Weights of terms in some texts.

    Attributes:
        counts: ``(texts,)`` int64 number of terms of each text.
        terms: ``(T,)`` int32 their numbers in the vocabulary, ascending in each text.
        weights: ``(T,)`` float32 their weights, above 0.
    """

    counts: NDArray[np.int64]
    terms: NDArray[np.int32]
    weights: NDArray[np.float32]

    @classmethod
    def of_rows(cls, rows: Tensor) -> TermWeights:
        """The terms of dense rows ``(texts, V)`` with a weight above 0."""
        array = rows.float().cpu().numpy()
        texts, terms = np.nonzero(array > 0)
        counts = np.bincount(texts, minlength=len(array)).astype(np.int64)
        return cls(counts, terms.astype(np.int32), array[texts, terms])


class SparseEncoder:
    """Encodes queries and passages to weights of terms.

    Args:
        settings: Checkpoints, prompts, limits and precision. A checkpoint is a SPLADE model in the layout of
            sentence-transformers, a masked language model, or an encoder trained here.
        device: Device of the weights.

    Raises:
        InputError: A checkpoint cannot be loaded, or has no head for masked language modelling; or the two have
            different vocabularies.
        GnnRetrievalError: A checkpoint is not found.
    """

    def __init__(self, settings: EncoderSettings, device: str | torch.device = "cpu") -> None:
        self.settings = settings = trained_settings(settings)
        self.device = as_device(device)
        self.dtype = weights_dtype(settings.precision, self.device)
        passage = find_checkpoint(settings.checkpoint)
        query = find_checkpoint(settings.query_checkpoint) if settings.query_checkpoint else passage
        self.checkpoints: dict[Side, Checkpoint] = {"query": query, "passage": passage}
        models = {
            hash_: self._load(checkpoint) for hash_, checkpoint in {query.hash: query, passage.hash: passage}.items()
        }
        self._models: dict[Side, Any] = {"query": models[query.hash], "passage": models[passage.hash]}
        check_one_vocabulary(
            {side: model.tokenizer for side, model in self._models.items()}, query, settings.checkpoint
        )

    def _load(self, checkpoint: Checkpoint) -> Any:
        if not has_language_model_head(checkpoint):
            raise InputError(
                "this checkpoint has no head for masked language modelling, which gives terms their weights: train one "
                "by encoder train splade, or give a SPLADE checkpoint.",
                checkpoint.directory,
            )
        model = load_sparse_encoder(checkpoint, self.device)
        positions = positions_of(model[0].auto_model.config)
        check_max_tokens(self.settings.max_tokens, positions, checkpoint)
        check_max_tokens(self.settings.query_max_tokens, positions, checkpoint, "query_max_tokens")
        check_room(self.settings.max_tokens, model.tokenizer, checkpoint)
        check_room(self.settings.query_max_tokens, model.tokenizer, checkpoint, "query_max_tokens")
        if self.settings.max_tokens is not None:
            model.max_seq_length = self.settings.max_tokens
        model[0].to(self.dtype)
        return model.eval()

    @property
    def vocabulary(self) -> list[str]:
        """Text of each term ``(V,)``."""
        tokenizer = self._models["passage"].tokenizer
        names: list[str] = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        return names

    @property
    def fingerprint(self) -> dict[str, str]:
        """Hash of the weights, configuration and tokenizer by side, ``query`` and ``passage``."""
        return {side: checkpoint.hash for side, checkpoint in self.checkpoints.items()}

    def encode(self, texts: Sequence[str], side: Side) -> TermWeights:
        """Weights of the terms of some texts."""
        if not texts:
            return TermWeights.of_rows(torch.empty(0, 1))
        model, settings = self._models[side], self.settings
        given = settings.query_prompt if side == "query" else settings.passage_prompt
        prompt = own_prompt(model.prompts, side) if given is None else given
        max_tokens = (settings.query_max_tokens if side == "query" else None) or model.max_seq_length
        tokens = model.tokenizer([prompt + text for text in texts], truncation=True, max_length=max_tokens)
        lengths = np.array([len(ids) for ids in tokens["input_ids"]], dtype=np.int64)
        batches = batches_by_tokens(lengths, settings.token_budget)

        @torch.inference_mode()
        def encode_batch(batch: NDArray[np.int64]) -> list[TermWeights]:
            batch_tokens = {name: [values[row] for row in batch] for name, values in tokens.items()}
            padded = dict(model.tokenizer.pad(batch_tokens, return_tensors="pt").to(self.device))
            return [TermWeights.of_rows(row[None]) for row in pooled_terms(model, padded, own_terms=settings.own_terms)]

        if self.device.type == "cpu":  # how a product is rounded depends on the number of threads
            encoded = map_batches(one_thread()(encode_batch), batches)
        else:
            encoded = map(encode_batch, batches)
        by_row: dict[int, TermWeights] = {}
        for batch, weights in zip(batches, encoded, strict=True):
            by_row |= zip(batch.tolist(), weights, strict=True)
        parts = [by_row[row] for row in range(len(texts))]
        return TermWeights(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def pooled_terms(model: Any, features: dict[str, Any], *, own_terms: bool = False) -> Tensor:
    """Weights of all terms ``(b, V)`` float32 of padded texts, by a model of sentence-transformers.

    Args:
        model: A masked language model and SPLADE's pooling.
        features: Ids and attention mask ``(b, t)``.
        own_terms: Give weight only to terms that the text contains.
    """
    ids = features["input_ids"]
    if model[1].pooling_strategy == "max":
        features = largest_logits(model, features)
    else:
        features = model[0](features)
        features["token_embeddings"] = features["token_embeddings"].float()
    pooled: Tensor = model[1](features)["sentence_embedding"]
    return pooled * contained(ids, model.tokenizer, pooled.shape[1]) if own_terms else pooled


def contained(ids: Tensor, tokenizer: Any, vocabulary: int) -> Tensor:
    """Whether each text contains each term ``(b, V)`` bool, from ids ``(b, t)``; special tokens are no terms."""
    present = torch.zeros(len(ids), vocabulary, dtype=torch.bool, device=ids.device).scatter_(1, ids, True)
    present[:, tokenizer.all_special_ids] = False
    return present


def largest_logits(model: Any, features: dict[str, Any]) -> dict[str, Any]:
    """The largest logit of each term as one token ``(b, 1, V)`` float32, for the model's pooling.

    The functions that maximum pooling applies first are monotone, so weights are the same, and the gradient needs no
    copy of all logits ``(b, t, V)``.
    """
    features = model[0](features)
    padding = features["attention_mask"][..., None] == 0
    logits = features["token_embeddings"].masked_fill_(padding, -torch.inf)  # (b, t, V), by far the largest array
    largest = logits.max(1, keepdim=True).values.float()
    return features | {"token_embeddings": largest, "attention_mask": torch.ones_like(largest[..., 0])}
