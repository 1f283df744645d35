"""Graph-centric dense retrieval: a query-passage graph, and a GNN-encoder trained over it (GNN-encoder, 2022)."""

from gnnretrieval.amx import avoid_hidden_amx

__version__ = "0.1.0"

avoid_hidden_amx()  # before anything imports torch
