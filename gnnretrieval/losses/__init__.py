"""Training losses, one a file."""

from gnnretrieval.losses.contrastive import contrastive_loss

__all__ = ["contrastive_loss"]
