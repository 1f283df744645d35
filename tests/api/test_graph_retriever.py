import inspect
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from several_vectors import keep_questions

import gnnretrieval
from gnnretrieval import (
    Dataset,
    Features,
    FunctionEncoder,
    GNNEncoderModel,
    Graph,
    GraphRetriever,
    Index,
    RankingSettings,
    Retriever,
)
from gnnretrieval.api import graph_retriever
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.evaluation import compare, evaluate
from gnnretrieval.index.updating import remove_passages
from gnnretrieval.training.gnn.embeddings import embed_passages
from gnnretrieval.training.gnn.model import open_model
from gnnretrieval.training.gnn.train import train_gnn


@pytest.fixture(scope="module")
def objects(tiny_dataset):
    """The tiny dataset as lists and mappings."""
    dataset = Dataset.open(tiny_dataset)
    qrels = {split: dataset.split(split) for split in dataset.splits}
    return list(dataset.passages()), list(dataset.queries()), qrels


@pytest.fixture(scope="module")
def fitted(objects, tiny_settings, tmp_path_factory):
    passages, queries, qrels = objects
    out = tmp_path_factory.mktemp("fitted") / "run"
    splits = {"dev": qrels["dev"], "test": qrels["test"]}
    return GraphRetriever.fit(passages, queries, qrels["train"], encode=tiny_settings, out=out, **splits)


def test_fitting_is_the_steps_in_order(fitted, objects, tiny_settings, tmp_path):
    passages, queries, qrels = objects
    splits = {"dev": qrels["dev"], "test": qrels["test"]}
    dataset = Dataset.from_records(passages, queries, qrels["train"], tmp_path / "dataset", **splits)
    features = Features.encode(dataset, tiny_settings, tmp_path / "features")
    graph = Graph.build(dataset, features, tmp_path / "graph")
    model = gnnretrieval.train(graph, tmp_path / "model")
    index = Index.build(model.embed(tmp_path / "embeddings"), tmp_path / "index")
    place = fitted.index.path.parent
    for made, opened in (
        (features, Features.open(place / "features")),
        (graph, Graph.open(place / "graph")),
        (model, GNNEncoderModel.open(place / "model")),
        (index, Index.open(place / "index")),
    ):
        assert made.hash == opened.hash
        assert type(made).__name__ in repr(made)
    assert repr(fitted).startswith("GraphRetriever(")
    question = queries[-1].text
    assert Retriever(index).search(question) == fitted.search(question)
    assert GraphRetriever.open(place).search(question) == fitted.search(question)


def test_several_vectors_a_passage_rank_if_training_kept_them(fitted, objects, tiny_settings, tmp_path, monkeypatch):
    passages, queries, qrels = objects
    copied = fitted.index.path.parent.parent / "several"
    shutil.copytree(fitted.index.path.parent, copied)
    given = {
        "encode": tiny_settings,
        "out": copied,
        "dev": qrels["dev"],
        "test": qrels["test"],
    }
    without = GraphRetriever.fit(passages, queries, qrels["train"], **given)
    assert not without.index.has_questions
    keep_questions(open_model(copied / "model"))
    monkeypatch.setattr(graph_retriever, "train", lambda graph, out, *_, **__: open_model(out))
    several = GraphRetriever.fit(passages, queries, qrels["train"], overwrite=True, **given)
    assert several.index.has_questions
    comparison = several.evaluate(baselines=False)
    assert [system.name for system in comparison.systems] == ["bm25", "dual-encoder", "gnn-encoder"]
    one = GraphRetriever.fit(passages, queries, qrels["train"], overwrite=True, one_vector=True, **given)
    assert one.name == "gnn-encoder-one-vector"
    assert not one.index.has_questions


def test_it_searches_explains_and_compares(fitted, objects):
    question = objects[1][0].text
    hits = fitted.search(question, 3)
    assert [hit.rank for hit in hits] == [1, 2, 3]
    assert {neighbor.id for one in fitted.why(question, hits) for neighbor in one.explanation.neighbors}
    assert repr(fitted).endswith("40 passages by gnn-encoder)")


def test_its_evaluation_has_the_baselines_and_tests_against_the_best_of_them(fitted, objects):
    found = fitted.evaluate(measures=["RR@10"])
    names = [system.name for system in found.systems]
    assert {"bm25", "dual-encoder", "gnn-encoder", "label-mean", "linear-head+label-mean", "bm25+questions"} <= {*names}
    assert found.baseline not in {"bm25", "dual-encoder", "gnn-encoder", "bm25+questions"}
    queries, qrels = [query for query in objects[1] if query.id.startswith("test")], objects[2]["test"]
    given = fitted.evaluate(queries, qrels, measures=["RR@10"])
    assert given.baseline == "dual-encoder"
    values = {system.name: system.measures for system in found.systems}
    assert {system.name: system.measures for system in given.systems} == {
        name: values[name] for name in ("bm25", "dual-encoder", "gnn-encoder")
    }
    assert [system.name for system in fitted.evaluate(baselines=False).systems] == [
        "bm25",
        "dual-encoder",
        "gnn-encoder",
    ]
    with pytest.raises(InputError, match="go together"):
        fitted.evaluate(queries)


def test_an_evaluation_names_what_ranks_together_with_the_index(fitted):
    joined = GraphRetriever.open(fitted.index.path, ranking=RankingSettings(hybrid=True))
    found = joined.evaluate(measures=["RR@10"], baselines=False)
    assert [system.name for system in found.systems] == ["bm25", "dual-encoder", "gnn-encoder+bm25"]


def test_no_system_of_an_evaluation_ranks_a_removed_passage(fitted, tmp_path, monkeypatch):
    place = shutil.copytree(fitted.index.path.parent, tmp_path / "run")
    measured = []
    monkeypatch.setattr(graph_retriever, "compare", lambda judged, runs, *given: measured.append(runs))

    def ranked():
        GraphRetriever.open(place).evaluate()
        run_of = {name: run["test-00"] for name, run in measured.pop().items()}
        return {name: [hit[0] for hit in hits] for name, hits in run_of.items()}

    before = ranked()
    remove_passages(place / "index", ["p01", "p02"])
    after = ranked()
    assert {"bm25", "dual-encoder", "gnn-encoder", "label-mean"} <= after.keys()
    for name, ids in after.items():
        assert ids == [id_ for id_ in before[name] if id_ not in ("p01", "p02")], name


def test_the_dual_encoder_is_asked_by_its_own_vectors_where_another_was_trained_with_the_model(fitted, tmp_path):
    place = shutil.copytree(fitted.index.path.parent, tmp_path / "run")
    graph = Graph.open(place / "graph")
    given = {"mode": "joint", "precision": "float32", "epochs": 2, "batch_size": 8, "evidence": 1}
    model = gnnretrieval.train(graph, place / "model-joint", **given, dual_encoder={"encoder_learning_rate": 1e-3})
    features = Features.encode(graph.dataset(), str(model.path), place / "features-joint")
    embeddings = embed_passages(model, graph, place / "embeddings-joint", features=features)
    Index.build(embeddings, place / "index-joint")
    for retriever in (fitted, joint := GraphRetriever.open(place / "index-joint")):
        (dual,) = [one for one in retriever.evaluate(baselines=False).systems if one.name == "dual-encoder"]
        assert dual.measures == fitted.evaluate(baselines=False).systems[1].measures
    assert not np.allclose(joint.encode(["a question"]), fitted.encode(["a question"]))


@pytest.mark.parametrize(("taken", "place"), [("train", "the graph"), ("dev", "split 'dev', which chooses settings")])
def test_a_test_question_that_training_sees_is_refused_before_training(objects, tiny_settings, tmp_path, taken, place):
    passages, queries, qrels = objects
    first = next(iter(qrels[taken]))
    test = {**qrels["test"], first: qrels[taken][first]}
    with pytest.raises(
        InputError, match=rf"1 of the 11 queries of split 'test', such as '{first}', are also in {place}"
    ):
        GraphRetriever.fit(
            passages, queries, qrels["train"], encode=tiny_settings, dev=qrels["dev"], test=test, out=tmp_path / "run"
        )
    assert not (tmp_path / "run" / "features").exists()


@pytest.mark.parametrize(
    ("renamed", "k", "message"),
    [("an id", 5, "'an id' cannot go into a TREC file"), ("id", 41, "k is 41, but .* has only 40 passages")],
)
def test_what_a_later_step_refuses_is_refused_before_encoding(objects, tiny_settings, tmp_path, renamed, k, message):
    passages, queries, qrels = objects
    unlabelled = passages[-1]._replace(id=renamed)
    with pytest.raises(GnnRetrievalError, match=message):
        GraphRetriever.fit(
            [*passages[:-1], unlabelled],
            queries,
            qrels["train"],
            encode=tiny_settings,
            test=qrels["test"],
            k=k,
            out=tmp_path,
        )
    assert not (tmp_path / "features").exists()


def test_questions_that_it_was_trained_on_are_not_evaluated(fitted):
    with pytest.raises(InputError, match="results would measure memory"):
        fitted.evaluate(split="train", baselines=False)


def test_its_rankings_are_as_deep_as_the_measures_look(fitted, monkeypatch):
    monkeypatch.setattr("gnnretrieval.api.graph_retriever._DEPTH", 3)
    found = fitted.evaluate(measures=["R@40"], baselines=False)
    assert {system.name: system.measures["R@40"] for system in found.systems if system.name != "bm25"} == {
        "dual-encoder": 1.0,
        "gnn-encoder": 1.0,
    }


def test_a_judged_question_that_is_not_given_is_named(fitted):
    with pytest.raises(InputError, match="there is no question 'y'"):
        fitted.evaluate({"x": "anything new"}, {"x": "p01", "y": "p02"})


def test_vectors_instead_of_an_encoder_give_the_same_ranking(fitted, objects, tiny_features, tmp_path):
    passages, queries, qrels = objects
    vectors = tiny_features.passages.astype(np.float32), tiny_features.queries.astype(np.float32)
    splits = {"dev": qrels["dev"], "test": qrels["test"]}
    ours = GraphRetriever.fit(passages, queries, qrels["train"], vectors=vectors, out=tmp_path / "run", **splits)
    question = queries[-1].text
    assert [hit.id for hit in ours.search(question)] == [hit.id for hit in fitted.search(question)]
    (by_vector,) = ours.search_vectors(vectors[1][-1:])
    assert [hit.id for hit in by_vector] == [hit.id for hit in fitted.search(question)]
    with pytest.raises(InputError, match="none of the 80 stored questions"):
        ours.search("what?")
    assert ours.evaluate(baselines=False).systems


def test_a_function_encodes_and_a_temporary_place_is_taken_away(objects, tiny_settings):
    passages, queries, qrels = objects
    dual = DualEncoder(tiny_settings)

    asked = []

    def encode(texts):
        asked.append(len(texts))
        return dual.encode(texts, "query")

    retriever = GraphRetriever.fit(passages, queries, qrels["train"], encode=encode, test=qrels["test"])
    place = retriever.index.path
    assert retriever.search("anything new", 2)
    assert place.is_dir()
    asked.clear()
    found = retriever.evaluate(baselines=False)
    assert asked == [10]  # once for all systems: an endpoint is paid for it
    without_it = GraphRetriever.open(place.parent).evaluate(baselines=False)
    assert without_it.systems == found.systems
    again = GraphRetriever.open(place.parent, encoder=encode)  # a function has the name that the index records
    assert again.search("anything new", 2) == retriever.search("anything new", 2)
    with pytest.raises(ArtifactError, match="gives other vectors now"):
        GraphRetriever.open(place.parent, encoder=lambda texts: dual.encode(texts, "query")[:, ::-1].copy())
    with pytest.raises(InputError, match="there is no passage 'nope'"):
        retriever.evaluate({"x": "anything new"}, {"x": "nope"})
    del retriever, again
    assert not place.exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"encode": 3}, "encode is 3: give a checkpoint's name"),
        ({"encode": "x", "vectors": (1, 2)}, "encode and vectors are both given"),
        ({"vectors": (np.ones((3, 2)), np.ones((80, 2)))}, "3 vectors, and there are 40 ids"),
        ({"vectors": (np.ones(40), np.ones((80, 2)))}, r"an array \(40,\) of float64"),
        ({"vectors": ([[1.0], [1.0, 2.0]], np.ones((80, 2)))}, "<vectors of passages>: rows of different lengths"),
        ({"vectors": np.ones((40, 2))}, "vectors must be a pair"),
        ({"vectors": (np.ones((40, 2)), np.ones((80, 2))), "similarity": "cosin"}, "similarity: input should be"),
        ({"encode": len, "similarity": "cosin"}, "similarity: input should be 'auto', 'cosine' or 'dot'"),
        ({"encode": "a checkpoint", "similarity": "dot"}, "similarity goes with vectors or a function"),
        ({"similarity": "dot"}, "similarity goes with vectors or a function"),
        ({"k": 0}, r"k: input should be greater than or equal to 1 \(found 0\)"),
        ({"k": "many"}, "k: input should be a valid integer"),
        ({"seed": -1}, "seed: input should be greater than or equal to 0"),
    ],
)
def test_what_cannot_be_fitted_is_a_sentence(objects, given, message):
    passages, queries, qrels = objects
    with pytest.raises(InputError, match=message):
        GraphRetriever.fit(passages, queries, qrels["train"], **given)


def test_a_graph_grows_by_objects(fitted, tiny_settings, objects, tmp_path):
    passages, queries, qrels = objects
    dataset = Dataset.from_records(passages[:-1], queries, qrels["train"], tmp_path / "dataset")
    features = encode_dataset(dataset, tiny_settings, tmp_path / "features")
    graph = Graph.build(dataset, features, tmp_path / "graph")
    grown = graph.add(passages=passages[-1:], queries={"new": "a new question"}, qrels={"new": passages[-1].id})
    assert (grown.num_passages, grown.num_queries) == (40, graph.num_queries + 1)
    with grown.texts() as texts:
        assert texts.query_by_id("new").text == "a new question"
    assert (graph.num_passages, graph.num_queries) == (39, 60)


def test_a_graph_s_report_is_its_figures_its_text_and_a_page(fitted):
    report = fitted.graph.inspect()
    assert report.passages == 40
    assert {"warnings", "agreement"} <= set(report.as_json())
    assert report.to_text() == repr(report)
    assert "40 passages" in report.to_text()
    assert report._repr_html_().startswith("<pre>")
    assert report.to_html().lower().startswith("<!doctype html>")


def test_a_dataset_s_report_counts_what_is_in_it(fitted):
    report = fitted.graph.dataset().inspect()
    assert (report.passages, report.queries) == (40, 80)
    assert re.search(r"passages +40 ", str(report))
    assert "<html" in report.to_html()


def test_a_setting_of_training_can_be_given_by_name(fitted, tmp_path):
    model = gnnretrieval.train(fitted.graph, tmp_path / "model", layer="mean", epochs=1)
    assert model.config["layer"] == "mean"
    with pytest.raises(InputError, match=r"unknown key 'epoch'.*Did you mean 'epochs'"):
        gnnretrieval.train(fitted.graph, tmp_path / "other", epoch=1)
    for wrong in ({"epoch": 1}, {"seed": "many"}, {"layer": "gta"}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            gnnretrieval.train(fitted.graph, tmp_path / "other", model_settings(epochs=1), **wrong)
    same = train_gnn(
        fitted.graph, fitted.graph.dataset(), fitted.graph.features(), model_settings(epochs=1), tmp_path / "same"
    )
    assert same.hash == model.hash


def model_settings(**given):
    return gnnretrieval.TrainSettings.parse({"layer": "mean", **given})


def test_runs_as_mappings_are_measured(objects):
    qrels = {"a": {"x": 1}, "b": {"y": 1}}
    good, bad = {"a": {"x": 2.0, "y": 1.0}, "b": {"y": 1.0}}, {"a": {"y": 2.0, "x": 1.0}, "b": {"x": 1.0}}
    found = evaluate(qrels, bad, ["RR@10", "R@1"])
    assert found.measures == {"RR@10": 0.25, "R@1": 0.0}
    assert found.per_query["RR@10"] == {"a": 0.5, "b": 0.0}
    assert found.intervals["RR@10"] == (0.0, 0.5)
    assert "RR@10   25.0  (0.0 to 50.0)" in found.to_text()
    both = compare(qrels, {"bad": bad, "good": good}, measures=["RR@10"])
    assert both.baseline == "bad"
    assert both.test("good", "RR@10").difference == 0.75
    assert str(both) == both.to_text()
    assert "<table" in both._repr_html_()


def test_every_public_name_is_there_and_documented():
    for name in gnnretrieval.__all__:
        assert inspect.getdoc(getattr(gnnretrieval, name)) or name == "__version__"
    assert dir(gnnretrieval) == sorted(gnnretrieval.__all__)
    with pytest.raises(AttributeError):
        _ = gnnretrieval.Nothing


def test_an_index_of_nothing_is_no_run():
    with pytest.raises(ArtifactError):
        GraphRetriever.open(Path("nowhere"))
    assert FunctionEncoder(str.split, name="f")
