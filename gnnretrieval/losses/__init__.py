"""Training losses, one per file. ``docs/losses.md`` compares them."""

from gnnretrieval.losses.contrastive import contrastive_loss
from gnnretrieval.losses.joint_listwise import joint_listwise_loss
from gnnretrieval.losses.listwise_distillation import listwise_distillation_loss
from gnnretrieval.losses.margin_mse import margin_mse_loss
from gnnretrieval.losses.pair import pair_loss
from gnnretrieval.losses.passage_centric import passage_centric_loss

__all__ = [
    "contrastive_loss",
    "joint_listwise_loss",
    "listwise_distillation_loss",
    "margin_mse_loss",
    "pair_loss",
    "passage_centric_loss",
]
