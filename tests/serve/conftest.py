import shutil

import pytest

from gnnretrieval import Retriever
from gnnretrieval.maps.building import build_map, embeddings_behind


@pytest.fixture(scope="session")
def retriever(tiny_run):
    """Over the tiny run. Shared: its threads are the tests', one at a time."""
    return Retriever.open(tiny_run)


@pytest.fixture(scope="session")
def mapped_run(tiny_run, tmp_path_factory):
    """A copy of the tiny run, with a map beside its index. Shared: do not change it."""
    place = shutil.copytree(tiny_run, tmp_path_factory.mktemp("mapped") / "tiny")
    build_map(embeddings_behind(place), place / "map")
    return place
