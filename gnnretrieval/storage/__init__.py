"""Artifacts on disk: made whole or not at all, resumed and updated in one step; their arrays and their provenance."""
