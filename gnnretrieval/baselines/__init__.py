"""Baselines that see the same labels as the GNN-encoder: how far they get without a graph network.

Each of them learns from the training questions and chooses its settings on dev, so that a gain of the GNN-encoder over
them is a gain of the network and not of the labels.
"""

DENSE = (
    "label-prior",
    "label-mean",
    "question-index",
    "linear-head",
    "linear-head-queries",
    "linear-heads-apart",
    "linear-head+label-mean",
)  # settings of each: gnnretrieval.baselines.dense.CHOICES
LEXICAL = "bm25+questions"
BASELINES = (*DENSE, LEXICAL)
