"""A transformer with a task's head: the part that cross-encoders and readers share in training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gnnretrieval.encoders.checkpoint import Checkpoint
from gnnretrieval.encoders.loading import check_max_tokens, check_vocabulary, load_tokenizer, positions_of
from gnnretrieval.training.encoder.towers import attention_on, set_dropout


class HeadTower:
    """A transformers model with a head; all its parameters are trained.

    Args:
        load: Loads the model of a checkpoint; a head that the checkpoint lacks starts at random.
        checkpoint: Any encoder checkpoint.
        device: Where to compute.
        max_tokens: Maximum length of an input.
        dropout: Dropout in training; None: the checkpoint's own.

    Raises:
        InputError: The checkpoint cannot be loaded, or does not fit its tokenizer or ``max_tokens``.
    """

    def __init__(
        self,
        load: Callable[..., tuple[Any, Any]],
        checkpoint: Checkpoint,
        device: torch.device,
        max_tokens: int,
        dropout: float | None,
    ) -> None:
        model, _ = load(checkpoint, **attention_on(device))
        self.module: Any = model.to(device)
        self.tokenizer: Any = load_tokenizer(checkpoint)
        check_vocabulary(len(self.tokenizer), self.module.get_input_embeddings().num_embeddings, checkpoint)
        check_max_tokens(max_tokens, positions_of(self.module.config), checkpoint)
        set_dropout(self.module, dropout)
        self.device = device

    @property
    def rounded(self) -> nn.Module:
        """The whole model."""
        module: nn.Module = self.module
        return module

    def trained(self) -> list[nn.Parameter]:
        """All parameters."""
        return list(self.module.parameters())

    def save(self, directory: Path) -> None:
        """Save model and tokenizer in the layout of transformers."""
        self.module.save_pretrained(directory)
        self.tokenizer.save_pretrained(directory)
