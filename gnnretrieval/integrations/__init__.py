"""A :class:`gnnretrieval.Retriever` where other libraries want one of theirs: one module a library, each an extra."""
