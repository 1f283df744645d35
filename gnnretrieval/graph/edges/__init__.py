"""A graph's edges: who finds whom, and what the edges carry."""
