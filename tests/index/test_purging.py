"""Purged passages are in no file: not their texts, nor their vectors, nor what lay on their edges."""

import json
import os
import shutil
import sqlite3

import numpy as np
import pytest

from gnnretrieval import Retriever
from gnnretrieval.data import Dataset
from gnnretrieval.encoders.features import open_features
from gnnretrieval.errors import ArtifactError
from gnnretrieval.graph import GraphSettings, build_graph
from gnnretrieval.index import build_index, open_index, purging
from gnnretrieval.index.purging import _still_holding, purge_passages
from gnnretrieval.index.settings import IndexSettings
from gnnretrieval.index.updating import remove_passages, update_index
from gnnretrieval.pages.html import escape, short, write_page
from gnnretrieval.serve.static_files import in_script
from gnnretrieval.storage.locks import beside
from gnnretrieval.training import TrainSettings, embed_passages, train_gnn

GONE = ["p01", "p07"]
ARTIFACTS = ("features", "graph", "embeddings", "index-dual-encoder", "index")


@pytest.fixture
def run(tiny_run, tmp_path):
    """The run, its files shared with the run that all tests read."""
    return shutil.copytree(tiny_run, tmp_path / "run", copy_function=os.link)


@pytest.fixture
def traces(run):
    """Bytes by which a purged passage is known: texts, and vectors as features, embeddings and in FAISS."""
    retriever = Retriever.open(run)
    found = [retriever.passage(id_).text.encode() for id_ in GONE]
    rows = [retriever.passage(id_).row for id_ in GONE]
    for vectors in (retriever.graph.passage_features, retriever.index.vectors):
        found += [np.array(vectors[row]).tobytes() for row in rows]
        found += [retriever.index.similarity.prepare_array(np.array(vectors[row])).tobytes() for row in rows]
    return found


def holding(directory, traces):
    """Files of ``directory``, hidden ones too, that hold one of the traces."""
    files = [file for file in directory.rglob("*") if file.is_file()]
    return {str(file.relative_to(directory)) for file in files if any(one in file.read_bytes() for one in traces)}


def contents(directory):
    return {file: file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def test_no_file_holds_them_and_no_other_name_of_a_file_is_touched(run, tiny_run, traces):
    assert {name.split("/")[0] for name in holding(run, traces)} == {*ARTIFACTS}
    others = contents(tiny_run)
    shutil.copytree(run / "index", beside(run / "index", "old"))
    purge_passages(run / "index", GONE)
    assert holding(run, traces) == set()
    assert contents(tiny_run) == others
    inodes = [{(where / name / "texts.sqlite").stat().st_ino for name in ARTIFACTS} for where in (run, tiny_run)]
    assert len(inodes[0]) == len(inodes[1])  # what was shared is shared
    assert inodes[0].isdisjoint(inodes[1])
    with sqlite3.connect(f"file:{run / 'graph' / 'texts.sqlite'}?mode=ro", uri=True) as texts:
        rows = [row for (row,) in texts.execute("SELECT row FROM passages WHERE text = '' ORDER BY row")]
        assert [row for (row,) in texts.execute("SELECT DISTINCT passage FROM qrels") if row in rows] == []
    graph = Retriever.open(run).graph
    assert len(rows) == 2
    assert not graph.scores[np.isin(graph.neighbors, rows)].any()
    assert not graph.edge_arrays.cheap[np.isin(graph.neighbors, rows)].any()


def test_all_else_answers_as_before(run, tiny_dataset):
    remove_passages(run / "index", GONE)
    questions = [query.text for query in Dataset.open(tiny_dataset).queries_of("test")]
    hidden = Retriever.open(run)
    expected = [hidden.search_all(questions, 38, system) for system in (None, "dual-encoder")]
    compared, why = hidden.compare_all(questions, 5), hidden.explain("p02")
    purge_passages(run / "index", GONE)
    purged = Retriever.open(run)
    assert [purged.search_all(questions, 38, system) for system in (None, "dual-encoder")] == expected
    assert purged.compare_all(questions, 5) == compared
    assert [one.id for one in purged.explain("p02").neighbors] == [one.id for one in why.neighbors]
    assert purged.index.vectors.shape == (40, 32)


@pytest.mark.parametrize("steps", range(len(ARTIFACTS)))
def test_interrupted_the_same_call_goes_on(run, traces, monkeypatch, steps):
    done, update = [], purging.update_artifact

    def interrupted(*args, **how):
        if len(done) == steps:
            raise KeyboardInterrupt
        done.append(update(*args, **how))

    monkeypatch.setattr(purging, "update_artifact", interrupted)
    with pytest.raises(KeyboardInterrupt):
        purge_passages(run / "index", GONE)
    monkeypatch.undo()
    assert holding(run, traces) != set()
    assert "p01" not in repr(Retriever.open(run).search("a question", 40))
    purge_passages(run / "index", GONE)
    assert holding(run, traces) == set()
    embeddings = open_index(run / "index").vectors  # the index knows what it was made from, as it is now
    assert not embeddings[[1, 7]].any()


def test_killed_between_two_renames_nothing_is_left_out(run, traces):
    (run / "features").rename(beside(run / "features", "old"))
    shutil.copytree(run / "graph", beside(run / "graph", "old"))
    purge_passages(run / "index", GONE)
    assert holding(run, traces) == set()
    assert (run / "features" / "meta.json").is_file()


def test_features_that_are_gone_are_named_and_the_rest_is_purged(run, traces, said):
    shutil.rmtree(run / "features")
    purge_passages(run / "index", GONE)
    assert holding(run, traces) == set()
    assert any("features that" in line and line.endswith("are not there any more") for line in said)


def test_done_again_it_does_nothing_and_more_passages_can_follow(run, traces, said):
    first = purge_passages(run / "index", GONE).hash
    assert len([line for line in said if "lost the text and vectors of 2 passages" in line]) == len(ARTIFACTS)
    said.clear()
    assert purge_passages(run / "index", GONE).hash == first
    assert not [line for line in said if "lost the text" in line]
    index = purge_passages(run / "index", ["p02"])
    assert index.meta["num_passages"] == 37
    assert index.removed.tolist() == [1, 2, 7]


def test_files_beside_it_that_hold_the_text_and_the_dataset_are_named(run, said):
    text = Retriever.open(run).passage("p01").text
    (run / "report.html").write_text(f"<p>{text}</p>", encoding="utf-8")
    purge_passages(run / "index", GONE)
    assert f"{run / 'report.html'}: it still holds the text of a purged passage. Delete it, or make it again." in said
    assert [line for line in said if "the dataset is left as it is" in line]
    (features,) = [line for line in said if line.startswith(str(run / "features" / "texts.sqlite"))]
    assert "2 other artifacts share this file and will still hold the texts" in features


def test_pages_that_show_only_the_beginning_of_a_text_are_named(run):
    text = (
        "a <b> & more words,\nso many that a page of the map or of the run shows only the first few hundred of them" * 5
    )
    page = run / "map.html"
    write_page(f'<script type="application/json">{in_script(json.dumps({"text": text[:300]}))}</script>', page)
    write_page(f"<p>{escape(short(text))}</p>", run / "report.html")
    write_page("<p>a page without it</p>", run / "other.html")
    assert [*_still_holding(run, [text])] == [page, run / "report.html"]


def test_nothing_new_is_made_of_what_was_purged(run, tmp_path, tiny_dataset):
    purge_passages(run / "index", GONE)
    retriever, dataset = Retriever.open(run), Dataset.open(tiny_dataset)
    graph, features = retriever.graph, open_features(run / "features")
    for make in (
        lambda: build_index(open_features(run / "features"), tmp_path / "new"),
        lambda: build_graph(dataset, features, GraphSettings(k=5), tmp_path / "new"),
        lambda: train_gnn(graph, dataset, features, TrainSettings(), tmp_path / "new"),
        lambda: embed_passages(retriever.model, graph, tmp_path / "new"),
    ):
        with pytest.raises(ArtifactError, match="passages were purged from it, and it only serves the index"):
            make()


@pytest.mark.parametrize("factory", ["Flat", "SQ8", "PQ8", "IVF16,Flat", "HNSW8", "PCA12,Flat", "IVF16,PQ8,RFlat"])
def test_vectors_leave_the_file_of_every_kind(make_features, tmp_path, factory):
    features = make_features(tmp_path / "features", 600)
    search = {"search": "nprobe=16"} if "IVF" in factory else {}
    index = build_index(features, tmp_path / "index", IndexSettings(factory=factory, **search))
    gone = np.arange(0, 600, 50)
    code_of = index.faiss.sa_encode if factory in {"Flat", "SQ8", "PQ8", "PCA12,Flat"} else None
    vectors = index.similarity.prepare_array(np.array(features.passages[gone]))
    codes = [row.tobytes() for row in (vectors if code_of is None else code_of(vectors))]
    before = (tmp_path / "index" / "index.faiss").read_bytes()
    held = [code for code in codes if code in before]
    assert len(held) == len(codes)
    asked = np.array(features.queries[:20], dtype=np.float32)
    remove_passages(tmp_path / "index", [f"p{row}" for row in gone])
    expected, _ = open_index(tmp_path / "index").search(asked, 10)
    purge_passages(tmp_path / "index", [f"p{row}" for row in gone])
    after = (tmp_path / "index" / "index.faiss").read_bytes()
    assert [code for code in codes if code in after] == []
    found, _ = open_index(tmp_path / "index").search(asked, 10)
    assert np.mean([len({*one} & {*other}) for one, other in zip(found, expected, strict=True)]) > 9.5


def test_another_index_of_the_same_vectors_is_not_brought_up_to_them_before_it_is_purged_too(run):
    embeddings = Retriever.open(run)._embeddings
    build_index(embeddings, run / "other")
    purge_passages(run / "index", GONE)
    embeddings = Retriever.open(run)._embeddings
    with pytest.raises(
        ArtifactError, match=r"2 of its passages were purged from .*such as 'p01'\. Purge them from it too"
    ):
        update_index(embeddings, run / "other")
    purge_passages(run / "other", GONE)
    assert update_index(embeddings, run / "other").meta["num_passages"] == 38
    assert {hit.id for hit in Retriever.open(run / "other").search("some words", 40)}.isdisjoint(GONE)


@pytest.mark.parametrize("factory", ["NSG16", "PQ8x4fs", "IVF16,PQ8x4fs"])
@pytest.mark.parametrize("name", ["index", "index-dual-encoder"])
def test_a_kind_that_no_vector_can_leave_is_refused_before_anything_is_purged(make_features, tmp_path, factory, name):
    features = make_features(tmp_path / "features", 600)
    build_index(features, tmp_path / name, IndexSettings(factory=factory))
    if name != "index":
        build_index(features, tmp_path / "index")
    before = contents(tmp_path)
    with pytest.raises(ArtifactError, match=f"vectors of {factory} cannot be taken out .*nothing was purged"):
        purge_passages(tmp_path / "index", ["p1"])
    assert contents(tmp_path) == before


def test_sentences_are_purged_with_their_passage(tiny_dataset, tiny_settings, tmp_path):
    from gnnretrieval.encoders.features import encode_dataset

    settings = tiny_settings.model_copy(update={"sentences": "mean"})
    features = encode_dataset(Dataset.open(tiny_dataset), settings, tmp_path / "features")
    index = build_index(features, tmp_path / "index", sentences=True)
    rows = index.vector_rows(np.array([1, 7]))
    traces = [np.array(features.sentences[row]).tobytes() for row in rows]
    traces += [index.similarity.prepare_array(np.array(features.sentences[row])).tobytes() for row in rows]
    assert holding(tmp_path, traces)
    purge_passages(tmp_path / "index", GONE)
    assert holding(tmp_path, traces) == set()
    assert not open_features(tmp_path / "features").sentences[rows].any()


def test_tokens_are_purged_with_their_passage(tiny_late, tmp_path):
    place = tmp_path / "features"
    shutil.copytree(tiny_late.path, place)
    features = open_features(place)
    build_index(features, tmp_path / "index")
    starts = features.token_starts
    rows = np.concatenate([np.arange(starts[row], starts[row + 1]) for row in (1, 7)])
    own = np.array(features.tokens[rows])
    assert own.any()
    purge_passages(tmp_path / "index", GONE)
    left = open_features(place)
    assert not left.tokens[rows].any()
    assert left.tokens[: starts[1]].any()
