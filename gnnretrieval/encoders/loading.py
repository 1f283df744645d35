"""Loading a checkpoint's model: in which precision, without the libraries' chatter, and damage said in a sentence."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gnnretrieval.encoders.checkpoint import Checkpoint
from gnnretrieval.encoders.precision import computes_in_bfloat16
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.platform.amx import avoid_hidden_amx


def weights_dtype(precision: str, device: torch.device) -> torch.dtype:
    """What weights are held in: ``precision``, or, where that is ``auto``, bfloat16 where ``device`` computes in it."""
    if precision == "bfloat16":
        avoid_hidden_amx()
    reduced = precision == "bfloat16" or (precision == "auto" and computes_in_bfloat16(device))
    return torch.bfloat16 if reduced else torch.float32


@contextmanager
def loading(checkpoint: Checkpoint) -> Iterator[None]:
    """Around a library's loading of ``checkpoint``.

    Raises:
        InputError: whatever the library raised, as one sentence that names the directory.
    """
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)  # "creating a new one with mean pooling"
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    except GnnRetrievalError:
        raise
    except Exception as error:  # whatever the libraries raise over a damaged checkpoint
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise InputError(
            f"this checkpoint cannot be loaded: {reason}. Save or download it again.", checkpoint.directory
        ) from error


def check_max_tokens(
    max_tokens: int | None, positions: int | None, checkpoint: Checkpoint, name: str = "max_tokens"
) -> None:
    """Refuse more tokens than a checkpoint has positions for.

    Raises:
        InputError: ``max_tokens`` is more than ``positions``, where both are known.
    """
    if max_tokens is not None and positions is not None and max_tokens > positions:
        raise InputError(
            f"this checkpoint has positions for {positions} tokens, and {name} is {max_tokens}: give at most that.",
            checkpoint.directory,
        )
