"""Baselines that see the same labels as the GNN-encoder: how far they get without a graph network.

Each of them learns from the training questions and chooses its settings on dev, so that a gain of the GNN-encoder over
them is a gain of the network and not of the labels.
"""
