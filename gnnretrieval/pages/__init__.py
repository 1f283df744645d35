"""HTML pages that open offline, their plots, and reports for terminals and notebooks."""
