"""Features of made-up vectors in clusters, larger than the tiny corpus: lists and codes can be learned from them."""

from pathlib import Path

import numpy as np
import pytest

from gnnretrieval.data.records import Passage
from gnnretrieval.data.text_store import TextStore, passage_rows
from gnnretrieval.encoders.encoded_texts import TEXTS
from gnnretrieval.encoders.features import KIND, Features
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.storage.arrays import save_array
from gnnretrieval.storage.making import make_artifact

COUNT, QUERIES, WIDTH = 1200, 60, 16


@pytest.fixture(scope="session")
def make_features():
    """``make_features(place, count)``: features of ``count`` vectors of 16 numbers."""

    def make(place: Path, count: int = COUNT, *, normalize: bool = True) -> Features:
        def write(directory: Path):
            rng = np.random.default_rng(0)
            centres = rng.standard_normal((20, WIDTH))
            for name, rows in (("passages", count), ("queries", QUERIES)):
                vectors = centres[rng.integers(0, 20, rows)] + 0.5 * rng.standard_normal((rows, WIDTH))
                save_array(directory / f"{name}.npy", vectors.astype(np.float16))
            with TextStore(directory / TEXTS, create=True) as texts:
                texts.add_passages(
                    passage_rows(Passage(f"p{row}", f"title {row}", f"text {row}") for row in range(count))
                )
            return {
                "encoder": EncoderSettings(checkpoint="vectors").model_dump(),
                "similarity": {"normalize": normalize, "scale": 1.0},
                "checkpoint_hash": {"query": "", "passage": ""},
                "num_passages": count,
                "num_queries": QUERIES,
                "dimension": WIDTH,
                "made_from": {"dataset": "."},
            }

        config = {"count": count, "normalize": normalize}
        artifact = make_artifact(place, KIND, inputs={"made": "up"}, config=config, write=write)
        return Features(artifact.path, artifact.meta)

    return make


@pytest.fixture(scope="session")
def clustered(make_features, tmp_path_factory) -> Features:
    """1,200 vectors and 60 queries. Shared: do not change its files."""
    return make_features(tmp_path_factory.mktemp("clustered") / "features")


@pytest.fixture
def pgvector(postgres):
    """The DSN, if that PostgreSQL has pgvector."""
    import psycopg

    with psycopg.connect(postgres) as connection:
        known = connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone()
    if known is None:
        pytest.skip("this PostgreSQL has no pgvector: apt-get install postgresql-15-pgvector, or pip install pgserver")
    return postgres


@pytest.fixture
def qdrant(tmp_path):
    """Where a Qdrant of this test's own keeps its collections."""
    pytest.importorskip("qdrant_client", reason="pip install 'gnnretrieval[qdrant]'")
    return str(tmp_path / "qdrant")


@pytest.fixture
def lancedb(tmp_path):
    """Where a LanceDB of this test's own keeps its tables."""
    pytest.importorskip("lancedb", reason="pip install 'gnnretrieval[lancedb]'")
    return str(tmp_path / "lancedb")
