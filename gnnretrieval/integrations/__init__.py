"""Adapters from :class:`gnnretrieval.Retriever` to the retrievers of other libraries; each needs an extra."""
