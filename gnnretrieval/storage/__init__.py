"""Artifacts on disk: made whole or not at all, resumed, updated in one step; their arrays, and where they come from."""
