"""Baselines as an artifact, and the GNN-encoder beside them."""

import json

import numpy as np
import pytest
from train_and_dev import with_training_queries_in_dev

from gnnretrieval.baselines import BASELINES, EXPANSION, LEXICAL, dense
from gnnretrieval.baselines.dense import CHOICES, DenseBaseline, DenseSetting
from gnnretrieval.baselines.rankings import open_baselines, rank_baselines
from gnnretrieval.data import Dataset
from gnnretrieval.encoders.features import Features
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.evaluation import mean, per_query
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.recipes.recipe import CompareSettings
from gnnretrieval.recipes.same_labels import COLD, WARM, compare_same_labels, split_by_labels
from gnnretrieval.training.gnn.head import train_heads
from gnnretrieval.training.gnn.held_out import held_out_queries


@pytest.fixture(scope="module")
def made(tiny_graph, tiny_dataset, tiny_features, tmp_path_factory):
    out = tmp_path_factory.mktemp("baselines") / "baselines"
    return rank_baselines(tiny_graph, Dataset.open(tiny_dataset), tiny_features, "test", out, depth=20)


def rr_of(made, name, tiny_dataset, split="test"):
    run = made.runs(dev=split == "dev")[name]
    return mean(per_query(Dataset.open(tiny_dataset).split(split), run, ["RR@10"]))["RR@10"]


def test_every_baseline_ranks_the_split_and_dev(made, tiny_dataset):
    assert made.names == [*CHOICES, EXPANSION, LEXICAL] == list(BASELINES)
    dataset = Dataset.open(tiny_dataset)
    for runs, split in ((made.runs(), "test"), (made.runs(dev=True), "dev")):
        assert all(set(run) == set(dataset.split(split)) for run in runs.values())
        assert all(len(ranking) <= 20 for run in runs.values() for ranking in run.values())


def test_what_dev_measured_is_what_the_ranking_of_dev_has(made, tiny_dataset):
    for name in made.names:
        assert made.meta["chosen"][name]["dev"] == pytest.approx(rr_of(made, name, tiny_dataset, "dev"), abs=0.02)


def test_labels_help_where_questions_share_words_that_the_passage_lacks(made, tiny_dataset, tiny_features):
    assert made.meta["chosen"]["label-mean"]["setting"]["mean"] > 0
    assert rr_of(made, made.best_dense, tiny_dataset) > rr_of(made, "label-prior", tiny_dataset) + 0.1


def test_the_best_dense_baseline_is_dev_s_first(made):
    chosen = made.meta["chosen"]
    best = max(its["dev"] for name, its in chosen.items() if name != LEXICAL)
    assert made.best_dense == next(name for name in chosen if chosen[name]["dev"] == best)
    assert open_baselines(made.path).lines() == made.lines()


def test_a_split_that_is_chosen_by_is_not_ranked(tiny_graph, tiny_dataset, tiny_features, tmp_path):
    with pytest.raises(InputError, match="rank another"):
        rank_baselines(tiny_graph, Dataset.open(tiny_dataset), tiny_features, "dev", tmp_path / "out")


def test_queries_of_the_graph_are_not_ranked(tiny_graph, tiny_dataset, tiny_features, tmp_path):
    with pytest.raises(InputError, match=r"60 of the 60 queries of split 'train', such as 'train-00', are also in the"):
        rank_baselines(tiny_graph, Dataset.open(tiny_dataset), tiny_features, "train", tmp_path / "out")


def test_without_a_dev_split_no_prior_is_chosen_and_held_out_questions_are_ranked_by_what_has_not_seen_them(
    tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch
):
    monkeypatch.setattr("gnnretrieval.training.gnn.held_out.dev_split", lambda dataset: None)
    dataset = Dataset.open(tiny_dataset)
    found = rank_baselines(tiny_graph, dataset, tiny_features, "test", tmp_path / "out", depth=40)
    assert found.names == [*[name for name in CHOICES if not name.endswith("label-prior")], EXPANSION, LEXICAL]
    assert found.meta["chosen_by"]["split"] == "held-out training queries"
    assert (
        found.config["held_out"] == found.meta["chosen_by"]["queries"]
    )  # older artifacts, without dev, are made again
    held_out = held_out_queries(tiny_graph, dataset, tiny_features, 0)
    judged = {id_: dataset.split("train")[id_] for id_ in held_out.ids}
    for name, run in found.runs(dev=True).items():
        assert list(run) == held_out.ids
        values = np.array(list(per_query(judged, run, ["RR@10"])["RR@10"].values()))
        by_kind = [values[held_out.parts == kind].mean() for kind in np.unique(held_out.parts)]
        measured = values.mean() if name == LEXICAL else min(by_kind)
        assert found.meta["chosen"][name]["dev"] == pytest.approx(measured, abs=0.02), name


def test_the_final_head_does_not_learn_from_a_query_of_both_train_and_dev(
    tiny_dataset, tiny_settings, tmp_path, monkeypatch
):
    monkeypatch.setitem(dense.CHOICES, "linear-head", [DenseSetting(20)])
    ranked = []
    by = DenseBaseline.run
    monkeypatch.setattr(DenseBaseline, "run", lambda baseline, *given: ranked.append(baseline) or by(baseline, *given))
    store, dataset, features = with_training_queries_in_dev(tiny_dataset, tiny_settings, tmp_path)
    rank_baselines(store, dataset, features, "test", tmp_path / "out", only=("linear-head",))
    final, of_dev = ranked
    assert (len(final.graph.labels), len(of_dev.graph.labels)) == (len(store.labels), len(store.labels) - 2)
    assert final.heads.queries.equal(train_heads(of_dev.graph, final.setting.steps).queries)


def test_without_a_dev_split_a_baseline_with_a_prior_is_refused(
    tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch
):
    monkeypatch.setattr("gnnretrieval.training.gnn.held_out.dev_split", lambda dataset: None)
    given = (tiny_graph, Dataset.open(tiny_dataset), tiny_features, "test", tmp_path / "out")
    with pytest.raises(InputError, match=r"label-prior needs a dev split.* Add one"):
        rank_baselines(*given, only=("label-mean", "label-prior"))
    assert not (tmp_path / "out").exists()


def test_some_baselines_alone_are_the_same_as_among_all(made, tiny_graph, tiny_dataset, tiny_features, tmp_path):
    given = (tiny_graph, Dataset.open(tiny_dataset), tiny_features, "test", tmp_path / "out")
    found = rank_baselines(*given, depth=20, only=("linear-head", "label-mean"))
    assert found.names == ["label-mean", "linear-head"]
    assert found.runs() == {name: made.runs()[name] for name in found.names}


def test_another_seed_ranks_again(tiny_graph, tiny_dataset, tiny_features, tmp_path):
    given = (tiny_graph, Dataset.open(tiny_dataset), tiny_features, "test", tmp_path / "out")
    rank_baselines(*given, only=("label-mean",))
    with pytest.raises(ArtifactError, match="seed was None and is now 7"):
        rank_baselines(*given, only=("label-mean",), seed=7)
    assert rank_baselines(*given, only=("label-mean",), seed=7, overwrite=True).meta["seed"] == 7


def test_where_no_question_shares_a_word_with_a_passage_the_ranking_by_words_is_empty(tmp_path):
    passages, queries = ({f"{kind}{row}": f"{kind}word{row}" for row in range(8)} for kind in "pq")
    labels = [{f"q{row}": f"p{row}"} for row in range(8)]
    splits = {"dev": labels[6], "test": labels[7]}
    train = {query: passage for label in labels[:6] for query, passage in label.items()}
    dataset = Dataset.from_records(passages, queries, train, tmp_path / "data", **splits)
    vectors = np.eye(8, dtype=np.float32)
    features = Features.from_vectors(dataset, vectors, vectors, tmp_path / "features")
    graph = build_graph(dataset, features, GraphSettings(k=2), tmp_path / "graph")
    made = rank_baselines(graph, dataset, features, "test", tmp_path / "out", only=(LEXICAL,))
    assert made.runs() == {LEXICAL: {}}
    assert mean(per_query(dataset.split("test"), made.runs()[LEXICAL], ["RR@10"]))["RR@10"] == 0


def test_questions_are_parted_by_whether_their_passages_have_training_questions(tiny_graph):
    qrels = {"a": {"p00": 1, "p39": 0}, "b": {"p39": 1}, "c": {"p39": 1, "p01": 1}, "d": {"p00": 0, "p38": 1}}
    parts = split_by_labels(qrels, tiny_graph)
    assert (list(parts[WARM]), list(parts[COLD])) == (["a", "c"], ["b", "d"])


def test_the_gnn_encoder_is_tested_against_the_best_dense_baseline(made, tiny_graph, tiny_dataset):
    qrels = Dataset.open(tiny_dataset).split("test")
    baselines = made.runs()
    runs = {"bm25": baselines[LEXICAL], "gnn-encoder": baselines["label-mean"], "encoder": baselines["label-prior"]}
    settings = CompareSettings(measures=("RR@10",))
    found = compare_same_labels(
        qrels, runs, baselines, made, tiny_graph, settings, "gnn-encoder", "encoder", {"recipe": "r"}, {}
    )
    assert found.comparison.baseline == made.best_dense
    assert [system.name for system in found.comparison.systems] == ["bm25", "encoder", *made.names, "gnn-encoder"]
    ours, before = (rr_of(made, name, tiny_dataset) for name in ("label-mean", "label-prior"))
    assert found.over_encoder[WARM].difference == pytest.approx(ours - before)
    assert found.rows()[0] == ("RR@10 × 100", "all 10 questions", f"{WARM} (10)")
    provenance = json.loads(json.dumps(found.comparison.as_json()))["provenance"]
    assert provenance["baselines"] == json.loads(json.dumps(made.meta["chosen"]))
    assert provenance["groups"][WARM]["queries"] == 10
