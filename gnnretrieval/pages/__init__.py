"""Pages that open offline: HTML, plots, and reports that print and show themselves."""
