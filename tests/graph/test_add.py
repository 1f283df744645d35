"""A store after additions equals the store that was built with them, in every array."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.trec import write_run
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.encoders.vectors import VectorSettings, import_vectors
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.graph import GraphSettings, build_graph, open_graph
from gnnretrieval.graph.growth.add import add_to_graph
from gnnretrieval.graph.growth.additions import read_additions
from gnnretrieval.storage.places import scratch
from gnnretrieval.storage.updating import changed_since

NEW_QUERIES, NEW_PASSAGES = 7, 6


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines(keepends=True)


@pytest.fixture(scope="module")
def parts(tiny_dataset, tiny_settings, tmp_path_factory):
    """The dataset without its last training queries and without some passages, what it lacks, and the features of all.

    Rows are in the order of the files, so what is left out goes to the end of the whole set as well.
    """
    place = tmp_path_factory.mktemp("parts")
    corpus, queries = lines(tiny_dataset / "corpus.jsonl"), lines(tiny_dataset / "queries.jsonl")
    judged = lines(tiny_dataset / "qrels" / "train.tsv")
    late_queries = {f"train-{number:02d}" for number in range(60 - NEW_QUERIES, 60)}
    late_passages = {f"p{row:02d}" for row in (22, 25, 30, 31, 36, 39)}

    def is_late(line: str) -> bool:
        return line.split("\t")[0] in late_queries

    def split(records: list[str], late: set[str]) -> tuple[list[str], list[str]]:
        return [r for r in records if json.loads(r)["_id"] not in late], [
            r for r in records if json.loads(r)["_id"] in late
        ]

    early_corpus, late_corpus = split(corpus, late_passages)
    early_queries, new_queries = split(queries, late_queries)
    header, body = judged[:1], [line for line in judged[1:] if line.split("\t")[1] not in late_passages]
    of_late_passages = ["train-55\tp22\t1\n"]  # a new query with a new passage
    early = [line for line in body if not is_late(line)]
    late = [line for line in [*body, *of_late_passages] if is_late(line)]
    for name, some_corpus, some_queries, some_judged in (
        ("early", early_corpus, early_queries, early),
        ("more-passages", early_corpus + late_corpus, early_queries, early),
        ("more-queries", early_corpus, early_queries + new_queries, early + [x for x in late if x in body]),
        ("whole", early_corpus + late_corpus, early_queries + new_queries, early + late),
    ):
        directory = place / name
        (directory / "qrels").mkdir(parents=True)
        (directory / "corpus.jsonl").write_text("".join(some_corpus), encoding="utf-8")
        (directory / "queries.jsonl").write_text("".join(some_queries), encoding="utf-8")
        (directory / "qrels" / "train.tsv").write_text("".join(header + some_judged), encoding="utf-8")
        for other in ("dev", "test"):
            shutil.copy(tiny_dataset / "qrels" / f"{other}.tsv", directory / "qrels")
    (place / "queries.jsonl").write_text("".join(new_queries), encoding="utf-8")
    (place / "corpus.jsonl").write_text("".join(late_corpus), encoding="utf-8")
    (place / "qrels.tsv").write_text("".join(header + late), encoding="utf-8")
    (place / "early-qrels.tsv").write_text("".join(header + [x for x in late if x in body]), encoding="utf-8")
    whole = encode_dataset(Dataset.open(place / "whole"), tiny_settings, place / "features-whole")
    with_ids = {"corpus": whole.passages, "queries": whole.queries}
    rows = {"corpus": slice(len(early_corpus), None), "queries": slice(len(early_queries), None)}
    for name, array in with_ids.items():  # the very vectors, so that nothing but the graph is compared
        np.save(place / f"{name}.npy", array[rows[name]].astype(np.float32))
    return place


def features_of(parts: Path, name: str, tiny_settings):
    return encode_dataset(Dataset.open(parts / name), tiny_settings, parts / f"features-{name}")


def built(parts: Path, name: str, tiny_settings, settings: GraphSettings, out: Path, **files):
    features = features_of(parts, name, tiny_settings)
    return build_graph(Dataset.open(parts / name), features, settings, out, **files)


def added(graph, parts: Path, queries: bool, passages: bool, **more):
    qrels = "qrels.tsv" if passages else "early-qrels.tsv"
    additions = read_additions(
        open_graph(graph.path),
        queries=parts / "queries.jsonl" if queries else None,
        qrels=parts / qrels if queries else None,
        passages=parts / "corpus.jsonl" if passages else None,
        query_vectors=parts / "queries.npy" if queries else None,
        passage_vectors=parts / "corpus.npy" if passages else None,
        **more,
    )
    return None if additions is None else add_to_graph(graph.path, additions)


def require_equal(ours, theirs) -> None:
    """Every array, byte by byte, and every text."""
    names = {name for name in theirs.meta["files"] if name.endswith(".npy")}
    assert {name for name in ours.meta["files"] if name.endswith(".npy") and "changes/" not in name} == names
    for name in sorted(names):
        assert (ours.path / name).read_bytes() == (theirs.path / name).read_bytes(), name
    with ours.texts() as one, theirs.texts() as other:
        assert list(one.passages()) == list(other.passages())
        assert list(one.queries()) == list(other.queries())
        assert one.qrels() == other.qrels()
    assert (ours.num_passages, ours.num_queries) == (theirs.num_passages, theirs.num_queries)


@pytest.mark.parametrize(
    ("name", "queries", "passages"),
    [("more-queries", True, False), ("more-passages", False, True), ("whole", True, True)],
)
@pytest.mark.parametrize(
    "settings",
    [
        GraphSettings(k=5),
        GraphSettings(k=1),
        GraphSettings(k=2, edge_features=("reciprocal_rank",)),
        GraphSettings(k=5, label_edges=False, edge_features=("score", "reciprocal_rank", "bm25")),
    ],
    ids=["k=5", "k=1", "rank alone", "no labels"],
)
def test_what_is_added_is_as_if_it_had_always_been_there(
    parts, tiny_settings, tmp_path, name, queries, passages, settings
):
    graph = built(parts, "early", tiny_settings, settings, tmp_path / "graph")
    grown = added(graph, parts, queries, passages)
    require_equal(grown, built(parts, name, tiny_settings, settings, tmp_path / "at-once"))
    assert open_graph(graph.path).hash == grown.hash


def test_added_one_after_the_other_it_is_the_same(parts, tiny_settings, tmp_path):
    graph = built(parts, "early", tiny_settings, GraphSettings(k=5), tmp_path / "graph")
    added(graph, parts, False, True)
    additions = read_additions(
        open_graph(graph.path),
        queries=parts / "queries.jsonl",
        qrels=parts / "qrels.tsv",
        query_vectors=parts / "queries.npy",
    )
    grown = add_to_graph(graph.path, additions)
    require_equal(grown, built(parts, "whole", tiny_settings, GraphSettings(k=5), tmp_path / "at-once"))


def test_judgements_of_old_queries_are_heeded_as_if_they_had_always_been_there(parts, tiny_settings, tmp_path):
    graph = built(parts, "early", tiny_settings, GraphSettings(k=3), tmp_path / "graph")
    with graph.texts() as texts:
        query, other = texts.query(3).id, texts.query(17).id
        found = set(graph.neighbors[3].tolist())
        passage = texts.passage(next(row for row in range(graph.num_passages) if row not in found)).id
        seen = texts.passage(int(graph.neighbors[17][~graph.label_edges().reshape(-1, 3)[17]][0])).id
        judged = texts.passage(int(graph.labels[graph.labels[:, 0] == 17][0, 1])).id
    new = f"{query}\t{passage}\t1\n{query}\tp22\t1\n{other}\t{seen}\t1\n"  # p22 is new itself
    again = f"{other}\t{judged}\t0\n"  # judged anew: not relevant after all
    qrels = tmp_path / "qrels.tsv"
    qrels.write_text(f"query-id\tcorpus-id\tscore\n{new}{again}", encoding="utf-8")
    files = {"passages": parts / "corpus.jsonl", "passage_vectors": parts / "corpus.npy", "qrels": qrels}
    grown = add_to_graph(graph.path, read_additions(open_graph(graph.path), **files))
    whole = tmp_path / "whole"
    shutil.copytree(parts / "more-passages", whole)
    judgements = whole / "qrels" / "train.tsv"
    text = judgements.read_text(encoding="utf-8").replace(f"{other}\t{judged}\t1\n", again)
    judgements.write_text(text + new, encoding="utf-8")
    features = encode_dataset(Dataset.open(whole), tiny_settings, tmp_path / "features")
    require_equal(grown, build_graph(Dataset.open(whole), features, GraphSettings(k=3), tmp_path / "at-once"))
    assert grown.label_edges().reshape(-1, 3)[3].sum() == graph.label_edges().reshape(-1, 3)[3].sum() + 2


def test_the_encoder_of_the_store_encodes_what_comes_without_vectors(parts, tiny_settings, tmp_path):
    graph = built(parts, "early", tiny_settings, GraphSettings(k=5), tmp_path / "graph")
    additions = read_additions(open_graph(graph.path), queries=parts / "queries.jsonl", qrels=parts / "early-qrels.tsv")
    assert np.array_equal(additions.query_vectors, np.load(parts / "queries.npy"))  # a vector is its text's alone
    assert add_to_graph(graph.path, additions).num_queries == graph.num_queries + NEW_QUERIES


def test_a_query_without_labels_has_edges_and_is_called_what_it_is_said_to_be(parts, tiny_settings, tmp_path):
    graph = built(parts, "early", tiny_settings, GraphSettings(k=5), tmp_path / "graph")
    additions = read_additions(open_graph(graph.path), queries=parts / "queries.jsonl", split="clicks")
    grown = add_to_graph(graph.path, additions)
    assert len(grown.labels) == len(graph.labels)
    assert grown.view(split="clicks").degrees().sum() == 5 * NEW_QUERIES
    assert grown.view(split="train").degrees().tolist() == graph.degrees().tolist()


def test_it_says_which_passages_are_touched(parts, tiny_settings, tmp_path):
    settings = GraphSettings(k=5, edge_features=("score",))
    graph = built(parts, "early", tiny_settings, settings, tmp_path / "graph")
    old = np.array(graph.neighbors)
    grown = added(graph, parts, True, True)
    touched = set(changed_since(grown, graph.hash).tolist())
    m, n = graph.num_passages, graph.num_queries
    expected = set(range(m, grown.num_passages)) | set(grown.neighbors[n:].ravel().tolist())
    for row in range(n):
        if old[row].tolist() != grown.neighbors[row].tolist():
            expected |= {*old[row].tolist(), *grown.neighbors[row].tolist()}
    assert touched == expected
    assert 0 < len(touched) <= grown.num_passages


def test_the_same_files_are_not_added_twice(parts, tiny_settings, tmp_path):
    graph = built(parts, "early", tiny_settings, GraphSettings(k=5), tmp_path / "graph")
    first = added(graph, parts, True, False)
    assert added(first, parts, True, False) is None
    assert open_graph(graph.path).hash == first.hash
    with pytest.raises(InputError, match=r"7 of 7 queries are in the graph already, such as 'train-53'"):
        read_additions(open_graph(graph.path), queries=parts / "queries.jsonl")


def test_a_graph_of_a_run_grows_by_a_run(parts, tiny_settings, tmp_path, said):
    rng = np.random.default_rng(0)

    def run_of(name: str, queries: list[str], passages: list[str]) -> Path:
        ranked = {
            query: [ScoredPassage(id_, float(-rank)) for rank, id_ in enumerate(rng.permutation(passages)[:4].tolist())]
            for query in queries
        }
        write_run(tmp_path / f"{name}.run", ranked, "some")
        return tmp_path / f"{name}.run"

    dataset = Dataset.open(parts / "early")
    old = run_of("old", list(dataset.split("train")), dataset.passage_ids)
    whole = Dataset.open(parts / "more-queries")
    late = [query for query in whole.split("train") if query not in dataset.split("train")]
    new = run_of("new", late, dataset.passage_ids)
    (tmp_path / "both.run").write_text(old.read_text() + new.read_text())
    settings = GraphSettings(k=5, edges="run")
    graph = built(parts, "early", tiny_settings, settings, tmp_path / "graph", run=old)
    assert graph.meta["filled"] == graph.num_queries  # four of five are the run's
    with pytest.raises(GnnRetrievalError, match="its edges come from a run: give a run"):
        added(graph, parts, True, False)
    with pytest.raises(GnnRetrievalError, match="the run ranks no passage of the graph for any of the queries"):
        added(graph, parts, True, False, run=old)  # as a graph is not built from a run of other queries
    grown = added(graph, parts, True, False, run=new)
    assert said[-2] == f"{len(late)} of {5 * len(late)} edges come from the dual-encoder: run has fewer than 5 " + (
        "passages for some queries"
    )
    at_once = built(parts, "more-queries", tiny_settings, settings, tmp_path / "at-once", run=tmp_path / "both.run")
    require_equal(grown, at_once)
    assert grown.meta["filled"] == at_once.meta["filled"]


def test_of_a_run_that_was_filled_up_it_is_said_that_old_queries_keep_what_they_have(
    parts, tiny_settings, tmp_path, said
):
    dataset = Dataset.open(parts / "early")
    for count in (4, 5):
        ranked = {
            query: [ScoredPassage(id_, float(-rank)) for rank, id_ in enumerate(dataset.passage_ids[:count])]
            for query in dataset.split("train")
        }
        write_run(tmp_path / f"{count}.run", ranked, "some")
        settings = GraphSettings(k=5, edges="run", label_edges=False)
        run, out = tmp_path / f"{count}.run", tmp_path / f"graph-{count}"
        graph = built(parts, "early", tiny_settings, settings, out, run=run)
        grown = added(graph, parts, False, True)
        assert np.array_equal(grown.neighbors, graph.neighbors)
        kept = [line for line in said if line.startswith(f"old queries keep the {graph.num_queries} edges")]
        assert len(kept) == 1  # of the run of 4, and not again of the run of 5, which fills every list


def test_a_graph_by_bm25_takes_queries_and_refuses_passages(parts, tiny_settings, tmp_path):
    settings = GraphSettings(k=5, edges="bm25")
    graph = built(parts, "early", tiny_settings, settings, tmp_path / "graph")
    grown = added(graph, parts, True, False)
    require_equal(grown, built(parts, "more-queries", tiny_settings, settings, tmp_path / "at-once"))
    with pytest.raises(GnnRetrievalError, match="its edges are BM25's best, which new passages change for every query"):
        added(graph, parts, False, True)
    assert open_graph(graph.path).hash == grown.hash


def test_there_must_be_something_to_add(parts, tiny_settings, tmp_path):
    graph = built(parts, "early", tiny_settings, GraphSettings(k=5), tmp_path / "graph")
    with pytest.raises(GnnRetrievalError, match="there is nothing to add: give queries, passages, or both"):
        read_additions(graph)
    with pytest.raises(GnnRetrievalError, match="do not come from a run: leave out the run"):
        read_additions(graph, queries=parts / "queries.jsonl", run=parts / "some.run")
    graph.config["edges"] = "run"
    with pytest.raises(GnnRetrievalError, match="its edges come from a run: give a run"):
        read_additions(graph, queries=parts / "queries.jsonl")
    with pytest.raises(GnnRetrievalError, match="a run ranks passages for new queries, and there are none"):
        read_additions(graph, passages=parts / "passages.jsonl", run=parts / "some.run")
    graph.config["edges"] = "dual-encoder"
    with pytest.raises(InputError, match="there is no passage 'p22' in the dataset"):
        read_additions(graph, queries=parts / "queries.jsonl", qrels=parts / "qrels.tsv")


@pytest.mark.parametrize("entries", [{"checkpoint_hash": {"query": "0", "passage": "0"}}, {"encoder": {}}])
def test_a_checkpoint_that_changed_is_noticed(parts, tiny_settings, tmp_path, entries):
    graph = built(parts, "early", tiny_settings, GraphSettings(k=5), tmp_path / "graph")
    meta = json.loads((graph.path / "meta.json").read_text())
    (graph.path / "meta.json").write_text(json.dumps({**meta, **entries}))
    with pytest.raises(ArtifactError, match="which has other weights now"):
        read_additions(open_graph(graph.path), queries=parts / "queries.jsonl")


def test_nothing_is_left_of_an_addition_that_fails(parts, tiny_settings, tmp_path, monkeypatch):
    graph = built(parts, "early", tiny_settings, GraphSettings(k=5), tmp_path / "graph")
    before = {name: (graph.path / name).read_bytes() for name in graph.meta["files"]}
    monkeypatch.setattr("gnnretrieval.graph.growth.add.write_cheap_features", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        added(graph, parts, True, True)
    assert {name: (graph.path / name).read_bytes() for name in graph.meta["files"]} == before
    monkeypatch.undo()
    grown = added(graph, parts, True, True)
    require_equal(grown, built(parts, "whole", tiny_settings, GraphSettings(k=5), tmp_path / "at-once"))
    assert not scratch(grown.path).exists()


def test_a_graph_of_imported_vectors_grows_by_vectors_as_if_they_had_been_imported_at_once(parts, tmp_path):
    rng = np.random.default_rng(0)
    settings = VectorSettings(name="somebody", similarity="cosine")
    vectors = {"passages": rng.normal(size=(34, 8)), "queries": rng.normal(size=(80, 8))}
    made = {}
    for name, count in (("early", 80 - NEW_QUERIES), ("more-queries", 80)):
        dataset = Dataset.open(parts / name)
        files = [tmp_path / f"{name}-{kind}.npy" for kind in vectors]
        np.save(files[0], vectors["passages"])
        np.save(files[1], vectors["queries"][:count])
        features = import_vectors(dataset, *files, settings, tmp_path / f"features-{name}")
        made[name] = build_graph(dataset, features, GraphSettings(k=5), tmp_path / f"graph-{name}")
    np.save(tmp_path / "new.npy", vectors["queries"][80 - NEW_QUERIES :])
    graph = made["early"]
    asked, qrels = parts / "queries.jsonl", parts / "early-qrels.tsv"
    with pytest.raises(ArtifactError, match="its vectors were made outside of gnnretrieval"):
        read_additions(graph, queries=asked, qrels=qrels)
    additions = read_additions(graph, queries=asked, qrels=qrels, query_vectors=tmp_path / "new.npy")
    require_equal(add_to_graph(graph.path, additions), made["more-queries"])
