import pytest

from gnnretrieval.maps.building import build_map
from gnnretrieval.training.gnn.embeddings import open_embeddings


@pytest.fixture(scope="session")
def embeddings(tiny_run):
    return open_embeddings(tiny_run / "embeddings")


@pytest.fixture(scope="session")
def built(embeddings, tmp_path_factory):
    """A map of the tiny run. Shared: do not change its files."""
    return build_map(embeddings, tmp_path_factory.mktemp("map") / "map")
