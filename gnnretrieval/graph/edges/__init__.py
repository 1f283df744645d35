"""A graph's edges: their sources and their features."""
