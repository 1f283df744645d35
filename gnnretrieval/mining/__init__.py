"""What training learns from besides the labels: hard negatives."""

from gnnretrieval.mining.hard_negatives import sample_hard_negatives

__all__ = ["sample_hard_negatives"]
