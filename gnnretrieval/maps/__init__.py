"""The map: passages in two dimensions, before and after the GNN-encoder."""
