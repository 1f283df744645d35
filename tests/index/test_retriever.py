import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from gnnretrieval import Retriever
from gnnretrieval.data import Dataset
from gnnretrieval.encoders.exact_search import ranks_of
from gnnretrieval.encoders.faiss_search import import_faiss
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.index import open_index, retriever
from gnnretrieval.index.baseline import Baseline
from gnnretrieval.index.comparison import EncoderComparison
from gnnretrieval.index.hybrid import RankingSettings
from gnnretrieval.storage.provenance import write_json


@pytest.fixture(scope="module")
def opened(tiny_run):
    return Retriever.open(tiny_run)


@pytest.fixture(scope="module")
def questions(tiny_dataset):
    return [query.text for query in Dataset.open(tiny_dataset).queries_of("test")]


def test_importing_the_package_loads_nothing_slow():
    code = "import sys, gnnretrieval; print([name for name in ('torch', 'numpy', 'pydantic') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_address_of_an_endpoint_is_refused_where_none_encodes(tiny_run, opened):
    for given in ({}, {"encoder": opened.encoder}):
        with pytest.raises(GnnRetrievalError, match=r"leave out the address http://127.0.0.1:1 \(--endpoint\)"):
            Retriever.open(tiny_run, endpoint="http://127.0.0.1:1", **given)


def test_it_ranks_one_question_as_among_many_as_vectors_and_as_a_run(opened, questions):
    expected = [opened.search(question, 7) for question in questions]
    assert opened.search_all(questions, 7) == expected
    vectors = opened.encoder.encode(questions, "query")
    assert opened.search_vectors(vectors, 7) == expected
    run = opened.run({str(number): question for number, question in enumerate(questions)}, 7)
    assert [[(hit.id, hit.score) for hit in hits] for hits in expected] == [*run.values()]


def test_what_joins_the_index_ranks_questions_too(tiny_run, opened, questions):
    joined = Retriever.open(tiny_run, ranking=RankingSettings(hybrid=True))
    run = joined.run({str(number): question for number, question in enumerate(questions)}, 7)
    found = [[(hit.id, hit.score) for hit in hits] for hits in joined.search_all(questions, 7)]
    assert found == [*run.values()]
    assert found != [[(hit.id, hit.score) for hit in hits] for hits in opened.search_all(questions, 7)]
    assert joined.search_all(questions, 7, "dual-encoder") == opened.search_all(questions, 7, "dual-encoder")
    assert (opened.name, joined.name) == ("gnn-encoder", "gnn-encoder+bm25")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda it: it.search(["a", "b"]), r"search takes one question, and this is a list: search_all takes several"),
        (lambda it: it.search_all("a b"), r"search_all takes a list of questions, and this is one"),
        (lambda it: it.search_all(["a", 3]), r"a question is a text, and this is a int"),
        (lambda it: it.search("a", system="gnn-encodr"), r"no system 'gnn-encodr'\. Did you mean 'gnn-encoder'\?"),
        (
            lambda it: it.search_vectors(np.ones((2, 3), dtype=np.float32)),
            r"an array \(2, 3\); wanted \(questions, 32\)",
        ),
        (lambda it: it.search_vectors(np.full((1, 32), np.nan)), r"must be finite floats"),
        (lambda it: it.run({"a": "b"}, vectors=np.ones((1, 3))), r"an array \(1, 3\); wanted \(questions, 32\)"),
        (lambda it: it.run({"a": "b"}, vectors=np.full((1, 32), np.nan)), r"must be finite floats"),
        (lambda it: it.run({"a": "b"}, vectors=np.ones((2, 32))), r"2 vectors for 1 questions: give one each"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(opened, ask, message):
    with pytest.raises(InputError, match=message):
        ask(opened)


def test_an_index_from_a_stranger_cannot_send_questions_to_an_address_by_its_graph_either(tiny_run, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    retriever = Retriever.open(tiny_run)
    settings = EncoderSettings.parse({"checkpoint": "m", "api": {"endpoint": "https://stranger.example/v1"}})
    joint = SimpleNamespace(meta={"made_from": {"features": "."}})
    graph = SimpleNamespace(meta={"encoder": settings.model_dump(), "checkpoint_hash": {}}, path=tiny_run)
    retriever.__dict__.update(_embeddings=joint, graph=graph)
    with pytest.raises(GnnRetrievalError, match=r"would be sent there .* --endpoint https://stranger\.example/v1"):
        _ = retriever._encoder_before


def test_more_questions_than_are_encoded_in_silence_get_the_same_answers(opened, questions):
    many = (questions * 10)[:70]
    found, expected = opened.search_all(many, 3), opened.search_all(questions, 3) * 7
    assert [[hit.id for hit in hits] for hits in found] == [[hit.id for hit in hits] for hits in expected]
    scores = [[hit.score for hit in hits] for hits in found], [[hit.score for hit in hits] for hits in expected]
    np.testing.assert_allclose(*scores, atol=1e-6)  # a BLAS may round by the number of questions


def test_the_dual_encoder_s_ranking_is_its_own_index_s(tiny_run, opened, questions):
    searcher = Retriever.open(tiny_run / "index-dual-encoder")
    for question in questions:
        assert opened.search(question, 7, "dual-encoder") == searcher.search(question, 7)


def test_a_comparison_has_both_rankings_and_each_passage_s_rank_in_the_other(opened, questions):
    moved = 0
    for question, comparison in zip(questions, opened.compare_all(questions, 5), strict=True):
        assert comparison == opened.compare(question, 5)
        assert comparison.depth == opened.num_passages
        dual, gnn = (opened.search(question, 40, system) for system in ("dual-encoder", None))
        assert [moved_hit.hit for moved_hit in comparison.gnn_encoder] == gnn[:5]
        assert [moved_hit.hit for moved_hit in comparison.dual_encoder] == dual[:5]
        ranks = [{hit.id: hit.rank for hit in ranking} for ranking in (dual, gnn)]
        assert [one.elsewhere for one in comparison.gnn_encoder] == [ranks[0][hit.id] for hit in gnn[:5]]
        assert [one.elsewhere for one in comparison.dual_encoder] == [ranks[1][hit.id] for hit in dual[:5]]
        moved += sum(one.elsewhere != one.hit.rank for one in comparison.gnn_encoder)
    assert moved


def test_a_passage_below_the_depth_has_no_rank_in_the_other_ranking(opened, questions, monkeypatch):
    monkeypatch.setattr(retriever, "DEPTH", 3)
    unranked = 0
    for comparison in opened.compare_all(questions, 3):
        dual = {one.hit.id for one in comparison.dual_encoder}
        for one in comparison.gnn_encoder:
            assert (one.elsewhere is None) == (one.hit.id not in dual)
            unranked += one.elsewhere is None
    assert unranked


def test_ranks_without_the_graph_are_those_that_search_explain_counts(opened, questions):
    comparison = opened.compare(questions[0], 5)
    rows = [one.hit.row for one in comparison.gnn_encoder]
    vector = opened.encoder.encode(questions[:1], "query")[0]
    counted = ranks_of(rows, vector, opened.graph.passage_features, opened.graph.similarity)
    assert [one.elsewhere for one in comparison.gnn_encoder] == counted


def test_the_graph_s_features_answer_as_the_dual_encoder_s_index_does(tiny_run, opened, tiny_features):
    beside = Baseline.of(opened.graph, tiny_run / "index-dual-encoder")
    alone = Baseline.of(opened.graph, tiny_run / "nothing")
    assert (beside.is_indexed, alone.is_indexed) == (True, False)
    queries = np.asarray(tiny_features.queries[:6], dtype=np.float32)
    rows, scores = alone.search(queries, 5)
    expected_rows, expected_scores = beside.search(queries, 5)
    np.testing.assert_array_equal(rows, expected_rows)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)


def test_an_index_of_other_features_is_not_taken_for_the_graph_s(tiny_run, opened, tmp_path):
    other = shutil.copytree(tiny_run / "index-dual-encoder", tmp_path / "other")
    meta = open_index(other).meta
    write_json(other / "meta.json", meta | {"inputs": {"features": "0" * 64}})
    assert not Baseline.of(opened.graph, other).is_indexed


def test_k_above_the_number_of_passages_gives_all_of_them(opened, questions):
    for system in (None, "dual-encoder"):
        assert len(opened.search(questions[0], 1000, system)) == 40
    comparison = opened.compare(questions[0], 1000)
    assert (len(comparison.gnn_encoder), len(comparison.dual_encoder)) == (40, 40)


@pytest.mark.parametrize("question", ["", " \n\t"])
def test_a_question_of_no_words_is_one_sentence(opened, question):
    with pytest.raises(InputError, match="the question is empty: give some words"):
        opened.search(question)
    with pytest.raises(InputError, match="the question is empty"):
        opened.compare(question)


def test_k_below_one_is_one_sentence(opened):
    with pytest.raises(InputError, match="k is 0: give 1 or more"):
        opened.search("words", 0)


@pytest.mark.parametrize("k", [2.5, "5", None])
def test_k_that_is_no_whole_number_is_one_sentence(opened, k):
    with pytest.raises(InputError, match=rf"k is {k!r}: give a whole number"):
        opened.search("words", k)


def test_questions_and_k_may_be_from_an_array_or_a_data_frame(opened, questions):
    pandas = pytest.importorskip("pandas")
    asked, wanted = questions[:3], opened.search_all(questions[:3], 4)
    vectors = opened.encode(asked)
    for given in (np.array(asked), pandas.Series(asked, index=[7, 8, 9]), (question for question in asked)):
        assert opened.search_all(given, np.int64(4)) == wanted
    assert opened.search_vectors(vectors, np.int64(4)) == wanted
    assert (opened.encode(pandas.Series(asked)) == vectors).all()


def test_a_question_of_a_hundred_thousand_words_is_answered_by_what_the_encoder_reads_of_it(opened, questions):
    long = " ".join([questions[0]] * 20_000)
    assert [hit.id for hit in opened.search(long, 3)] == [hit.id for hit in opened.search(long[:1000], 3)]


def test_an_empty_index_finds_nothing(tiny_run, tmp_path, questions):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    write_json(run / "index" / "meta.json", open_index(run / "index").meta | {"num_passages": 0, "sizes": {}})
    import_faiss().write_index(import_faiss().IndexFlatIP(32), str(run / "index" / "index.faiss"))
    empty = Retriever.open(run)
    assert empty.search(questions[0]) == []
    assert empty.compare(questions[0]) == EncoderComparison([], [], 0)


def test_without_a_graph_it_searches_and_refuses_to_compare(tiny_run, questions):
    dual = Retriever.open(tiny_run / "index-dual-encoder")
    assert (dual.system, dual.has_graph) == ("dual-encoder", False)
    assert dual.search(questions[0], 3) == dual.search(questions[0], 3, "dual-encoder")
    for asked in (
        lambda: dual.compare(questions[0]),
        lambda: dual.explain("p00"),
        lambda: dual.search(questions[0], 3, "gnn-encoder"),
    ):
        with pytest.raises(ArtifactError, match="an index of dual-encoder"):
            asked()


def test_a_passage_is_explained_by_its_id(opened):
    explanation = opened.explain("p03", most=2)
    assert len(explanation.neighbors) == 2
    described = opened.neighborhood("p03", most=2)
    assert [edge["id"] for edge in described["neighbors"]] == [neighbor.id for neighbor in explanation.neighbors]
    assert described["node"]["context_scale"] == explanation.context_scale > 0
    assert described["node"]["shift"] == pytest.approx(explanation.shift)
    assert described["neighbors"][0]["neighbors"]
    around_query = opened.neighborhood(explanation.neighbors[0].id, is_query=True)
    assert "context_scale" not in around_query["node"]


def test_passages_and_questions_are_found_by_id(opened):
    assert opened.passage("p03").id == "p03"
    assert opened.query("train-03").split == "train"
    with pytest.raises(InputError, match="no passage"):
        opened.passage("p99")


def test_a_place_without_an_index_is_one_sentence(tmp_path):
    with pytest.raises(ArtifactError, match="it should hold an index"):
        Retriever.open(tmp_path / "nothing")
