"""The reader: finds the answer of a question in its passages (Karpukhin et al. 2020, section 6.1).

As in DPR, a span's score is the sum of its first token's start logit and its last token's end logit. DPR normalises
them within a passage, and chooses the passage by a third logit. Here they are normalised over all passages of a
question together (Clark and Gardner 2018, section 3). Spans of different passages are then comparable without the third
logit, and any checkpoint for extractive question answering has the other two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.data.records import Passage
from gnnretrieval.encoders.batching import batches_by_tokens
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.loading import (
    check_max_tokens,
    check_vocabulary,
    load_reader,
    load_tokenizer,
    positions_of,
    weights_dtype,
)
from gnnretrieval.encoders.packed_pass import PackedPass, can_pack
from gnnretrieval.encoders.reader_tokens import ReaderTokenizer, Window
from gnnretrieval.encoders.settings import ReaderSettings
from gnnretrieval.encoders.trained import MODEL, READER
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.platform.devices import as_device
from gnnretrieval.storage.artifacts import kind_of, open_artifact, with_article

UNTRAINED_TOKENS = 256  # max_tokens of a reader that was not trained here


class Reading(NamedTuple):
    """The best span of one passage for one question.

    Attributes:
        start: Its first character in the passage's text.
        end: The character after its last one.
        logit: Start logit of its first token plus end logit of its last one.
        starts: log Σ exp of the start logits of all tokens of the text.
        ends: The same of the end logits.
    """

    start: int
    end: int
    logit: float
    starts: float
    ends: float


NOTHING = Reading(0, 0, -np.inf, -np.inf, -np.inf)  # of a passage without text


def log_probabilities(readings: Sequence[Reading]) -> NDArray[np.float64]:
    """Log-probabilities ``(passages,)`` of the best spans of one question's passages.

    ``log P(span) = logit − log Σ exp(start logits) − log Σ exp(end logits)``, with sums over all passages.
    """
    logits, starts, ends = np.array([reading[2:] for reading in readings], dtype=np.float64).reshape(-1, 3).T
    if not np.isfinite(logits).any():
        return logits
    log_p: NDArray[np.float64] = logits - np.logaddexp.reduce(starts) - np.logaddexp.reduce(ends)
    return log_p


def best_span(logits: NDArray[np.floating], longest: int) -> tuple[int, int, float]:
    """First and last token and logit of the best span of at most ``longest`` tokens.

    Args:
        logits: Start and end logits of a text's tokens ``(t, 2)``.
        longest: Maximum number of tokens of a span.
    """
    starts, ends = np.asarray(logits, dtype=np.float64).T
    longest = min(longest, len(starts))
    after = np.append(ends, np.full(longest - 1, -np.inf))
    sums = starts[:, None] + np.lib.stride_tricks.sliding_window_view(after, longest)  # (t, longest)
    first, more = np.unravel_index(int(sums.argmax()), sums.shape)
    return int(first), int(first + more), float(sums[first, more])


class Reader:
    """A checkpoint for extractive question answering.

    Args:
        settings: Checkpoint, longest answer, precision.
        device: Device of the weights.

    Raises:
        InputError: The checkpoint cannot be loaded, or is not a reader.
        ArtifactError: The path is another kind of artifact.
    """

    def __init__(self, settings: ReaderSettings, device: str | torch.device = "cpu") -> None:
        name, trained_tokens = _weights_of(settings.reader)
        self.settings, self.device = settings, as_device(device)
        self.checkpoint = find_checkpoint(name)
        model, report = load_reader(self.checkpoint)
        if report["missing_keys"]:
            missing = ", ".join(sorted(report["missing_keys"])[:2])
            raise InputError(
                f"this is no reader's checkpoint: it has no weights for {missing}. Train one: gnnretrieval encoder "
                "train reader.",
                self.checkpoint.directory,
            )
        tokenizer = load_tokenizer(self.checkpoint)
        check_vocabulary(len(tokenizer), model.get_input_embeddings().num_embeddings, self.checkpoint)
        positions = positions_of(model.config)
        max_tokens = settings.max_tokens or trained_tokens or min(UNTRAINED_TOKENS, positions or UNTRAINED_TOKENS)
        check_max_tokens(max_tokens, positions, self.checkpoint)
        self.tokens = ReaderTokenizer(tokenizer, max_tokens, self.checkpoint)
        self._model: Any = model.eval().to(self.device)
        dtype = weights_dtype(settings.precision, self.device)
        is_packed = can_pack(model.base_model) and hasattr(model, "qa_outputs")
        self._packed = PackedPass(model.base_model, dtype) if is_packed else None
        if self._packed is None:
            self._model.to(dtype)

    @property
    def hash(self) -> str:
        """Hash of the checkpoint; it does not depend on the directory."""
        return self.checkpoint.hash

    @torch.inference_mode()
    def read(self, questions: Sequence[str], passages: Sequence[Passage]) -> list[Reading]:
        """The best span of each passage ``i`` for question ``i``; :data:`NOTHING` for a passage without text.

        Raises:
            InputError: The weights are damaged: the logits are not finite.
        """
        windows = self.tokens.windows(questions, passages)
        readings: list[Reading] = [NOTHING] * len(passages)
        for window, logits in self._logits(windows):
            if not np.isfinite(logits).all():
                raise InputError("its logits are not finite: the weights are damaged.", self.checkpoint.directory)
            first, last, logit = best_span(logits, self.settings.answer_tokens)
            starts, ends = np.logaddexp.reduce(logits, axis=0).tolist()
            before = readings[window.pair]
            place = (int(window.characters[first, 0]), int(window.characters[last, 1]), logit)
            best = place if logit > before.logit else before[:3]
            totals = (np.logaddexp(before.starts, starts), np.logaddexp(before.ends, ends))
            readings[window.pair] = Reading(*best, *map(float, totals))
        return readings

    def _logits(self, windows: Sequence[Window]) -> Iterator[tuple[Window, NDArray[np.float64]]]:
        """Windows, longest first, with the logits of their text's tokens ``(t, 2)``."""
        lengths = np.array([len(window.ids) for window in windows], dtype=np.int64)
        forward = self._forward if self._packed is None else self._forward_packed
        for numbers in batches_by_tokens(lengths, self.settings.token_budget, padded=self._packed is None):
            batch = [windows[number] for number in numbers]
            for window, logits in zip(batch, forward(batch), strict=True):
                part = slice(window.first, window.first + len(window.characters))
                yield window, logits[part].double().cpu().numpy()

    def _forward(self, windows: Sequence[Window]) -> list[Tensor]:
        """Logits ``(tokens, 2)`` of windows, padded to the longest."""
        ids, types = [window.ids for window in windows], [window.types for window in windows]
        return list(padded_logits(self._model, self.tokens.tokenizer, ids, types))

    def _forward_packed(self, windows: Sequence[Window]) -> list[Tensor]:
        """The same without padding."""
        assert self._packed is not None
        typed = "token_type_ids" in self.tokens.tokenizer.model_input_names
        types = [window.types for window in windows] if typed else None
        runs = self._packed([window.ids for window in windows], types)
        return [self._model.qa_outputs(states.float()) for run in runs for states in run]


def padded_logits(
    model: Any, tokenizer: Any, ids: Sequence[Sequence[int] | NDArray[np.int64]], types: Sequence[Any]
) -> Tensor:
    """Start and end logits ``(texts, tokens, 2)`` of token sequences, padded on the right to the longest.

    Args:
        model: A model for extractive question answering.
        tokenizer: Its tokenizer.
        ids: Token ids of each sequence, special tokens included.
        types: Their token types, which are left out if the model does not read them.
    """
    tokens = {"input_ids": [list(map(int, row)) for row in ids]}
    if "token_type_ids" in tokenizer.model_input_names:
        tokens["token_type_ids"] = [list(map(int, row)) for row in types]
    padded = tokenizer.pad(tokens, padding_side="right", return_tensors="pt").to(model.device)
    output = model(**padded)
    return torch.stack([output.start_logits, output.end_logits], dim=-1)


def _weights_of(name: str) -> tuple[str, int | None]:
    """Name of a reader's checkpoint, and the maximum length it was trained with; None if it was not trained here."""
    kind = kind_of(name)
    if kind is None:
        return name, None
    if kind != READER:
        raise ArtifactError(
            f"{name}: this directory holds {with_article(kind)}, not a reader. Give the reader of gnnretrieval encoder "
            "train reader, or a checkpoint for extractive question answering."
        )
    artifact = open_artifact(name, READER, ("max_tokens",))
    return str(artifact.path / MODEL), int(artifact.meta["max_tokens"])
