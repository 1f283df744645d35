"""Export of an index with several vectors a passage to databases, which rank a passage by the best of them."""

import os
import shutil
from contextlib import closing

import numpy as np
import pytest
from postgres_answers import answers

from gnnretrieval.encoders.features import open_features
from gnnretrieval.index.export_databases import write_lancedb, write_pgvector, write_qdrant
from gnnretrieval.index.updating import remove_passages

GONE = ["p01", "p07"]


@pytest.fixture
def index(questions_run, tmp_path):
    """An index of 40 passages, of which two were removed."""
    run = shutil.copytree(questions_run, tmp_path / "run", copy_function=os.link)
    return remove_passages(run / "index", GONE)


@pytest.fixture(scope="module")
def asked(questions_run):
    """Vectors of the dataset's queries."""
    return open_features(questions_run / "features").queries.astype(np.float32)


def require_answers(index, asked, found):
    """Each question's ten passages and scores are those of our own search."""
    rows, scores = index.search(asked, 10)
    for answer, ranking, values in zip(found, rows.tolist(), scores, strict=True):
        assert [id_ for id_, _ in answer] == [f"p{row:02}" for row in ranking]
        np.testing.assert_allclose([score for _, score in answer], values, rtol=1e-5)


@pytest.mark.parametrize("approximate", [False, True])
def test_postgresql_ranks_a_passage_by_the_best_of_its_vectors(approximate, index, asked, pgvector):
    import psycopg

    sql = write_pgvector(index, pgvector, "several", approximate=approximate, overwrite=True)
    require_answers(index, asked, answers(pgvector, sql, asked))
    with index.texts as texts, psycopg.connect(pgvector) as connection:
        known = {passage.id: passage.text for passage in texts.passages() if passage.id not in GONE}
        assert dict(connection.execute("SELECT id, text FROM several WHERE number = 0").fetchall()) == known
        assert not connection.execute("SELECT 1 FROM several WHERE number > 0 AND text IS NOT NULL").fetchall()
        assert connection.execute("SELECT count(*) FROM several").fetchone() == (index.meta["num_vectors"],)


def test_qdrant_ranks_a_passage_by_the_best_of_its_vectors(index, asked, qdrant):
    from qdrant_client import QdrantClient

    call = write_qdrant(index, qdrant)
    with closing(QdrantClient(path=qdrant)) as client:
        assert client.count("passages").count == 38
    found = []
    for question in asked:
        points = eval(call, {"QdrantClient": QdrantClient, "question": question}).points
        found.append([(point.payload["id"], point.score) for point in points])
    require_answers(index, asked, found)


def test_lancedb_finds_a_passage_by_the_best_of_its_vectors(index, asked, lancedb):
    import lancedb as client

    call = write_lancedb(index, lancedb)
    rows, _ = index.search(asked, 10)
    for question, ranking in zip(asked, rows.tolist(), strict=True):
        assert eval(call, {"lancedb": client, "question": question}) == [f"p{row:02}" for row in ranking]
