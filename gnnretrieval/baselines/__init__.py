"""Baselines without a graph network that see the same labels as the GNN-encoder.

Each learns from the training questions, and its settings are chosen on dev. So a gain of the GNN-encoder over them is
due to the network, and not to the labels.
"""

DENSE = (
    "local-scaling",
    "label-prior",
    "label-mean",
    "question-index",
    "linear-head",
    "linear-head-queries",
    "linear-heads-apart",
    "linear-head+label-mean",
    "linear-head+label-mean+label-prior",
    "linear-heads-apart+label-mean",
    "linear-heads-apart+label-mean+label-prior",
    "linear-heads-apart+passage-updates",
    "linear-heads-apart+passage-updates+label-prior",
    "linear-heads-apart+question-index",
    "linear-heads-apart+question-index+label-prior",
)  # settings of each: gnnretrieval.baselines.dense.CHOICES
EXPANSION = "document-expansion"  # gnnretrieval.baselines.expansion
LEXICAL = "bm25+questions"
BASELINES = (*DENSE, EXPANSION, LEXICAL)
