"""The cross-encoder: reads a query and a passage together and gives a vector and a probability of relevance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gnnretrieval.encoders.batching import batches_by_tokens
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.loading import (
    check_max_tokens,
    check_vocabulary,
    load_classifier,
    load_tokenizer,
    positions_of,
    weights_dtype,
)
from gnnretrieval.encoders.packed_linear import by_equal_blocks
from gnnretrieval.encoders.packed_pass import PackedPass, Tokens, can_pack
from gnnretrieval.encoders.pair_tokens import PairTokenizer
from gnnretrieval.encoders.parallel_batches import map_batches
from gnnretrieval.encoders.settings import CrossEncoderSettings
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.platform.devices import as_device


class PairFeatures(NamedTuple):
    """A cross-encoder's vectors and probabilities of pairs of texts.

    Attributes:
        vectors: ``(pairs, d)`` float32, last hidden state of ``[CLS]``: an edge feature.
        probabilities: ``(pairs,)`` float32, probability that the second text answers the first. With one label it is
            the ``sigmoid`` of the logit; with two it is the second label's ``softmax``.
    """

    vectors: NDArray[np.float32]
    probabilities: NDArray[np.float32]


class CrossEncoder:
    """Any Hugging Face or sentence-transformers cross-encoder: a sequence classifier with one or two labels.

    Args:
        settings: Checkpoint, longest pair, precision.
        device: Device of the weights.

    Raises:
        InputError: The checkpoint cannot be loaded, or is not a cross-encoder.
    """

    def __init__(self, settings: CrossEncoderSettings, device: str | torch.device = "cpu") -> None:
        self.settings = settings
        self.device = as_device(device)
        self.checkpoint = find_checkpoint(settings.checkpoint)
        directory = self.checkpoint.directory
        model, report = load_classifier(self.checkpoint)
        tokenizer = load_tokenizer(self.checkpoint)
        if report["missing_keys"]:
            missing = ", ".join(sorted(report["missing_keys"])[:2])
            raise InputError(f"this is no cross-encoder's checkpoint: it has no weights for {missing}.", directory)
        if model.config.num_labels not in (1, 2):
            raise InputError(
                f"a cross-encoder has one label or two, and this checkpoint has {model.config.num_labels}.", directory
            )
        check_vocabulary(len(tokenizer), model.get_input_embeddings().num_embeddings, self.checkpoint)
        positions = positions_of(model.config)
        check_max_tokens(settings.max_tokens, positions, self.checkpoint, "a pair's max_tokens (pair_tokens)")
        self._model: Any = model.eval().to(self.device)
        max_tokens = settings.max_tokens or min(tokenizer.model_max_length, positions or tokenizer.model_max_length)
        self._tokens = PairTokenizer(tokenizer, max_tokens, directory)
        self._pad = tokenizer.pad
        self._typed = "token_type_ids" in tokenizer.model_input_names
        dtype = weights_dtype(settings.precision, self.device)
        self._packed = _PackedClassifier(model, dtype) if can_pack(model.base_model) else None
        if self._packed is None:
            self._model.to(dtype)

    @property
    def dimension(self) -> int:
        """Width ``d`` of a pair's vector."""
        width: int = self._model.config.hidden_size
        return width

    @property
    def hash(self) -> str:
        """Hash of the checkpoint; it does not depend on the directory."""
        return self.checkpoint.hash

    @torch.inference_mode()
    def encode_pairs(
        self, first: Sequence[str], second: Sequence[str], pairs: NDArray[np.integer[Any]]
    ) -> PairFeatures:
        """Vectors and probabilities of pairs of texts.

        Every text is tokenized once, however many pairs it is in. A pair's result does not depend on the other pairs:
        bit for bit for BERT-like checkpoints on the CPU, else up to rounding.

        Args:
            first: The first texts of pairs: queries.
            second: The second texts: passages.
            pairs: ``(pairs, 2)`` rows of ``first`` and of ``second``.

        Raises:
            GnnRetrievalError: A row is out of range, or the weights are damaged.
        """
        pairs = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
        if len(pairs) and (pairs.min() < 0 or (pairs.max(axis=0) >= (len(first), len(second))).any()):
            raise GnnRetrievalError(f"a pair's rows are outside of {len(first)} first and {len(second)} second texts.")
        vectors = np.empty((len(pairs), self.dimension), dtype=np.float32)
        probabilities = np.empty(len(pairs), dtype=np.float32)
        texts = self._tokens.split(first, second)
        lengths = texts.lengths(pairs)
        batches = batches_by_tokens(lengths, self.settings.token_budget, padded=self._packed is None)

        def encode_batch(batch: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
            joined = [texts.join(*pair) for pair in pairs[batch].tolist()]
            ids, types = [pair.ids for pair in joined], [pair.types for pair in joined] if self._typed else None
            return (self._packed or self._forward)(ids, types)

        encoded = map_batches(encode_batch, batches) if self._packed is not None else map(encode_batch, batches)
        for batch, (states, logits) in zip(batches, encoded, strict=True):
            vectors[batch] = states.float().cpu().numpy()
            scores = logits.double().cpu().numpy()
            margin = scores[:, 0] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]
            if not np.isfinite(margin).all():
                raise InputError("its scores are not finite: the weights are damaged.", self.checkpoint.directory)
            probabilities[batch] = 0.5 + 0.5 * np.tanh(margin / 2)  # sigmoid, without overflow
        return PairFeatures(vectors, probabilities)

    def _forward(self, ids: Tokens, types: Tokens | None) -> tuple[Tensor, Tensor]:
        """``[CLS]`` vectors and logits of token sequences, padded to the longest."""
        tokens = {"input_ids": [row.tolist() for row in ids]}
        if types is not None:
            tokens["token_type_ids"] = [row.tolist() for row in types]
        states: list[Tensor] = []
        hook = self._model.base_model.register_forward_hook(
            lambda module, inputs, output: states.append(output[0][:, 0])
        )
        try:
            logits = self._model(**self._pad(tokens, return_tensors="pt").to(self.device)).logits
        finally:
            hook.remove()
        return states[0], logits


class _PackedClassifier:
    """A BERT-like sequence classifier: the encoder without padding, the head in float32."""

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        self.encoder = PackedPass(model.base_model, dtype, first_only=True)
        model.base_model.encoder.to(dtype)  # the packed pass has its own copy: this one only takes memory
        model.base_model.embeddings.to(dtype)
        pooler: nn.Module | None = getattr(model.base_model, "pooler", None)  # RoBERTa's classifier includes it
        self.head = [part for part in (pooler, model.classifier) if part is not None]

    @torch.inference_mode()
    def __call__(self, ids: Tokens, types: Tokens | None) -> tuple[Tensor, Tensor]:
        """``[CLS]`` vectors ``(pairs, d)`` and logits ``(pairs, labels)`` of token sequences, longest first."""
        states = torch.cat(self.encoder(ids, types)).float()  # (pairs, 1, d)
        return states[:, 0], by_equal_blocks(self._logits, states[:, 0])

    def _logits(self, rows: Tensor) -> Tensor:
        states = rows.unsqueeze(1)  # the head takes the first token's
        for part in self.head:
            states = part(states)
        return states
