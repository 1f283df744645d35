import pytest

from gnnretrieval import Retriever


@pytest.fixture(scope="session")
def retriever(tiny_run):
    """Over the tiny run, which has a map. Shared: its threads are the tests', one at a time."""
    return Retriever.open(tiny_run)
