"""Readers and writers of the field's formats, one module each.

A reader takes the path of a file and its split, and yields :class:`Found` records in file order, as a stream: passages,
queries, judgements and negatives. A fault of the file is an :class:`~gnnretrieval.errors.InputError` with file and
line.
"""

from gnnretrieval.data.formats.parsed import Found, Negative, Reader

__all__ = ["Found", "Negative", "Reader"]
