"""Trainable encoders for the training loop: from tokens to float32 vectors."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gnnretrieval.encoders.batching import batches_by_tokens
from gnnretrieval.encoders.checkpoint import Checkpoint
from gnnretrieval.encoders.late_tokens import MARKERS, LateTokenizer, TokenMatch
from gnnretrieval.encoders.loading import check_max_tokens, check_vocabulary, load_sentence_transformer, positions_of
from gnnretrieval.encoders.prompts import Side, own_prompt
from gnnretrieval.encoders.sentence_tokens import SENT
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import InputError


class Item(NamedTuple):
    """A text or pair of texts for a tower.

    Attributes:
        tower: Name of the tower.
        ids: Token ids, with special tokens.
        types: Token types; empty: all 0.
        spans: Token spans of sentences, or of single tokens, one row each; empty: the whole text is one row.
    """

    tower: str
    ids: tuple[int, ...]
    types: tuple[int, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows of the item."""
        return len(self.spans) or 1


def item_batches(items: Sequence[Item], token_budget: int) -> list[NDArray[np.int64]]:
    """Positions of the items that are encoded together: of similar lengths, and of few enough tokens with padding."""
    return batches_by_tokens(np.array([len(item.ids) for item in items], dtype=np.int64), token_budget)


class Trained(Protocol):
    """Parameters that the loop trains."""

    module: nn.Module

    @property
    def rounded(self) -> nn.Module:
        """The part that computes in the lower precision."""

    def trained(self) -> list[nn.Parameter]:
        """The parameters that the loss depends on."""


class Tower(Trained, Protocol):
    """An encoder that the loop trains."""

    width: int

    def rows(self, items: Sequence[Item]) -> Tensor:
        """Float32 rows ``(Σ item.rows, width)`` of some items, in order, with gradient."""

    def save(self, directory: Path) -> None:
        """Write the weights as a standard checkpoint."""


class TextTower:
    """A sentence-transformers model with one vector per text, per sentence, or per token.

    Args:
        checkpoint: Any Hugging Face or sentence-transformers checkpoint to start from.
        similarity: Normalises the vectors if it is cosine.
        device: Where to compute.
        pooling: ``cls``, ``mean`` or ``auto``: the checkpoint's own.
        max_tokens: Maximum length of a text; None: the checkpoint's own.
        dropout: Dropout in training; None: the checkpoint's own.
        sentences: Vectors of sentences, as in :class:`gnnretrieval.encoders.settings.EncoderSettings`.
        late_interaction: Width of the vectors of tokens; None: one vector per text. A checkpoint without a projection
            to this width gets a random one.
        token_match: As in :class:`gnnretrieval.encoders.settings.EncoderSettings`.
        passage_vectors: As there.
        side: ``query`` or ``passage``: which of the checkpoint's prompts to use.
        prompt: Text put before every text; None: the checkpoint's prompt for ``side``, if it has one.
        own_lengths: Whether vectors that are compared by the dot product keep the length 1 that a checkpoint's last
            layer gives them, as encoding does; false: lengths are free to learn.

    Raises:
        InputError: The checkpoint cannot be loaded or trained, its tokenizer does not fit its weights, or ``pooling``
            or ``sentences`` do not fit its layers.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        similarity: Similarity,
        device: torch.device,
        *,
        pooling: str = "auto",
        max_tokens: int | None = None,
        dropout: float | None = None,
        sentences: str = "none",
        late_interaction: int | None = None,
        token_match: TokenMatch = "all",
        passage_vectors: int | None = None,
        side: Side = "passage",
        prompt: str | None = None,
        own_lengths: bool = False,
    ) -> None:
        self.sentences, self.token_match = sentences, token_match
        module = load_sentence_transformer(checkpoint, device, **attention_on(device))
        transformer = self.begin(module, checkpoint, similarity, side, prompt, max_tokens, dropout)
        if sentences == "token" and self.tokenizer.convert_tokens_to_ids(SENT) in (None, self.tokenizer.unk_token_id):
            _add_tokens(transformer, self.tokenizer, [SENT])
        if late_interaction is not None and not {*MARKERS.values()} <= self.tokenizer.get_vocab().keys():
            _add_tokens(transformer, self.tokenizer, [*MARKERS.values()])
        self._late: LateTokenizer | None = None
        if late_interaction is not None:
            self._late = LateTokenizer(self.tokenizer, token_match, passage_vectors)
        self._pooling(pooling, late_interaction, checkpoint, own_lengths)
        limit = self.module.max_seq_length
        self.max_tokens: int = limit if limit is not None else self.tokenizer.model_max_length
        self.width: int = transformer.config.hidden_size
        if sentences != "none" or len(self.module) > 1:
            self.width = self.measured_width()

    def begin(
        self,
        module: Any,
        checkpoint: Checkpoint,
        similarity: Similarity,
        side: Side,
        prompt: str | None,
        max_tokens: int | None,
        dropout: float | None,
    ) -> Any:
        """Take over a loaded model, check it, and return its transformer; arguments as for the class."""
        self.module, self.similarity, self.side = module, similarity, side
        self._own_prompts: dict[Side, str] = {name: own_prompt(module.prompts, name) for name in ("query", "passage")}
        self.prompt = self._own_prompts[side] if prompt is None else prompt
        transformer = getattr(module[0], "auto_model", None)
        if transformer is None or not hasattr(module.tokenizer, "pad"):
            raise InputError("this checkpoint is not a transformer: it cannot be trained here.", checkpoint.directory)
        check_max_tokens(max_tokens, positions_of(transformer.config), checkpoint)
        if max_tokens is not None:
            module.max_seq_length = max_tokens
        check_vocabulary(len(self.tokenizer), transformer.get_input_embeddings().num_embeddings, checkpoint)
        set_dropout(module, dropout)
        return transformer

    def measured_width(self) -> int:
        """Width of a row, from a text."""
        with torch.no_grad():
            return int(self.rows([Item("", tuple(self.tokens(["a"])[0]))]).shape[1])

    @property
    def tokenizer(self) -> Any:
        """Tokenizer of the model."""
        return self.module.tokenizer

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts with the prompt, cut to the maximum length."""
        prompted = [self.prompt + text for text in texts]
        ids: list[list[int]] = self.tokenizer(prompted, truncation=True, max_length=self.max_tokens)["input_ids"]
        return ids

    @property
    def is_late(self) -> bool:
        """Whether every token has a row, for late interaction."""
        return self._late is not None

    def items(self, tower: str, texts: Sequence[str]) -> list[Item]:
        """Items of texts, for the tower of this name: one row each, or one per token for late interaction."""
        if not texts:
            return []
        if self._late is None:
            return [Item(tower, tuple(ids)) for ids in self.tokens(texts)]
        made = self._late.tokens([self.prompt + text for text in texts], self.side, self.max_tokens)
        return [
            Item(tower, tuple(text.ids.tolist()), (), tuple((place, place + 1) for place in text.starts.tolist()))
            for text in made
        ]

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Numbers of tokens of texts before they are cut."""
        whole = self.tokenizer([self.prompt + text for text in texts], verbose=False)["input_ids"]
        return [len(ids) for ids in whole]

    def for_queries(self, prompt: str | None, max_tokens: int) -> TextTower:
        """A tower that shares these weights, with the prompt and the maximum length of queries."""
        other = copy.copy(self)
        other.max_tokens, other.side = max_tokens, "query"
        other.prompt = self._own_prompts["query"] if prompt is None else prompt
        return other

    def rows(self, items: Sequence[Item]) -> Tensor:
        """Vectors ``(rows, d)``, pooled and normalised in float32 (law 4)."""
        return self.similarity.prepare(self.pooled(self.padded(items), items))

    def padded(self, items: Sequence[Item]) -> dict[str, Any]:
        """Input of the transformer: ids and attention mask ``(b, t)``."""
        return dict(
            self.tokenizer.pad(
                {"input_ids": [list(item.ids) for item in items]},
                padding_side="right",  # spans count from the left
                return_tensors="pt",
            ).to(self.module.device)
        )

    def pooled(self, features: dict[str, Any], items: Sequence[Item]) -> Tensor:
        """Rows ``(rows, d)`` of padded items, before they are normalised."""
        for number, module in enumerate(self.module):
            if number == 1 and items[0].spans:
                features = {"sentence_embedding": self._part_rows(features["token_embeddings"], items)}
                continue
            features = module(features)
            if "token_embeddings" in features:
                features["token_embeddings"] = features["token_embeddings"].float()
        rows: Tensor = features["sentence_embedding"]
        return rows

    def _part_rows(self, states: Tensor, items: Sequence[Item]) -> Tensor:
        """States of token spans from last hidden states ``(b, t, d)``."""
        spans = [(row, *span) for row, item in enumerate(items) for span in item.spans]
        text, start, end = torch.tensor(spans, device=states.device).T
        if self.sentences == "token" or self._late is not None:
            return states[text, start].float()
        total = torch.nn.functional.pad(states.float().cumsum(1), (0, 0, 1, 0))  # (b, t + 1, d)
        means: Tensor = (total[text, end] - total[text, start]) / (end - start)[:, None]
        return means

    def trained(self) -> list[nn.Parameter]:
        """All parameters except those of the transformer's pooler, which no vector depends on."""
        poolers = {id(parameter) for name, parameter in self.module.named_parameters() if ".pooler." in f".{name}."}
        return [parameter for parameter in self.module.parameters() if id(parameter) not in poolers]

    @property
    def rounded(self) -> nn.Module:
        """The transformer; the layers after it compute in float32."""
        transformer: nn.Module = self.module[0]
        return transformer

    def save(self, directory: Path) -> None:
        """Save in the layout of sentence-transformers."""
        self.module.similarity_fn_name = "cosine" if self.similarity.normalize else "dot"
        self.module.save(str(directory), create_model_card=False)

    def _pooling(self, pooling: str, late_interaction: int | None, checkpoint: Checkpoint, own_lengths: bool) -> None:
        from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

        first, *others = self.module
        pooler = next((module for module in others if type(module) is Pooling), None)
        if pooling != "auto" and (pooler is None or pooler.pooling_mode != pooling):
            if any(type(module) not in {Pooling, Normalize} for module in others):
                raise InputError(
                    f"this checkpoint has layers after its pooling: pooling = {pooling} does not fit it.",
                    checkpoint.directory,
                )
            pooler = Pooling(first.auto_model.config.hidden_size, pooling_mode=pooling)
            others = [pooler, *(module for module in others if type(module) is Normalize)]
        if self.sentences != "none" and any(type(module) not in {Pooling, Normalize} for module in others):
            raise InputError(
                "this checkpoint has layers after its pooling, which vectors of sentences would skip: use another.",
                checkpoint.directory,
            )
        normalizes = own_lengths and any(type(module) is Normalize for module in others)
        others = [module for module in others if type(module) is not Normalize]
        if late_interaction is not None:
            others = self._projected(others, late_interaction, checkpoint)
        if self.similarity.normalize or normalizes:  # the saved checkpoint then gives the normalised vectors too
            others.append(Normalize())
        from sentence_transformers import SentenceTransformer

        limit, device = self.module.max_seq_length, self.module.device
        self.module = SentenceTransformer(modules=[first, *others], device=str(device))
        self.module.max_seq_length = limit

    def _projected(self, others: list[Any], width: int, checkpoint: Checkpoint) -> list[Any]:
        """The modules after the transformer with a projection to ``width`` after their pooling.

        A linear projection of the mean of tokens is the mean of their projections, so this one projects single tokens
        too, and the checkpoint opens anywhere as a model of one vector per text.
        """
        from sentence_transformers.sentence_transformer.modules import Dense, Pooling

        if [type(module) for module in others] == [Pooling]:
            made = Dense(others[0].pooling_output_dimension, width, bias=False, activation_function=nn.Identity())
            nn.init.orthogonal_(made.linear.weight)  # keeps most of the angles that the checkpoint learned
            return [*others, made.to(self.module.device)]
        if [type(module) for module in others] != [Pooling, Dense] or others[1].out_features != width:
            raise InputError(
                f"this checkpoint has layers after its pooling that are no projection to {width} dimensions: "
                "use another, or its width as late_interaction.",
                checkpoint.directory,
            )
        return others


def attention_on(device: torch.device) -> dict[str, str]:
    """Options of a transformer: eager attention on a CPU, where the fused kernel's backward pass is slower."""
    return {"attn_implementation": "eager"} if device.type == "cpu" else {}


def _add_tokens(transformer: Any, tokenizer: Any, tokens: list[str]) -> None:
    """Add special tokens, such as DCSR's of sentences; their embeddings start as the mean of all embeddings."""
    tokenizer.add_special_tokens({"additional_special_tokens": tokens})
    old: Tensor = transformer.get_input_embeddings().weight.detach()
    mean = old.mean(0)
    if len(tokenizer) > len(old):
        transformer.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        transformer.get_input_embeddings().weight[tokenizer.convert_tokens_to_ids(tokens)] = mean


def set_dropout(module: nn.Module, dropout: float | None) -> None:
    """Set the rate of all dropout layers of ``module``; None: do not change them."""
    for part in module.modules():
        if isinstance(part, nn.Dropout) and dropout is not None:
            part.p = dropout
