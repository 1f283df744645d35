import shutil

import numpy as np
import pytest
from fastapi.testclient import TestClient

from gnnretrieval import Retriever
from gnnretrieval.index.updating import remove_passages
from gnnretrieval.maps.building import build_map, embeddings_behind
from gnnretrieval.maps.passage_map import open_map
from gnnretrieval.maps.points import points_of
from gnnretrieval.maps.settings import MapSettings
from gnnretrieval.serve import ServeSettings, create_app
from gnnretrieval.training.gnn.embeddings import Embeddings


@pytest.fixture(scope="module")
def client(tiny_run):
    with TestClient(create_app(Retriever.open(tiny_run))) as client:
        yield client


@pytest.fixture
def run(tiny_run, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(tiny_run, tmp_path / "run")


def test_points_travel_as_binary(client, tiny_run):
    response = client.get("/map/points")
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.content == points_of(open_map(tiny_run / "map"), 1000).to_bytes()
    figures = client.get("/map/figures").json()
    assert (figures["passages"], figures["questions"], figures["method"]) == (40, 60, "pca")
    assert figures["version"] == response.headers["index-version"]
    assert 0 < figures["variance_kept"] < 1


def test_texts_are_asked_for_by_row(client):
    answer = client.get("/map/texts", params={"rows": "3,1,99999,3"}).json()["texts"]
    assert [(one["row"], one["id"]) for one in answer] == [(3, "p03"), (1, "p01")]
    assert answer[0]["text"]
    (question,) = client.get("/map/texts", params={"rows": "7", "kind": "question"}).json()["texts"]
    assert question["id"] == "train-07"
    for rows in ("", "1,x", "-1", "1,", "9" * 11):
        assert client.get("/map/texts", params={"rows": rows}).status_code == 422


def test_a_passage_is_found_by_its_id_or_a_part_of_its_title(client):
    def named(name):
        return [one["id"] for one in client.get("/map/named", params={"name": name}).json()["texts"]]

    assert named("p07") == ["p07"]
    title = client.get("/passages/p07").json()["title"]
    assert "p07" in named(title.upper())
    assert named("P0") == [f"p0{row}" for row in range(10)]
    assert named("%") == named("nothing of that name") == []


def test_removed_passages_are_not_drawn(run):
    remove_passages(run / "index", ["p02"])
    with TestClient(create_app(Retriever.open(run))) as client:
        assert client.get("/map/figures").json()["passages"] == 39
        rows = np.frombuffer(client.get("/map/points").content, "<u4")[:39]
        assert rows.tolist() == [row for row in range(40) if row != 2]


def test_what_is_wrong_with_the_map_is_a_sentence(run):
    def refusal():
        with TestClient(create_app(Retriever.open(run))) as client:
            assert client.get("/map").status_code == 200
            response = client.get("/map/points")
            assert response.status_code == 404
            return response.json()["error"]["message"]

    array = np.load(run / "map" / "after.npy")
    array[0] = np.inf
    np.save(run / "map" / "after.npy", array)
    assert refusal() == "The map of this index is damaged. Delete it and make it again."
    (run / "map" / "after.npy").unlink()
    assert "cannot be read" in refusal()
    shutil.rmtree(run / "map")
    assert "is not made yet" in refusal()
    embeddings = embeddings_behind(run)
    build_map(Embeddings(embeddings.path, {**embeddings.meta, "hash": "another"}), run / "map")
    assert "is of other embeddings than the index" in refusal()


def test_a_map_that_is_made_later_is_found(run):
    shutil.rmtree(run / "map")
    with TestClient(create_app(Retriever.open(run))) as client:
        assert client.get("/map/figures").status_code == 404
        build_map(embeddings_behind(run), run / "map", MapSettings(seed=1))
        assert client.get("/map/figures").json()["passages"] == 40


def test_an_index_without_a_graph_has_no_map(run):
    with TestClient(create_app(Retriever.open(run / "index-dual-encoder"))) as client:
        assert client.get("/map/points").json()["error"]["code"] == "no_graph"


def test_with_a_token_the_page_is_open_and_the_map_is_not(tiny_run):
    with TestClient(create_app(Retriever.open(tiny_run), ServeSettings(token="0123456789abcdef"))) as client:
        assert client.get("/map").status_code == 200
        assert {client.get(f"/map/{name}").status_code for name in ("figures", "points", "texts", "named")} == {401}
