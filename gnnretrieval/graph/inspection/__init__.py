"""Whether a graph can help, and what to change."""
