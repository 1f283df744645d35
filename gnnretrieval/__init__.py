"""Graph-centric dense retrieval: a query-passage graph, and a GNN-encoder trained over it (GNN-encoder, 2022)."""

__version__ = "0.1.0"
