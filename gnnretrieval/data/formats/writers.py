"""Datasets as files of other formats, one module each: the other way round from :mod:`gnnretrieval.data.formats`."""
