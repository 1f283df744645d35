"""One vector per sentence, contextual because the whole passage is read at once (DCSR, 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.data.sentence_split import Span
from gnnretrieval.encoders.batching import batches_by_tokens
from gnnretrieval.encoders.checkpoint import Checkpoint
from gnnretrieval.encoders.packed_linear import by_equal_blocks
from gnnretrieval.encoders.packed_pass import PackedPass
from gnnretrieval.encoders.parallel_batches import map_batches
from gnnretrieval.encoders.sentence_tokens import SENT, SentenceTokenizer, SentenceTokens
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import InputError


class SentenceVectors(NamedTuple):
    """Vectors of the sentences of some passages.

    Attributes:
        vectors: ``(S, d)`` float32 vectors of all sentences in order, prepared by the similarity.
        counts: ``(passages,)`` number of sentences of each passage, at least 1.
        spans: Start and end of the sentences' characters in each passage.
        cut: Number of sentences entirely beyond the limit of tokens.
    """

    vectors: NDArray[np.float32]
    counts: NDArray[np.int64]
    spans: list[list[Span]]
    cut: int

    def means(self, similarity: Similarity) -> NDArray[np.float32]:
        """Vectors of the passages ``(passages, d)`` float32: the mean of each one's sentences, prepared again."""
        ends = np.cumsum(self.counts)
        rows = [
            self.vectors[end - count : end].mean(0, dtype=np.float64)
            for end, count in zip(ends, self.counts, strict=True)
        ]
        return by_equal_blocks(similarity.prepare, torch.from_numpy(np.array(rows, dtype=np.float32))).numpy()


class SentenceEncoder:
    """Encodes passages to one vector per sentence.

    Args:
        model: A sentence-transformers model: a transformer, its pooling, and further modules.
        packed: Pass without padding that replaces the transformer; None: the transformer itself.
        at: ``token``: a sentence's vector is the state at its ``<sent>``; ``mean``: the mean over its tokens.
        similarity: Prepares the vectors.
        prompt: Put before every passage.
        checkpoint: Checkpoint of the model, named in errors.

    Raises:
        InputError: ``at`` is ``token`` and the vocabulary has no ``<sent>``, or the model does not pool the states of
            a transformer to one vector of their width.
    """

    def __init__(
        self,
        model: Any,
        packed: PackedPass | None,
        at: Literal["token", "mean"],
        similarity: Similarity,
        prompt: str,
        checkpoint: Checkpoint,
    ) -> None:
        from sentence_transformers.sentence_transformer.modules import Pooling

        modules = list(model)
        if not hasattr(model.tokenizer, "pad") or len(modules) < 2 or type(modules[1]) is not Pooling:
            raise InputError(
                "this checkpoint does not pool tokens' states, and no sentence of it has a vector: leave sentences at "
                "none.",
                checkpoint.directory,
            )
        if modules[1].pooling_output_dimension != modules[1].embedding_dimension:
            raise InputError(
                "this checkpoint joins several poolings, which a sentence has not: leave sentences at none.",
                checkpoint.directory,
            )
        self.model, self.packed, self.at, self.similarity = model, packed, at, similarity
        self.after: list[Any] = modules[2:]
        self.tokenizer = SentenceTokenizer(model.tokenizer, model.max_seq_length, prompt)
        if at == "token" and self.tokenizer.marker is None:
            raise InputError(
                f"this checkpoint's vocabulary has no {SENT}, at which sentences = token reads them: train one that "
                "has, or give sentences = mean.",
                checkpoint.directory,
            )

    @torch.inference_mode()
    def encode(
        self, texts: Sequence[str], token_budget: int, spans: Sequence[list[Span]] | None = None
    ) -> SentenceVectors:
        """Vectors of the sentences of some passages.

        They do not depend on the other passages: bit for bit with a packed pass, else up to rounding.

        Args:
            texts: Full texts of the passages.
            token_budget: Maximum number of tokens in a batch.
            spans: Start and end of the sentences' characters in each text; None: the texts are split.
        """
        tokens = self.tokenizer.tokens(texts, spans)
        counts = np.array([len(passage.starts) for passage in tokens], dtype=np.int64)
        lengths = np.array([len(passage.ids) for passage in tokens], dtype=np.int64)
        batches = batches_by_tokens(lengths, token_budget, padded=self.packed is None)

        def encode_batch(batch: NDArray[np.int64]) -> Tensor:
            passages = [tokens[row] for row in batch]
            states = self._states(passages) if self.packed is None else self._packed_states(self.packed, passages)
            pooled = torch.cat([self._pool(*each) for each in zip(states, passages, strict=True)])
            return by_equal_blocks(self._finish, pooled)

        parts: list[Tensor] = [torch.empty(0)] * len(texts)  # vectors of each passage
        made = map_batches(encode_batch, batches) if self.packed is not None else map(encode_batch, batches)
        for batch, rows in zip(batches, made, strict=True):
            for row, part in zip(batch, rows.split(counts[batch].tolist()), strict=True):  # type: ignore[no-untyped-call]
                parts[row] = part
        return SentenceVectors(
            torch.cat(parts).cpu().numpy(),
            counts,
            [passage.spans for passage in tokens],
            sum(passage.cut for passage in tokens),
        )

    def _states(self, passages: Sequence[SentenceTokens]) -> list[Tensor]:
        """Last hidden states ``(t, d)`` of each passage's tokens, from one padded batch."""
        ids = {"input_ids": [passage.ids.tolist() for passage in passages]}
        padded = self.model.tokenizer.pad(ids, return_tensors="pt", padding_side="right").to(self.model.device)
        states = self.model[0](dict(padded))["token_embeddings"]  # (passages, longest, d)
        return [of_one[: len(passage.ids)] for of_one, passage in zip(states, passages, strict=True)]

    def _packed_states(self, packed: PackedPass, passages: Sequence[SentenceTokens]) -> list[Tensor]:
        return [of_one for run in packed([passage.ids for passage in passages]) for of_one in run]

    def _pool(self, states: Tensor, passage: SentenceTokens) -> Tensor:
        """Vectors ``(s, d)`` of one passage's sentences, pooled in float32 from states ``(t, d)`` (law 4)."""
        if self.at == "token":
            return states[torch.from_numpy(passage.starts).to(states.device)].float()
        spans = zip(passage.starts.tolist(), passage.ends.tolist(), strict=True)
        return torch.stack([states[start:end].float().mean(0) for start, end in spans])

    def _finish(self, rows: Tensor) -> Tensor:
        """Apply the modules after pooling to sentences as to whole texts, then the similarity's preparation."""
        features: dict[str, Any] = {"sentence_embedding": rows}
        for module in self.after:
            features = module(features)
        return self.similarity.prepare(features["sentence_embedding"])
