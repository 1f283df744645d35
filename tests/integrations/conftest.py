import pytest

from gnnretrieval import Retriever
from gnnretrieval.data import Dataset


@pytest.fixture(scope="session")
def retriever(tiny_run):
    return Retriever.open(tiny_run)


@pytest.fixture(scope="session")
def questions(tiny_dataset):
    return {query.id: query.text for query in Dataset.open(tiny_dataset).queries_of("test")}
