"""Passages, queries and judgements, read from many formats into one: the dataset directory.

:class:`Dataset` opens and checks a dataset directory. :func:`make_docstring_corpus` makes one offline, from docstrings.
:func:`inspect_dataset` reports its contents and its problems.
"""

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.docstring_corpus.corpus import make_docstring_corpus
from gnnretrieval.data.inspection.inspect import inspect_dataset
from gnnretrieval.data.records import Passage, Qrel, Query, ScoredPassage

__all__ = [
    "Dataset",
    "Passage",
    "Qrel",
    "Query",
    "ScoredPassage",
    "inspect_dataset",
    "make_docstring_corpus",
]
