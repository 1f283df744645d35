"""Training examples besides the labels: hard negatives, denoised hard negatives, and pseudo-labels.

Each run writes examples, and a report of what was kept or dropped, and why. The modules import torch only when they
compute, so that the command line starts fast.
"""

from gnnretrieval.mining.denoise import denoise
from gnnretrieval.mining.examples import Examples, open_examples
from gnnretrieval.mining.hard_negatives import sample_hard_negatives
from gnnretrieval.mining.negatives import mine_negatives
from gnnretrieval.mining.pseudo_label import pseudo_label

__all__ = ["Examples", "denoise", "mine_negatives", "open_examples", "pseudo_label", "sample_hard_negatives"]
