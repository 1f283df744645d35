import shutil

import numpy as np
import pytest

from gnnretrieval.graph.store import open_graph
from gnnretrieval.maps.building import build_map
from gnnretrieval.storage.arrays import save_array
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.training.gnn.embeddings import KIND as EMBEDDINGS
from gnnretrieval.training.gnn.embeddings import Embeddings, open_embeddings


@pytest.fixture(scope="session")
def embeddings(tiny_run):
    return open_embeddings(tiny_run / "embeddings")


@pytest.fixture(scope="session")
def built(embeddings, tmp_path_factory):
    """A map of the tiny run. Shared: do not change its files."""
    return build_map(embeddings, tmp_path_factory.mktemp("map") / "map")


@pytest.fixture
def half_moved(embeddings, tmp_path):
    """Embeddings of which the odd rows are the dual-encoder's vectors."""
    graph = open_graph(embeddings.made_from("graph"))
    vectors = np.array(embeddings.passages)
    vectors[1::2] = graph.passage_features[1::2]

    def write(directory):
        save_array(directory / "passages.npy", vectors)
        shutil.copyfile(embeddings.path / "texts.sqlite", directory / "texts.sqlite")
        names = ("similarity", "encoder", "checkpoint_hash", "num_passages", "dimension")
        made_from = {name: str(embeddings.made_from(name)) for name in embeddings.meta["made_from"]}
        return {name: embeddings.meta[name] for name in names} | {"made_from": made_from}

    inputs = embeddings.meta["inputs"]
    artifact = make_artifact(tmp_path / "embeddings", EMBEDDINGS, inputs=inputs, config={}, write=write)
    return Embeddings(artifact.path, artifact.meta)
