"""``M_de``: the dual-encoder, any Hugging Face or sentence-transformers checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from gnnretrieval.encoders.checkpoint import Checkpoint, find_checkpoint
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import InputError

Side = Literal["query", "passage"]


def computes_in_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 products are native on ``device``; emulated ones are slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return False


class DualEncoder:
    """Encodes queries with ``E_Q`` and passages with ``E_P``.

    Args:
        settings: Checkpoint and precision.
        device: Where the weights go.

    Raises:
        InputError: the checkpoint cannot be loaded.
    """

    def __init__(self, settings: EncoderSettings, device: str | torch.device = "cpu") -> None:
        self.settings = settings
        self.device = torch.device(device)
        native = computes_in_bfloat16(self.device)
        reduced = settings.precision == "bfloat16" or (settings.precision == "auto" and native)
        self.dtype = torch.bfloat16 if reduced else torch.float32
        self.passage_checkpoint = find_checkpoint(settings.checkpoint)
        self.query_checkpoint = (
            find_checkpoint(settings.query_checkpoint) if settings.query_checkpoint else self.passage_checkpoint
        )
        self._passage_model = self._load(self.passage_checkpoint)
        shared = self.query_checkpoint == self.passage_checkpoint
        self._query_model = self._passage_model if shared else self._load(self.query_checkpoint)
        self.similarity = self._similarity()
        widths = [self._width(model) for model in (self._query_model, self._passage_model)]
        if widths[0] != widths[1]:
            raise InputError(
                f"vectors of {widths[0]} dimensions, and {settings.checkpoint}'s have {widths[1]}: "
                "give two encoders of one width.",
                self.query_checkpoint.directory,
            )

    def _load(self, checkpoint: Checkpoint) -> Any:
        logging.getLogger("sentence_transformers").setLevel(logging.ERROR)  # "creating a new one with mean pooling"
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging as transformers_logging

        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        try:
            model = SentenceTransformer(
                str(checkpoint.directory),
                device=str(self.device),
                local_files_only=True,
                model_kwargs={"dtype": self.dtype, "use_safetensors": True},
            )
        except Exception as error:  # whatever the libraries raise over a damaged checkpoint
            reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
            raise InputError(
                f"this checkpoint cannot be loaded: {reason}. Save or download it again.", checkpoint.directory
            ) from error
        for module in list(model)[1:]:  # after the transformer: in float32
            module.float()
        positions = getattr(getattr(model[0], "auto_model", None), "config", None)
        most = getattr(positions, "max_position_embeddings", None)
        if self.settings.max_tokens is not None and most is not None and self.settings.max_tokens > most:
            raise InputError(
                f"this checkpoint has positions for {most} tokens, and max_tokens is {self.settings.max_tokens}.",
                checkpoint.directory,
            )
        if self.settings.max_tokens is not None:
            model.max_seq_length = self.settings.max_tokens
        return model.eval()

    def _similarity(self) -> Similarity:
        kind: str = self.settings.similarity
        if kind == "auto":
            kind = "dot" if self._passage_model.similarity_fn_name == "dot" else "cosine"
        scale = self.settings.scale if self.settings.scale is not None else 20.0 if kind == "cosine" else 1.0
        return Similarity(normalize=kind == "cosine", scale=scale)

    @property
    def dimension(self) -> int:
        """Width ``d`` of a vector."""
        return self._width(self._passage_model)

    def _width(self, model: Any) -> int:
        """Width of a model's vectors; some do not know it before they have made one."""
        newer, older = "get_embedding_dimension", "get_sentence_embedding_dimension"
        width: int | None = getattr(model, newer if hasattr(model, newer) else older)()
        if width is None:
            tokens = model.tokenizer(["a"])
            width = self._forward(model, dict(tokens)).shape[1]
        return width

    def _prompt(self, model: Any, side: Side) -> str:
        given = self.settings.query_prompt if side == "query" else self.settings.passage_prompt
        if given is not None:
            return given
        prompts: dict[str, str] = model.prompts or {}
        names = ("query",) if side == "query" else ("passage", "document", "corpus")
        return next((prompts[name] for name in names if prompts.get(name)), "")

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        """Vectors ``(len(texts), d)`` float32, of length 1 where the similarity is cosine.

        Texts are batched by token count, so that little padding is computed; a vector does not depend on its batch
        beyond rounding.
        """
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        model = self._query_model if side == "query" else self._passage_model
        prompt = self._prompt(model, side)
        if not hasattr(model.tokenizer, "pad"):  # static embeddings: no transformer, so nothing to batch by length
            rows = model.encode([prompt + text for text in texts], show_progress_bar=False, convert_to_tensor=True)
            return self.similarity.prepare(rows).cpu().numpy()
        tokens = model.tokenizer([prompt + text for text in texts], truncation=True, max_length=model.max_seq_length)
        lengths = np.array([len(ids) for ids in tokens["input_ids"]], dtype=np.int64)
        vectors: NDArray[np.float32] | None = None
        for batch in batches_by_tokens(lengths, self.settings.token_budget):
            rows = self._forward(model, {name: [values[i] for i in batch] for name, values in tokens.items()})
            if vectors is None:
                vectors = np.empty((len(texts), rows.shape[1]), dtype=np.float32)
            vectors[batch] = rows.cpu().numpy()
        return vectors if vectors is not None else np.empty((0, self.dimension), dtype=np.float32)

    def _forward(self, model: Any, tokens: dict[str, list[list[int]]]) -> Tensor:
        features: dict[str, Any] = dict(model.tokenizer.pad(tokens, return_tensors="pt").to(self.device))
        for module in model:
            features = module(features)
            if "token_embeddings" in features:  # pooling sums in float32
                features["token_embeddings"] = features["token_embeddings"].float()
        vectors: Tensor = features["sentence_embedding"].float()
        return F.normalize(vectors, dim=-1) if self.similarity.normalize else vectors


def batches_by_tokens(lengths: NDArray[np.int64], budget: int) -> list[NDArray[np.int64]]:
    """Row numbers in batches of similar length, longest first, each at most ``budget`` tokens once padded.

    A single text longer than the budget is a batch by itself.
    """
    order = np.argsort(-lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        count = max(1, budget // max(1, int(lengths[order[start]])))
        batches.append(order[start : start + count])
        start += count
    return batches
