"""An index with several vectors a passage: its own, and one for each training question."""

import json
import os
import shutil

import numpy as np
import pytest
from click.testing import CliRunner
from pyarrow.parquet import read_table
from pydantic import ValidationError
from several_vectors import KEPT

from gnnretrieval import Retriever
from gnnretrieval.cli import cli
from gnnretrieval.encoders.exact_search import merge_top_k
from gnnretrieval.encoders.faiss_search import import_faiss
from gnnretrieval.encoders.features import open_features
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import ArtifactError
from gnnretrieval.graph.growth.add import add_to_graph
from gnnretrieval.graph.growth.additions import read_additions
from gnnretrieval.graph.store import open_graph
from gnnretrieval.index import build_index, open_index
from gnnretrieval.index.engines import DistinctEngine, FaissEngine, TorchEngine
from gnnretrieval.index.export import write_vectors
from gnnretrieval.index.hybrid import PIPELINES, RankingSettings
from gnnretrieval.index.purging import purge_passages
from gnnretrieval.index.settings import IndexSettings
from gnnretrieval.index.updating import remove_passages, update_index
from gnnretrieval.index.what_if import Change
from gnnretrieval.maps.building import build_map
from gnnretrieval.serve.schemas import SearchRequest
from gnnretrieval.shards import Sharding
from gnnretrieval.training import embed_passages, open_embeddings, update_embeddings
from gnnretrieval.training.gnn import embeddings as module
from gnnretrieval.training.gnn.embeddings import _first_of_equal
from gnnretrieval.training.gnn.model import open_model

SYSTEM, ONE_VECTOR, QUESTION = "gnn-encoder", "gnn-encoder-one-vector", "words that a question has"
GONE = ["p01", "p07"]
KINDS = {
    "flat": IndexSettings(),
    "parts": IndexSettings(parts=3),
    "lists": IndexSettings(factory="IVF4,Flat", search="nprobe=4"),
    "lists in parts": IndexSettings(factory="IVF4,Flat", search="nprobe=4", parts=2),
    "few lists": IndexSettings(factory="IVF4,Flat", search="nprobe=1"),
    "links": IndexSettings(factory="HNSW16", search="efSearch=256"),
}
EXACT = [kind for kind in KINDS if kind != "few lists"]


@pytest.fixture
def run(questions_run, tmp_path):
    """The same, to be changed."""
    return shutil.copytree(questions_run, tmp_path / "run", copy_function=os.link)


@pytest.fixture(scope="module")
def asked(questions_run):
    """Vectors of the dataset's queries."""
    return open_features(questions_run / "features").queries.astype(np.float32)


@pytest.fixture(scope="module")
def expected(questions_run, asked):
    """Scores of all passages for each query, by the equations."""
    graph, (heads, messages) = open_graph(questions_run / "graph"), open_model(questions_run / "model").load_questions()
    head, w, c, w_nearest = heads.queries.numpy(), messages.mean, messages.prior, messages.questions

    def unit(vectors):
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    passages = unit(graph.passage_features.astype(np.float32)) @ head.T
    queries = unit(graph.query_features.astype(np.float32)) @ head.T
    vectors, questions = np.empty_like(passages), (1 + c) * unit(queries) @ head
    for row in range(len(passages)):
        own = graph.labels[graph.labels[:, 1] == row, 0]
        mixed = (1 - w) * passages[row] + w * queries[own].mean(0) if len(own) else passages[row]
        vectors[row] = (1 + c * bool(len(own))) * unit(mixed[None])[0] @ head
    scores = asked @ vectors.T
    nearest = scores.copy()
    for query, passage in graph.labels.tolist():
        nearest[:, passage] = np.maximum(nearest[:, passage], asked @ questions[query])
    assert (nearest > scores).any(1).all()
    return (1 - w_nearest) * scores + w_nearest * nearest


def require_scores(rows, scores, expected):
    """The rankings are distinct rows with these scores, and no other row has more."""
    k = rows.shape[1]
    assert all(len(set(ranking)) == k for ranking in rows.tolist())
    np.testing.assert_allclose(scores, np.take_along_axis(expected, rows, 1), atol=2e-3)
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :k], atol=2e-3)


@pytest.mark.parametrize("kind", EXACT)
def test_scores_are_those_of_the_equation(kind, questions_run, asked, expected, tmp_path):
    index = build_index(open_embeddings(questions_run / "embeddings"), tmp_path / "index", KINDS[kind])
    assert index.meta["system"] == SYSTEM
    for k in (1, 5, 40):
        require_scores(*index.search(asked, k), expected)


def test_the_torch_engine_finds_the_same(questions_run, asked, expected):
    index = open_index(questions_run / "index", engine="torch")
    for k in (1, 5, 40):
        require_scores(*index.search(asked, k), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_more_than_there_are_are_all_passages_and_then_none(kind, questions_run, asked, expected, tmp_path):
    index = build_index(open_embeddings(questions_run / "embeddings"), tmp_path / "index", KINDS[kind])
    rows, scores = index.search(asked, 150)
    require_scores(rows[:, :40], scores[:, :40], expected)
    assert (rows[:, 40:] == -1).all()
    assert index.search(asked[:0], 3)[0].shape == (0, 3)


def test_workers_build_the_same_parts(questions_run, tmp_path):
    source, settings = open_embeddings(questions_run / "embeddings"), IndexSettings(parts=3)
    alone = build_index(source, tmp_path / "alone", settings)
    shared = build_index(source, tmp_path / "shared", settings, sharding=Sharding(shards=3))
    assert alone.hash == shared.hash


@pytest.mark.parametrize("engine", ["faiss", "torch"])
@pytest.mark.parametrize("ties", [None, lambda rows: -rows])
def test_passages_of_equal_score_are_found_in_the_order_of_ties(engine, ties):
    rng = np.random.default_rng(0)
    passages = np.concatenate([np.arange(20), rng.integers(0, 8, 60)])
    vectors = rng.integers(-2, 3, (80, 3)).astype(np.float16)
    queries = rng.integers(-2, 3, (30, 3)).astype(np.float32)
    faiss = import_faiss().IndexFlatIP(3)
    faiss.add(vectors.astype(np.float32))
    removed, similarity = np.array([3, 25, 26]), Similarity(normalize=False, scale=1.0)
    numbers = np.where(np.isin(np.arange(80), removed), -1, np.arange(80))
    of_vectors = FaissEngine(faiss, rows=numbers) if engine == "faiss" else TorchEngine(vectors, similarity, removed)
    best = np.full((30, 20), np.finfo(np.float32).min, dtype=np.float32)
    for number in np.setdiff1d(np.arange(80), removed):
        score = queries @ vectors[number].astype(np.float32)
        best[:, passages[number]] = np.maximum(best[:, passages[number]], score)
    rows = np.where(best > np.finfo(np.float32).min, np.arange(20), -1)
    for k in range(1, 23):
        wanted, scores, _ = merge_top_k(rows, best, min(k, 20), ties)
        found, got = DistinctEngine(of_vectors, passages, ties).search(queries, k)
        np.testing.assert_array_equal(found[:, :20], wanted)
        np.testing.assert_array_equal(got[:, :20], scores)
        assert (found[:, 20:] == -1).all()


def test_a_passage_with_many_near_vectors_hides_no_other():
    vectors = np.concatenate([np.full((200, 1), 2.0), np.arange(10)[:, None] / 10]).astype(np.float16)
    passages = np.concatenate([np.zeros(200, dtype=np.int64), np.arange(10)])
    engine = TorchEngine(vectors, Similarity(normalize=False, scale=1.0), np.empty(0, dtype=np.int64))
    rows, _ = DistinctEngine(engine, passages).search(np.ones((2, 1), dtype=np.float32), 3)
    assert rows.tolist() == [[0, 9, 8]] * 2


@pytest.mark.parametrize("kind", ["flat", "parts", "lists", "links"])
def test_all_vectors_of_a_removed_passage_are_gone(kind, questions_run, asked, expected, tmp_path):
    source = open_embeddings(questions_run / "embeddings")
    index = build_index(source, tmp_path / "index", KINDS[kind])
    gone = [index.texts.rows_of_passages(GONE)[id_] for id_ in GONE]
    left = expected.copy()
    left[:, gone] = -np.inf
    require_scores(*search_without(index, gone, asked), left)
    removed = remove_passages(index.path, GONE[:1])
    require_scores(*search_without(removed, gone[1:], asked), left)
    removed = remove_passages(index.path, GONE[1:])
    assert removed.meta["num_passages"] == 38
    assert removed.meta["num_vectors"] == len(source.vectors) - np.isin(source.rows, gone).sum()
    for engine in ("faiss", "torch"):
        opened = open_index(index.path, engine=engine)
        for k in (5, 38):
            require_scores(*opened.search(asked, k), left)
        assert (opened.search(asked, 40)[0][:, 38:] == -1).all()


def search_without(index, rows, queries):
    return index.engine_without(np.array(rows)).search(queries, 38)


@pytest.mark.parametrize(
    ("kind", "by"),
    [("flat", "index"), ("lists", "index"), ("links", "index"), ("flat", "index-one-vector")],
)
def test_no_file_holds_a_vector_of_a_purged_passage(kind, by, run, asked, expected):
    source = open_embeddings(run / "embeddings")
    index = build_index(source, run / "index", KINDS[kind], overwrite=True)
    gone = [index.texts.rows_of_passages(GONE)[id_] for id_ in GONE]
    vectors = np.array(source.vectors[np.isin(source.rows, gone)])
    assert len(vectors) > 4
    traces = [one.tobytes() for vector in vectors for one in (vector, vector.astype(np.float32))]
    traces += [index.texts.passage(row).text.encode() for row in gone]

    def holding():
        files = [file for file in run.rglob("*") if file.is_file()]
        return {file.relative_to(run).parts[0] for file in files if any(one in file.read_bytes() for one in traces)}

    assert {"embeddings", "index"} <= holding()
    purge_passages(run / by, GONE)
    assert holding() == set()
    left = expected.copy()
    left[:, gone] = -np.inf
    for engine in ("faiss", "torch"):
        require_scores(*open_index(index.path, engine=engine).search(asked, 38), left)
    assert not np.isin(open_index(run / "index-one-vector").search(asked, 38)[0], gone).any()


def test_equal_vectors_of_a_passage_are_kept_once():
    vectors = np.array([[1, 2], [1, 2], [3, 4], [3, 4], [3, 4], [1, 2], [5, 6]], dtype=np.float16)
    rows = np.array([0, 1, 0, 1, 0, 0, 0])
    assert _first_of_equal(vectors, rows).tolist() == [0, 1, 2, 3, 5, 6]


def test_embeddings_have_the_passages_vectors_first_and_nothing_changes_without_questions(questions_run, tmp_path):
    source, graph = open_embeddings(questions_run / "embeddings"), open_graph(questions_run / "graph")
    assert source.rows.tolist() == [*range(40), *graph.labels[:, 1].tolist()]
    np.testing.assert_array_equal(source.passages, source.vectors[:40])
    index = open_index(questions_run / "index")
    np.testing.assert_array_equal(index.vectors, source.passages)
    plain = embed_passages(open_model(questions_run / "model"), graph, tmp_path / "plain", one_vector=True)
    assert plain.hash == open_embeddings(questions_run / "embeddings-one-vector").hash
    assert plain.meta["fingerprint"] == open_embeddings(questions_run / "embeddings-one-vector").meta["fingerprint"]
    assert plain.rows is None
    assert (plain.is_reduced, source.is_reduced) == (True, False)
    assert open_index(questions_run / "index-one-vector").meta["system"] == ONE_VECTOR


def test_the_system_is_the_same_where_training_kept_one_vector(tiny_run, tmp_path):
    model, graph = open_model(tiny_run / "model"), open_graph(tiny_run / "graph")
    for one_vector in (True, False):
        made = embed_passages(model, graph, tmp_path / "embeddings", one_vector=one_vector)
        assert not made.is_reduced
        assert made.meta["fingerprint"] == open_embeddings(tiny_run / "embeddings").meta["fingerprint"]
        assert build_index(made, tmp_path / "index").meta["system"] == SYSTEM


def test_kept_vectors_go_with_one_vector_a_passage(run, tmp_path):
    model, graph = open_model(run / "model"), open_graph(run / "graph")
    kept = open_embeddings(run / "embeddings-one-vector")
    with pytest.raises(ArtifactError, match="Embed with one_vector"):
        embed_passages(model, graph, tmp_path / "none", kept=kept)
    assert embed_passages(model, graph, tmp_path / "kept", kept=kept, one_vector=True).hash == kept.hash


def test_without_memory_for_several_vectors_a_passage_has_one(run, tmp_path, monkeypatch, said):
    model, graph = open_model(run / "model"), open_graph(run / "graph")
    monkeypatch.setattr(module, "memory_limit", lambda: module._bytes_of_several(graph) - 1)
    made = embed_passages(model, graph, tmp_path / "embeddings")
    assert made.hash == open_embeddings(run / "embeddings-one-vector").hash
    assert build_index(made, tmp_path / "index").meta["system"] == SYSTEM
    assert "one vector a passage: one more for each training question would not fit into memory" in said


@pytest.fixture
def grown(run, tmp_path):
    """The run's graph after a new passage and three new questions, two of them with the same label."""
    records = {
        "corpus": [{"_id": "new", "title": "", "text": "a new passage"}],
        "queries": [{"_id": f"asked-{n}", "text": text} for n, text in enumerate(("new words", "other words", "more"))],
    }
    for name, rows in records.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    labels = ("asked-0 new", "asked-1 new", "asked-2 p00")
    lines = "".join("\t".join((*label.split(), "1")) + "\n" for label in labels)
    (tmp_path / "labels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}")
    files = {"passages": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "labels.tsv"}
    given = {name: tmp_path / file for name, file in files.items()}
    return add_to_graph(run / "graph", read_additions(open_graph(run / "graph"), **given))


@pytest.mark.parametrize("kind", ["flat", "parts", "lists", "links"])
def test_what_is_brought_up_to_a_grown_graph_is_what_is_made_anew(kind, run, grown, asked, tmp_path):
    path = build_index(open_embeddings(run / "embeddings"), run / "index", KINDS[kind], overwrite=True).path
    before = remove_passages(path, GONE)
    updated = update_embeddings(open_model(run / "model"), grown, run / "embeddings")
    anew = embed_passages(open_model(run / "model"), grown, tmp_path / "anew")
    np.testing.assert_array_equal(updated.vectors, anew.vectors)
    np.testing.assert_array_equal(updated.rows, anew.rows)
    assert len(updated.vectors) == 101 + 1 + 3
    index = update_index(updated, path)
    assert index.meta["num_passages"] == before.meta["num_passages"] + 1 == 39
    gone = np.isin(updated.rows, before.removed)
    assert index.meta["num_vectors"] == 105 - gone.sum()
    vectors = updated.vectors.astype(np.float32)
    files = [file.read_bytes() for file in path.glob("*.faiss")]
    assert not any(vector.tobytes() in file for vector in vectors[gone] for file in files)
    best = np.full((len(asked), 41), -np.inf)
    for row, scores in zip(updated.rows[~gone], vectors[~gone] @ asked.T, strict=True):
        best[:, row] = np.maximum(best[:, row], scores)
    for engine in ("faiss", "torch"):
        require_scores(*open_index(path, engine=engine).search(asked, 39), best)
    assert update_embeddings(open_model(run / "model"), grown, run / "embeddings").hash == updated.hash
    assert update_index(updated, path).hash == index.hash
    again = remove_passages(path, ["new"])
    assert again.meta["num_vectors"] == index.meta["num_vectors"] - 3


def test_an_explanation_is_of_the_messages_that_made_the_vectors(questions_run):
    retriever = Retriever.open(questions_run / "index")
    assert retriever.explain("p00").own_attention == pytest.approx(1 - KEPT.mean)
    assert [neighbor.attention for neighbor in retriever.explain("p00").neighbors] == [pytest.approx(KEPT.mean / 3)] * 3
    hits = retriever.search(QUESTION, 5, SYSTEM)
    assert len({hit.id for hit in hits}) == 5
    assert [moved.hit for moved in retriever.compare(QUESTION, 5).gnn_encoder] == hits
    assert len(retriever.why(QUESTION, hits)) == 5
    assert retriever.name == SYSTEM
    assert SearchRequest(question=QUESTION, system=SYSTEM).system == SYSTEM


def test_a_what_if_takes_a_training_question_s_vector_away(questions_run):
    retriever = Retriever.open(questions_run / "index")
    asked, text = retriever.query("train-00"), retriever.query("train-00").text
    passage = retriever.texts.passage(retriever.texts.relevant_to(asked.row)[0]).id
    hits = retriever.search(text, 40)
    matched = {hit.id: why.matched for hit, why in zip(hits, retriever.why(text, hits), strict=True)}
    assert matched[passage].id == "train-00"
    as_it_is = retriever.what_if(text, Change(passage), 40)
    assert [one.hit for one in as_it_is.before] == [one.hit for one in as_it_is.after]
    scores = {}
    for name, tried in {
        "without": Change(passage, without=["train-00"]),
        "none": Change(passage, scale=0.0),
        "asked": Change(passage, without=["train-00"], asked=[text]),
    }.items():
        found = retriever.what_if(text, tried, 40)
        scores[name] = {one.hit.id: one.hit.score for one in found.after}[passage]
    stored = {one.hit.id: one.hit.score for one in as_it_is.before}[passage]
    assert scores["without"] < stored - 1e-3
    assert scores["asked"] == pytest.approx(stored, abs=2e-3)
    assert scores["none"] < stored


def test_an_explanation_names_the_training_question_that_matched(questions_run):
    graph, model = open_graph(questions_run / "graph"), open_model(questions_run / "model")
    heads, messages = model.load_questions()
    retriever, plain = (Retriever.open(questions_run / name) for name in ("index", "index-one-vector"))
    passages = open_embeddings(questions_run / "embeddings").passages.astype(np.float32)
    found = []
    for query in [retriever.query(f"train-{number:02}") for number in range(0, 40, 4)]:
        asked, hits = retriever.encode([query.text])[0], retriever.search(query.text, 10)
        for hit, why in zip(hits, retriever.why(query.text, hits), strict=True):
            own = asked @ passages[hit.row]
            if why.matched is not None:
                head, vector = heads.queries.numpy(), graph.query_features[why.matched.row].astype(np.float32)
                headed = head @ (vector / np.linalg.norm(vector))
                matched = (1 + messages.prior) * asked @ head.T @ (headed / np.linalg.norm(headed))
                own += messages.questions * (matched - own)
                found.append((query.id, why.matched.id))
                assert [why.matched.row, hit.row] in graph.labels.tolist()
            assert hit.score == pytest.approx(own, abs=2e-3)
        assert {why.matched for why in plain.why(query.text, hits)} == {None}
    assert any(asked == matched for asked, matched in found)


def test_exported_vectors_rank_as_the_index_does(run, asked, tmp_path):
    index = remove_passages(run / "index", GONE)
    write_vectors(index, tmp_path / "vectors.npy")
    vectors, ids = np.load(tmp_path / "vectors.npy"), (tmp_path / "vectors.ids.txt").read_text().split()
    assert len(vectors) == len(ids) == index.meta["num_vectors"]
    assert ids == sorted(ids)
    assert not {*ids} & {*GONE}
    write_vectors(index, tmp_path / "vectors.parquet")
    table = read_table(tmp_path / "vectors.parquet")
    assert table["id"].to_pylist() == ids
    with index.texts as texts:
        known = {passage.id: passage.text for passage in texts.passages()}
    assert table["text"].to_pylist() == [known[id_] for id_ in ids]
    best = {id_: (asked @ vectors[[at for at, one in enumerate(ids) if one == id_]].T).max(1) for id_ in known}
    rows, scores = index.search(asked, len(known))
    for at, ranking in enumerate(rows.tolist()):
        found = [best[f"p{row:02}"][at] for row in ranking]
        np.testing.assert_allclose(found, scores[at], atol=1e-5)


def test_a_map_is_of_the_messages_that_made_the_vectors(questions_run, tmp_path):
    several = build_map(open_embeddings(questions_run / "embeddings"), tmp_path / "several")
    plain = build_map(open_embeddings(questions_run / "embeddings-one-vector"), tmp_path / "plain")
    assert several.meta["after_head"]
    assert several.hash != plain.hash


def test_damaged_rows_are_refused(run):
    for name in ("embeddings", "index"):
        rows = np.load(run / name / "rows.npy")
        rows[50] = 40
        (run / name / "rows.npy").unlink()
        np.save(run / name / "rows.npy", rows)
    with pytest.raises(ArtifactError, match="it has row 40"):
        _ = open_embeddings(run / "embeddings").rows
    with pytest.raises(ArtifactError, match=r"rows\.npy: this array is damaged"):
        _ = open_index(run / "index").engine


def test_the_pipeline_is_over_the_index_that_it_was_chosen_for(run):
    settings = RankingSettings(system=SYSTEM, hybrid=True)
    pipeline = {"provenance": {"pipeline": settings.model_dump(mode="json")}}
    (run / PIPELINES).unlink()
    (run / PIPELINES).write_text(json.dumps(pipeline))
    assert RankingSettings.of_run(run) == RankingSettings.of_run(run / "index") == settings
    assert Retriever.open(run, ranking=RankingSettings.of_run(run)).name == f"{SYSTEM}+bm25"
    for index in ("index-one-vector", "index-dual-encoder"):
        with pytest.raises(ArtifactError, match=r"pipeline is over gnn-encoder\. Give .*/index\."):
            RankingSettings.of_run(run / index)
    with pytest.raises(ArtifactError, match=r"Give .*/index\."):
        Retriever.open(run / "index-one-vector", ranking=settings)
    with pytest.raises(ValidationError, match="gnn-encoder"):
        RankingSettings(system="dual-encoder")
    found = CliRunner().invoke(cli, ["search", QUESTION, "--index", str(run), "--pipeline", "--json"])
    assert json.loads(found.stdout)["system"] == f"{SYSTEM}+bm25"


def test_the_commands_make_and_describe_it(run, asked):
    def says(*words):
        result = CliRunner().invoke(cli, [*map(str, words)], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    for name in ("embeddings", "index"):
        shutil.rmtree(run / name)
    one = says("embed", run / "model", "--one-vector", "--overwrite")
    assert f"{run / 'embeddings-one-vector'}: 40 passages, 32 dimensions" in one
    assert "40 passages, 101 vectors, 32 dimensions" in says("embed", run / "model")
    assert "40 passages, 101 vectors" in says("index", "build", run / "embeddings")
    inspected = says("index", "inspect", run / "index")
    assert "40 passages, 101 vectors" in inspected
    assert "recall of vectors against exact search" in inspected
    assert json.loads(says("index", "inspect", run / "index", "--json"))["vectors"] == 101
    assert "vectors" not in json.loads(says("index", "inspect", run / "index-one-vector", "--json"))
