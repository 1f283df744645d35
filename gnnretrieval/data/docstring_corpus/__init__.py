"""The docstring corpus: a retrieval set made offline, from the docstrings of installed packages."""
