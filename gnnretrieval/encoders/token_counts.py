"""Number of tokens of texts, from an encoder's tokenizer alone: no weights are loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.checkpoint import Checkpoint, find_checkpoint
from gnnretrieval.encoders.loading import check_max_tokens, check_room, load_tokenizer, positions_of
from gnnretrieval.encoders.prompts import Side, own_prompt
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.trained import trained_settings
from gnnretrieval.errors import InputError
from gnnretrieval.storage.json_files import read_json

_NO_LIMIT = 10**9  # transformers writes 10^30 for no limit


class EncoderTokens:
    """Counts the tokens that a ``DualEncoder`` of the same settings would read.

    Args:
        settings: Checkpoint, prompts and limits.

    Attributes:
        name: The checkpoint.
        limits: Maximum number of tokens of a text by side, after which it is cut; None: no limit.

    Raises:
        InputError: A checkpoint has no transformer, no tokenizer that can be loaded, or fewer positions than the limit.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        self.name = settings.checkpoint
        settings = trained_settings(settings)
        passage = find_checkpoint(settings.checkpoint)
        query = find_checkpoint(settings.query_checkpoint) if settings.query_checkpoint else passage
        self._tokenizers: dict[Side, Any] = {"passage": _tokenizer(passage)}
        self._tokenizers["query"] = self._tokenizers["passage"] if query == passage else _tokenizer(query)
        self._prompts: dict[Side, str] = {
            "passage": own_prompt(_prompts(passage), "passage")
            if settings.passage_prompt is None
            else settings.passage_prompt,
            "query": own_prompt(_prompts(query), "query") if settings.query_prompt is None else settings.query_prompt,
        }
        self.limits: dict[Side, int | None] = {}
        sides: list[tuple[Side, Checkpoint, int | None]]
        sides = [("passage", passage, None), ("query", query, settings.query_max_tokens)]
        for side, checkpoint, own in sides:
            limit = settings.max_tokens if own is None else own
            name = "max_tokens" if own is None else "query_max_tokens"
            check_max_tokens(limit, _positions(checkpoint), checkpoint, name)
            check_room(limit, self._tokenizers[side], checkpoint, name, int(settings.late_interaction is not None))
            given: int = self._tokenizers[side].model_max_length
            self.limits[side] = limit if limit is not None else given if given < _NO_LIMIT else None

    def count(self, texts: Sequence[str], side: Side) -> NDArray[np.int64]:
        """Number of tokens of each text before it is cut, with prompt and special tokens: ``(len(texts),)`` int64."""
        tokens = self._tokenizers[side]([self._prompts[side] + text for text in texts], truncation=False)
        return np.array([len(ids) for ids in tokens["input_ids"]], dtype=np.int64)


def _tokenizer(checkpoint: Checkpoint) -> Any:
    """The tokenizer, with the limit that sentence-transformers would set."""
    folder = _first_module(checkpoint)
    tokenizer = load_tokenizer(checkpoint, folder)
    positions = _positions(checkpoint)
    limit = _json(folder / "sentence_bert_config.json").get("max_seq_length") or tokenizer.model_max_length
    tokenizer.model_max_length = min(limit, positions or limit)
    return tokenizer


def _first_module(checkpoint: Checkpoint) -> Path:
    """Directory of the transformer: of the first module, or the checkpoint's if it has no list of modules."""
    modules = _json(checkpoint.directory / "modules.json")
    folder = checkpoint.directory / (modules[0]["path"] if modules else "")
    if not (folder / "config.json").is_file():
        raise InputError(
            "this checkpoint has no transformer, so its tokens cannot be counted: leave --checkpoint out.",
            checkpoint.directory,
        )
    return folder


def _positions(checkpoint: Checkpoint) -> int | None:
    return positions_of(_json(_first_module(checkpoint) / "config.json"))


def _prompts(checkpoint: Checkpoint) -> dict[str, str]:
    config = _json(checkpoint.directory / "config_sentence_transformers.json")
    prompts: dict[str, str] = config.get("prompts") or {}
    return prompts


def _json(path: Path) -> Any:
    """A configuration's JSON; an empty object if there is no file."""
    if not path.is_file():
        return {}
    return read_json(path, "checkpoint's configuration")
