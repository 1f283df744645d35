import base64
import json
import re
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.errors import ArtifactError, GnnRetrievalError
from gnnretrieval.maps.building import build_map
from gnnretrieval.maps.passage_map import open_map
from gnnretrieval.maps.points import points_of
from gnnretrieval.serve.map_page import WORDS, passage_texts, write_map_file
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.training.gnn.embeddings import KIND as EMBEDDINGS
from gnnretrieval.training.gnn.embeddings import open_embeddings

EVIL = "</script><script>alert(1)</script>$head & quoted"


@pytest.fixture
def shown(tiny_run):
    return open_map(tiny_run / "map")


@pytest.fixture
def written(shown, tmp_path):
    """``written(most, most_texts)``: the file's text and its data."""

    def write(most=100, most_texts=100):
        write_map_file(shown, tmp_path / "map.html", most=most, most_texts=most_texts)
        page = (tmp_path / "map.html").read_text("utf-8")
        found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
        return page, json.loads(found[1])

    return write


def test_the_file_has_the_points_as_binary(written, shown):
    page, data = written()
    assert base64.b64decode(data["points"]) == points_of(shown, 100).to_bytes()
    assert data["figures"]["passages"] == 40
    assert [one["id"] for one in sorted(data["passages"], key=lambda one: one["row"])] == [
        f"p{row:02d}" for row in range(40)
    ]
    assert len(data["questions"]) == 60
    assert "$" + "head" not in page


def test_the_file_has_texts_of_the_passages_that_moved_most(written, shown):
    _, data = written(most_texts=5)
    order = np.argsort(-shown.displacement, kind="stable")
    assert [one["row"] for one in data["passages"]] == order[:5].tolist()
    assert len(data["questions"]) == 5
    _, data = written(most=10, most_texts=0)
    assert (data["figures"]["passages"], data["passages"], data["questions"]) == (10, [], [])


def test_the_file_loads_nothing_and_forbids_loading(written):
    page, _ = written()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy == "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
    assert page.index("Content-Security-Policy") < page.index("<style>")
    assert not re.search(r"""\b(src|href)=["'](?!data:)""", page)
    assert not re.search(r"https?://(?!www\.w3\.org/)", page)


def test_a_text_cannot_end_its_script_element(written, monkeypatch):
    passage = TextStore.passage
    monkeypatch.setattr(TextStore, "passage", lambda self, row: passage(self, row)._replace(text=EVIL, title=EVIL))
    before = written(most_texts=0)[0].count("<script")
    page, data = written()
    assert {one["text"] for one in data["passages"]} == {EVIL}
    assert page.count("<script") == before


def test_texts_are_cut(tmp_path):
    from gnnretrieval.data.records import Passage
    from gnnretrieval.data.text_store import passage_rows

    with TextStore(tmp_path / "texts.sqlite", create=True) as texts:
        texts.add_passages(passage_rows([Passage("a", "", "word " * 1000)]))
        (one,) = passage_texts(texts, [0])
    assert len(one["text"]) == WORDS
    assert one["text"].endswith("…")


def test_passages_with_other_ids_and_the_same_vectors_make_another_page(tiny_run, shown, tmp_path):
    first = open_embeddings(tiny_run / "embeddings")

    def write(directory):
        for name in first.meta["files"]:
            shutil.copyfile(first.path / name, directory / name)
        with closing(sqlite3.connect(directory / "texts.sqlite")) as texts, texts:
            texts.execute("UPDATE passages SET id = 'new-' || id")
        names = ("similarity", "encoder", "checkpoint_hash", "num_passages", "dimension")
        made_from = {name: str(first.made_from(name)) for name in first.meta["made_from"]}
        return {name: first.meta[name] for name in names} | {"made_from": made_from}

    made = make_artifact(tmp_path / "embeddings", EMBEDDINGS, inputs=first.meta["inputs"], config={}, write=write)
    renamed = build_map(open_embeddings(made.path), tmp_path / "map")
    assert renamed.hash == shown.hash
    for one, ids in ((shown, '"id":"p00"'), (renamed, '"id":"new-p00"')):
        write_map_file(one, tmp_path / "map.html", most=100, most_texts=100)
        assert ids in (tmp_path / "map.html").read_text("utf-8")


def test_what_cannot_be_written_is_a_sentence(shown, tmp_path, tiny_run):
    (tmp_path / "file").write_text("")
    with pytest.raises(GnnRetrievalError):
        write_map_file(shown, tmp_path / "file" / "map.html", most=10, most_texts=0)
    alone = shutil.copytree(tiny_run / "map", tmp_path / "elsewhere" / "map")
    with pytest.raises(ArtifactError, match="no such directory"):
        write_map_file(open_map(alone), tmp_path / "map.html", most=10, most_texts=0)
