"""The two towers of a dual-encoder: made from a checkpoint, and saved as one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from gnnretrieval.encoders.checkpoint import Checkpoint, find_checkpoint
from gnnretrieval.encoders.late_tokens import QUERY_TOKENS
from gnnretrieval.encoders.learned_from import learned_from, write_learned_from
from gnnretrieval.encoders.loading import check_room
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.similarity import Similarity, similarity_of
from gnnretrieval.encoders.trained import PASSAGE, QUERY, trained_settings
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.training.encoder.sparse_task import SparseTower
from gnnretrieval.training.encoder.towers import TextTower


class Start(NamedTuple):
    """The start of training.

    Attributes:
        settings: Settings of the encoder.
        passage: Checkpoint of ``E_P``.
        query: Checkpoint of ``E_Q``; the same if weights are shared.
        similarity: Similarity of queries and passages.
        learned_from: Ids of the queries that the checkpoint learned from.
    """

    settings: EncoderSettings
    passage: Checkpoint
    query: Checkpoint
    similarity: Similarity
    learned_from: frozenset[str] = frozenset()

    @classmethod
    def of(cls, encoder: EncoderSettings) -> Start:
        """The start that ``encoder`` names: a checkpoint, or an encoder trained here."""
        resolved = trained_settings(encoder)
        passage = find_checkpoint(resolved.checkpoint)
        query = find_checkpoint(resolved.query_checkpoint) if resolved.query_checkpoint else passage
        similarity = similarity_of(resolved, says_dot=_says_dot(passage))
        return cls(resolved, passage, query, similarity, learned_from(encoder))

    def config(self) -> dict[str, Any]:
        """The settings that decide what is trained, besides the weights, as JSON values."""
        return self.settings.model_dump(
            mode="json", exclude={"checkpoint", "query_checkpoint", "precision", "token_budget", "window"}
        )

    def require_shared(self) -> None:
        """Check that queries and passages share weights.

        Raises:
            GnnRetrievalError: They have separate weights.
        """
        if self.query.hash != self.passage.hash:
            raise GnnRetrievalError(
                f"{self.settings.checkpoint}: its queries and passages have separate weights: train with "
                "shared = false."
            )


def make_towers(
    start: Start,
    *,
    shared: bool,
    device: torch.device,
    seed: int,
    pooling: str = "auto",
    dropout: float | None = None,
    own_lengths: bool = False,
) -> dict[str, TextTower]:
    """Make the towers ``query`` and ``passage``.

    Args:
        start: Start of training.
        shared: Share one set of weights.
        device: Where to compute.
        seed: Seed of weights that the checkpoint lacks: both towers start with the same ones.
        pooling: Pooling of token vectors: ``cls``, ``mean``, or ``auto``: the checkpoint's own.
        dropout: Dropout in training; None: the checkpoint's own.
        own_lengths: As of :class:`TextTower`; joint training recomputes the vectors that were encoded.

    Raises:
        GnnRetrievalError: The two have different widths, or a maximum length leaves no room for a token of the text.
    """
    torch.manual_seed(seed)
    settings = start.settings
    common: dict[str, Any] = {"dropout": dropout}
    kind: type[TextTower] = SparseTower if settings.sparse else TextTower
    of_passages: dict[str, Any] = {}
    if not settings.sparse:
        common |= {"pooling": pooling, "late_interaction": settings.late_interaction}
        common |= {"token_match": settings.token_match, "passage_vectors": settings.passage_vectors}
        common["own_lengths"] = own_lengths
        of_passages = {"sentences": settings.sentences}
    else:
        common["own_terms"] = settings.own_terms
    passage = kind(
        start.passage,
        start.similarity,
        device,
        max_tokens=settings.max_tokens,
        prompt=settings.passage_prompt,
        **of_passages,
        **common,
    )
    markers = int(settings.late_interaction is not None)
    check_room(passage.max_tokens, passage.tokenizer, start.passage, markers=markers)
    check_room(settings.query_max_tokens, passage.tokenizer, start.query, "query_max_tokens", markers)
    most = settings.query_max_tokens or (settings.max_tokens if settings.late_interaction is None else QUERY_TOKENS)
    if shared:
        return {QUERY: passage.for_queries(settings.query_prompt, most or passage.max_tokens), PASSAGE: passage}
    torch.manual_seed(seed)  # two random projections would compare nothing
    query = kind(
        start.query, start.similarity, device, max_tokens=most, side="query", prompt=settings.query_prompt, **common
    )
    if query.width != passage.width:
        raise GnnRetrievalError(
            f"{start.query.name} has vectors of {query.width} dimensions, but {start.passage.name} of "
            f"{passage.width}: give two encoders of the same width."
        )
    return {QUERY: query, PASSAGE: passage}


def save_towers(
    towers: Mapping[str, TextTower], start: Start, directory: Path, queries: Iterable[str]
) -> EncoderSettings:
    """Write the weights as checkpoints: ``passage/`` and, unless weights are shared, ``query/``.

    Args:
        towers: The trained towers.
        start: Start of training.
        directory: Where the checkpoints go.
        queries: Ids of the queries that they learned from, which are recorded too.

    Returns:
        Settings that open the checkpoints as they were trained.
    """
    write_learned_from(directory, start.learned_from.union(queries))
    shared = towers[QUERY].module is towers[PASSAGE].module
    prompts = {"query": towers[QUERY].prompt, "document": towers[PASSAGE].prompt}
    for tower in towers.values():
        tower.module.prompts = {side: prompt for side, prompt in prompts.items() if prompt}
    towers[PASSAGE].save(directory / PASSAGE)
    if not shared:
        towers[QUERY].save(directory / QUERY)
    return start.settings.model_copy(
        update={
            "checkpoint": PASSAGE,
            "query_checkpoint": None,
            "similarity": "cosine" if start.similarity.normalize else "dot",
            "scale": start.similarity.scale,
            "max_tokens": towers[PASSAGE].max_tokens,
            "query_max_tokens": towers[QUERY].max_tokens,
            "query_prompt": towers[QUERY].prompt,
            "passage_prompt": towers[PASSAGE].prompt,
        }
    )


def _says_dot(checkpoint: Checkpoint) -> bool:
    """Whether a sentence-transformers checkpoint names the dot product as its similarity."""
    file = checkpoint.directory / "config_sentence_transformers.json"
    try:
        return file.is_file() and json.loads(file.read_text(encoding="utf-8")).get("similarity_fn_name") == "dot"
    except (ValueError, AttributeError):
        raise InputError("this is not a checkpoint's configuration: wanted a JSON object.", file) from None
