"""The docstring corpus: a dataset made offline from the docstrings of installed packages."""
