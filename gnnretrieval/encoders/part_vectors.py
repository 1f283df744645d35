"""Vectors of parts of a text, contextual because the whole text is read at once: of sentences (DCSR) or of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.encoders.batching import batches_by_tokens
from gnnretrieval.encoders.checkpoint import Checkpoint
from gnnretrieval.encoders.packed_linear import by_equal_blocks
from gnnretrieval.encoders.packed_pass import PackedPass
from gnnretrieval.encoders.parallel_batches import map_batches
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import InputError


class PartTokens(Protocol):
    """A text's tokens; those of part ``i`` are ``ids[starts[i]:ends[i]]``."""

    @property
    def ids(self) -> NDArray[np.int64]:
        """Token ids ``(t,)``, special ones included."""

    @property
    def starts(self) -> NDArray[np.int64]:
        """First token of each part ``(s,)``."""

    @property
    def ends(self) -> NDArray[np.int64]:
        """One past the last token of each part ``(s,)``."""


Tokens = TypeVar("Tokens", bound=PartTokens)


def part_means(vectors: NDArray[np.float32], counts: NDArray[np.int64], similarity: Similarity) -> NDArray[np.float32]:
    """Vectors of texts ``(texts, d)`` float32: the mean of the vectors of each one's parts, prepared again.

    Args:
        vectors: Vectors of all parts ``(S, d)``.
        counts: Number of parts of each text ``(texts,)``, at least 1.
        similarity: Prepares the means.
    """
    ends = np.cumsum(counts)
    rows = [vectors[end - count : end].mean(0, dtype=np.float64) for end, count in zip(ends, counts, strict=True)]
    return by_equal_blocks(similarity.prepare, torch.from_numpy(np.array(rows, dtype=np.float32))).numpy()


class PartEncoder:
    """Encodes texts to one vector per part.

    Args:
        model: A sentence-transformers model: a transformer, its pooling, and further modules.
        packed: Pass without padding that replaces the transformer; None: the transformer itself.
        at: ``token``: a part's vector is the state at its first token; ``mean``: the mean over its tokens.
        similarity: Prepares the vectors.
        checkpoint: Checkpoint of the model, named in errors.

    Raises:
        InputError: The model does not pool the states of a transformer to one vector of their width.
    """

    def __init__(
        self,
        model: Any,
        packed: PackedPass | None,
        at: Literal["token", "mean"],
        similarity: Similarity,
        checkpoint: Checkpoint,
    ) -> None:
        from sentence_transformers.sentence_transformer.modules import Pooling

        modules = list(model)
        if not hasattr(model.tokenizer, "pad") or len(modules) < 2 or type(modules[1]) is not Pooling:
            raise InputError(
                "this checkpoint does not pool tokens' states, and no part of a text has a vector: encode whole texts.",
                checkpoint.directory,
            )
        if modules[1].pooling_output_dimension != modules[1].embedding_dimension:
            raise InputError(
                "this checkpoint joins several poolings, which a part of a text lacks: encode whole texts.",
                checkpoint.directory,
            )
        self.model, self.packed, self.at, self.similarity = model, packed, at, similarity
        self.after: list[Any] = modules[2:]

    @torch.inference_mode()
    def vectors(self, tokens: Sequence[PartTokens], token_budget: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Vectors of the parts of some texts ``(S, d)``, in order, and the number of parts of each text.

        They do not depend on the other texts: bit for bit with a packed pass, else up to rounding.

        Args:
            tokens: Tokens and parts of each text.
            token_budget: Maximum number of tokens in a batch.
        """
        counts = np.array([len(text.starts) for text in tokens], dtype=np.int64)
        lengths = np.array([len(text.ids) for text in tokens], dtype=np.int64)
        batches = batches_by_tokens(lengths, token_budget, padded=self.packed is None)

        def encode_batch(batch: NDArray[np.int64]) -> Tensor:
            texts = [tokens[row] for row in batch]
            states = self._states(texts) if self.packed is None else self._packed_states(self.packed, texts)
            pooled = torch.cat([self._pool(*each) for each in zip(states, texts, strict=True)])
            return by_equal_blocks(self._finish, pooled)

        parts: list[Tensor] = [torch.empty(0)] * len(tokens)  # vectors of each text
        encoded = map_batches(encode_batch, batches) if self.packed is not None else map(encode_batch, batches)
        for batch, rows in zip(batches, encoded, strict=True):
            for row, part in zip(batch, rows.split(counts[batch].tolist()), strict=True):  # type: ignore[no-untyped-call]
                parts[row] = part
        return torch.cat(parts).cpu().numpy(), counts

    def _states(self, texts: Sequence[PartTokens]) -> list[Tensor]:
        """Last hidden states ``(t, d)`` of each text's tokens, from one padded batch."""
        ids = {"input_ids": [text.ids.tolist() for text in texts]}
        padded = self.model.tokenizer.pad(ids, return_tensors="pt", padding_side="right").to(self.model.device)
        states = self.model[0](dict(padded))["token_embeddings"]  # (texts, longest, d)
        return [rows[: len(text.ids)] for rows, text in zip(states, texts, strict=True)]

    def _packed_states(self, packed: PackedPass, texts: Sequence[PartTokens]) -> list[Tensor]:
        return [states for run in packed([text.ids for text in texts]) for states in run]

    def _pool(self, states: Tensor, text: PartTokens) -> Tensor:
        """Vectors ``(s, d)`` of one text's parts, pooled in float32 from states ``(t, d)`` (law 4)."""
        if self.at == "token":
            return states[torch.from_numpy(text.starts).to(states.device)].float()
        spans = zip(text.starts.tolist(), text.ends.tolist(), strict=True)
        return torch.stack([states[start:end].float().mean(0) for start, end in spans])

    def _finish(self, rows: Tensor) -> Tensor:
        """Apply the modules after pooling to parts as to whole texts, then the similarity's preparation."""
        features: dict[str, Any] = {"sentence_embedding": rows}
        for module in self.after:
            features = module(features)
        return self.similarity.prepare(features["sentence_embedding"])
