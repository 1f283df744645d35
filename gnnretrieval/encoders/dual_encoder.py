"""``M_de``: the dual-encoder, any Hugging Face or sentence-transformers checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.encoders.batching import batches_by_tokens
from gnnretrieval.encoders.checkpoint import Checkpoint, find_checkpoint
from gnnretrieval.encoders.late_tokens import QUERY_TOKENS
from gnnretrieval.encoders.late_vectors import LateEncoder, TokenVectors
from gnnretrieval.encoders.loading import (
    check_max_tokens,
    check_one_vocabulary,
    check_room,
    declared_width,
    load_sentence_transformer,
    positions_of,
    weights_dtype,
)
from gnnretrieval.encoders.packed_linear import by_equal_blocks
from gnnretrieval.encoders.packed_pass import PackedPass, can_pack
from gnnretrieval.encoders.parallel_batches import map_batches
from gnnretrieval.encoders.prompts import Side, own_prompt
from gnnretrieval.encoders.sentence_vectors import SentenceEncoder, SentenceVectors
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.similarity import similarity_of
from gnnretrieval.encoders.trained import trained_settings
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.platform.devices import as_device


class DualEncoder:
    """Encodes queries with ``E_Q`` and passages with ``E_P``.

    Args:
        settings: Checkpoints, prompts, limits and precision.
        device: Device of the weights.

    Raises:
        InputError: A checkpoint cannot be loaded or does not fit the settings, or the vectors of ``E_Q`` and ``E_P``
            differ in width.
        GnnRetrievalError: A checkpoint is not found.
    """

    def __init__(self, settings: EncoderSettings, device: str | torch.device = "cpu") -> None:
        self.settings = settings = trained_settings(settings)
        if settings.sparse:
            raise GnnRetrievalError(
                f"{settings.checkpoint}: this encoder makes weights of terms (SPLADE), and a vector per text is needed "
                "here. It ranks by itself: gnnretrieval encoder encode, then search --sparse."
            )
        self.device = as_device(device)
        self.dtype = weights_dtype(settings.precision, self.device)
        self.passage_checkpoint = find_checkpoint(settings.checkpoint)
        self.query_checkpoint = (
            find_checkpoint(settings.query_checkpoint) if settings.query_checkpoint else self.passage_checkpoint
        )
        self._passage_model = self._load(self.passage_checkpoint)
        self._passage_pass = _in_precision(self._passage_model, self.dtype)
        self._query_model, self._query_pass = self._passage_model, self._passage_pass
        if self.query_checkpoint != self.passage_checkpoint:
            self._query_model = self._load(self.query_checkpoint)
            self._query_pass = _in_precision(self._query_model, self.dtype)
        self.similarity = similarity_of(settings, says_dot=self._passage_model.similarity_fn_name == "dot")
        widths = [self._width(model) for model in (self._query_model, self._passage_model)]
        if widths[0] != widths[1]:
            raise InputError(
                f"vectors of {widths[0]} dimensions, and {settings.checkpoint}'s have {widths[1]}: "
                "give two encoders of one width.",
                self.query_checkpoint.directory,
            )
        self.sentences: SentenceEncoder | None = None
        if settings.sentences != "none":
            model, prompt = self._passage_model, self._prompt(self._passage_model, "passage")
            self.sentences = SentenceEncoder(
                model, self._passage_pass, settings.sentences, self.similarity, prompt, self.passage_checkpoint
            )
        self.late: dict[Side, LateEncoder] = {}
        if settings.late_interaction is not None:
            self.late = {side: self._late(side) for side in ("query", "passage")}
            if settings.token_match == "same":
                tokenizers = {side: self._of_side(side)[0].tokenizer for side in self.late}
                check_one_vocabulary(tokenizers, self.query_checkpoint, settings.checkpoint)

    def _load(self, checkpoint: Checkpoint) -> Any:
        model = load_sentence_transformer(checkpoint, self.device)
        positions = positions_of(getattr(getattr(model[0], "auto_model", None), "config", None))
        check_max_tokens(self.settings.max_tokens, positions, checkpoint)
        check_max_tokens(self.settings.query_max_tokens, positions, checkpoint, "query_max_tokens")
        markers = int(self.settings.late_interaction is not None)
        check_room(self.settings.max_tokens, model.tokenizer, checkpoint, markers=markers)
        check_room(self.settings.query_max_tokens, model.tokenizer, checkpoint, "query_max_tokens", markers)
        if self.settings.max_tokens is not None:
            model.max_seq_length = self.settings.max_tokens
        return model.eval()

    def _late(self, side: Side) -> LateEncoder:
        is_query, settings = side == "query", self.settings
        model, packed = self._of_side(side)
        checkpoint = self.query_checkpoint if is_query else self.passage_checkpoint
        if self.dimension != settings.late_interaction:
            raise InputError(
                f"its vectors have {self.dimension} dimensions, and late_interaction is {settings.late_interaction}: "
                "train an encoder of this width by encoder train colbert, or leave late_interaction out.",
                checkpoint.directory,
            )
        max_tokens = (settings.query_max_tokens or QUERY_TOKENS) if is_query else int(model.max_seq_length)
        prompt = self._prompt(model, side)
        how = settings.token_match, settings.passage_vectors
        return LateEncoder(model, packed, self.similarity, checkpoint, side, max_tokens, prompt, *how)

    def _of_side(self, side: Side) -> tuple[Any, PackedPass | None]:
        """The model of queries or of passages, and its pass without padding."""
        return (self._query_model, self._query_pass) if side == "query" else (self._passage_model, self._passage_pass)

    @property
    def dimension(self) -> int:
        """Width ``d`` of a vector."""
        return self._width(self._passage_model)

    @property
    def fingerprint(self) -> dict[str, str]:
        """Hash of the weights, configuration and tokenizer by side, ``query`` and ``passage``."""
        return {"query": self.query_checkpoint.hash, "passage": self.passage_checkpoint.hash}

    @property
    def source(self) -> str:
        """Where the passage encoder's weights were found, in words."""
        return self.passage_checkpoint.source

    def _width(self, model: Any) -> int:
        """Width of a model's vectors; a model that does not declare it encodes a text first."""
        width = declared_width(model)
        return self._forward(model, dict(model.tokenizer(["a"]))).shape[1] if width is None else width

    def _prompt(self, model: Any, side: Side) -> str:
        given = self.settings.query_prompt if side == "query" else self.settings.passage_prompt
        return own_prompt(model.prompts, side) if given is None else given

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        """Vectors ``(len(texts), d)`` float32, of length 1 if the similarity is cosine.

        A text's vector does not depend on the other texts: bit for bit for BERT-like checkpoints on the CPU (see
        :mod:`gnnretrieval.encoders.packed_pass`), else up to rounding, because batches are padded. A passage that
        is read by sentences has the mean of their vectors; with late interaction, a text has the mean of its tokens'.
        """
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        if self.late:
            return self.encode_tokens(texts, side).means(self.similarity)
        if side == "passage" and self.sentences is not None:
            return self.encode_sentences(texts).means(self.similarity)
        model, packed = self._of_side(side)
        prompt = self._prompt(model, side)
        if not hasattr(model.tokenizer, "pad"):  # static embeddings: no transformer, so nothing to batch by length
            rows = model.encode([prompt + text for text in texts], show_progress_bar=False, convert_to_tensor=True)
            return self.similarity.prepare(rows).cpu().numpy()
        max_tokens = self.settings.query_max_tokens if side == "query" else None
        max_tokens = model.max_seq_length if max_tokens is None else max_tokens
        tokens = model.tokenizer([prompt + text for text in texts], truncation=True, max_length=max_tokens)
        lengths = np.array([len(ids) for ids in tokens["input_ids"]], dtype=np.int64)
        batches = batches_by_tokens(lengths, self.settings.token_budget, padded=packed is None)

        def encode_batch(batch: NDArray[np.int64]) -> Tensor:
            if packed is not None:
                return self._forward_packed(model, packed, [np.array(tokens["input_ids"][row]) for row in batch])
            return self._forward(model, {name: [values[row] for row in batch] for name, values in tokens.items()})

        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        encoded = map_batches(encode_batch, batches) if packed is not None else map(encode_batch, batches)
        for batch, rows in zip(batches, encoded, strict=True):
            vectors[batch] = rows.cpu().numpy()
        return vectors

    def encode_sentences(self, texts: Sequence[str]) -> SentenceVectors:
        """Vectors of the passages' sentences, prepared by the similarity, with their number in each passage.

        Raises:
            GnnRetrievalError: The settings have ``sentences = none``.
        """
        if self.sentences is None:
            raise GnnRetrievalError("passages are read whole: give sentences = token or mean.")
        if not texts:
            return SentenceVectors(np.empty((0, self.dimension), dtype=np.float32), np.empty(0, dtype=np.int64), [], 0)
        return self.sentences.encode(texts, self.settings.token_budget)

    def encode_tokens(self, texts: Sequence[str], side: Side) -> TokenVectors:
        """Vectors of the tokens of some texts, for late interaction; all questions have the same number.

        Raises:
            GnnRetrievalError: The encoder has one vector per text.
        """
        if not self.late:
            raise GnnRetrievalError(
                f"{self.settings.checkpoint}: this encoder has one vector per text. Late interaction needs one per "
                "token: train it by encoder train colbert."
            )
        if not texts:
            none = np.empty(0, dtype=np.int64)
            return TokenVectors(np.empty((0, self.dimension), dtype=np.float32), none, none)
        return self.late[side].encode(texts, self.settings.token_budget)

    def _forward(self, model: Any, tokens: dict[str, list[list[int]]]) -> Tensor:
        features: dict[str, Any] = dict(model.tokenizer.pad(tokens, return_tensors="pt").to(self.device))
        for module in model:
            features = module(features)
            if "token_embeddings" in features:  # so that pooling sums in float32
                features["token_embeddings"] = features["token_embeddings"].float()
        return self.similarity.prepare(features["sentence_embedding"])

    @torch.inference_mode()
    def _forward_packed(self, model: Any, packed: PackedPass, ids: list[NDArray[np.int64]]) -> Tensor:
        """Vectors ``(len(ids), d)`` of token sequences, longest first."""
        _, pooling, *others = model
        pooled = []
        for states in packed(ids):
            mask = torch.ones(states.shape[:2], dtype=torch.long)
            features = pooling({"token_embeddings": states.float(), "attention_mask": mask})
            pooled.append(features["sentence_embedding"])

        def finish(rows: Tensor) -> Tensor:
            features = {"sentence_embedding": rows}
            for module in others:
                features = module(features)
            return self.similarity.prepare(features["sentence_embedding"])

        return by_equal_blocks(finish, torch.cat(pooled))


def _in_precision(model: Any, dtype: torch.dtype) -> PackedPass | None:
    """Convert the transformer of a sentence-transformers model to ``dtype`` and its other modules to float32.

    Returns:
        The pass without padding, if the model pools the last hidden states of a BERT-like encoder on the CPU; else
        None. It is made from the float32 weights.
    """
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    first, *others = model
    pools = type(first) is Transformer and len(others) > 0 and type(others[0]) is Pooling
    packed = None
    if pools and all(type(module) in {Dense, Normalize} for module in others[1:]):
        plain = first.modality_config.get("text") == {"method": "forward", "method_output_name": "last_hidden_state"}
        packed = PackedPass(first.auto_model, dtype) if plain and can_pack(first.auto_model) else None
    for module in model:
        module.float()
    for module in model.modules():
        if isinstance(module, Transformer):
            module.to(dtype)
    return packed
