"""Readers and writers of the field's formats, one module each.

A reader takes the path of a file and its split, and yields its passages, queries, judgements and negatives
(:class:`~gnnretrieval.data.formats.parsed.FileRecord`) in file order, as a stream. A fault of the file is an
:class:`~gnnretrieval.errors.InputError` with file and line.
"""
