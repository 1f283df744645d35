"""The inspection of a dataset directory: its figures, problems and warnings."""
