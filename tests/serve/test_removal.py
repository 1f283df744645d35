"""A removed passage is in no answer of the server."""

import shutil

import numpy as np
import pytest
from fastapi.testclient import TestClient

from gnnretrieval import Retriever
from gnnretrieval.data import Dataset
from gnnretrieval.encoders.reader import Reader
from gnnretrieval.encoders.settings import ReaderSettings
from gnnretrieval.index.updating import remove_passages
from gnnretrieval.maps.building import build_map, embeddings_behind
from gnnretrieval.serve import create_app
from gnnretrieval.serve.routes import feedback, maps, pages, questions, status
from gnnretrieval.serve.routes import graph as graph_routes
from gnnretrieval.storage.provenance import write_json

PAGES = {
    "/",
    "/map",
    "/docs",
    "/health",
    "/metrics",
    "/reload",
    "/feedback",
    "/update",
}  # that hold no passage


@pytest.fixture
def gone(retriever):
    """The passage that most queries found, which /graph names."""
    return retriever.index.texts.passage(int(retriever.graph.degrees().argmax()))


@pytest.fixture
def asked(tiny_dataset, gone, retriever, tiny_reader):
    """``asked(retriever)``: the answers of every route, by its path, also for training questions that have ``gone``."""
    question = Dataset.open(tiny_dataset).queries_of("test")[0].text
    graph = retriever.graph
    rows = np.flatnonzero((graph.neighbors == graph.degrees().argmax()).any(axis=1))[:8]
    with graph.texts() as texts:
        queries = [texts.query(int(row)).id for row in rows]
    texts = [passage.text for passage in retriever.index.texts.passages()]
    neighbors = [{"id": id_, "kind": "query", "most": 50} for id_ in queries]
    neighbors += [{"id": f"p{row:02d}", "most": 50} for row in {*graph.neighbors[rows[:3]].ravel().tolist()}]

    # so high a weight that the answer is of the first passage, which gone is for its own text
    reader = Reader(ReaderSettings(reader=str(tiny_reader), precision="float32", passages=2, weight=1e6))

    def ask(one: Retriever) -> dict[str, str]:
        app = create_app(one, reader=reader)
        with TestClient(app) as client:
            systems = [{"question": question, "k": 50, "system": system} for system in ("gnn-encoder", "dual-encoder")]
            answers = {
                "/search": [client.post("/search", json=each) for each in systems]
                + [client.get("/search", params=each) for each in systems],
                "/compare": [client.post("/compare", json={"question": question, "k": 50})],
                "/answer": [client.post("/answer", json={"question": text.removesuffix(".")}) for text in texts],
                "/what-if": [
                    client.post("/what-if", json={"question": question, "passage": id_, "without": without, "k": 50})
                    for id_ in (gone.id, "p02")
                    for without in ([], ["train-02"])
                ],
                "/passages/{id:path}": [client.get(f"/passages/{gone.id}")],
                "/queries/{id:path}": [client.get(f"/queries/{id_}") for id_ in queries],
                "/graph": [client.get("/graph")],
                "/graph/neighbors": [client.get("/graph/neighbors", params=each) for each in neighbors],
                "/map/figures": [client.get("/map/figures")],
                "/map/points": [client.get("/map/points")],
                "/map/texts": [client.get("/map/texts", params={"rows": ",".join(map(str, range(40)))})],
                "/map/named": [client.get("/map/named", params={"name": name}) for name in (gone.id, gone.id[:2])],
                "/examples": [client.get("/examples")],
            }
        subjects = (questions, graph_routes, maps, feedback, status, pages)
        routed = (route.path for subject in subjects for route in subject.router.routes)
        assert {*routed} == answers.keys() | PAGES
        return {path: "\n".join(each.text for each in these) for path, these in answers.items()}

    return ask


def test_no_route_gives_a_removed_passage(tiny_run, tmp_path, asked, gone):
    place = shutil.copytree(tiny_run, tmp_path / "run")
    write_json(place / "examples.json", [{"question": "a question", "passage": id_} for id_ in (gone.id, "p02")])
    build_map(embeddings_behind(place), place / "map")
    before = asked(Retriever.open(place))
    remove_passages(place / "index", [gone.id])
    after = asked(Retriever.open(place))
    for path in before.keys() - {"/queries/{id:path}", "/map/figures", "/map/points"}:
        assert gone.id in before[path], path
    refusal = f"There is no passage '{gone.id}'."
    assert refusal in after["/passages/{id:path}"]
    for path, answer in after.items():
        assert gone.id not in answer.replace(refusal, ""), path
        assert gone.text not in answer, path
    assert '"p02"' in after["/examples"]
