"""The formats of the field, one module each: files are recognised, and read as streams.

A reader takes the path of a file and the split that it is of, and yields :class:`Found` records in file order:
passages, queries, judgements and negatives. Whatever is wrong with the file is an
:class:`~gnnretrieval.errors.InputError` with file and line.
"""

from gnnretrieval.data.formats.parsed import Found, Negative, Reader

__all__ = ["Found", "Negative", "Reader"]
