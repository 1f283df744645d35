import shutil
from datetime import datetime
from pathlib import Path

import pytest
from several_vectors import keep_questions

from gnnretrieval.data import Dataset
from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.trec import rank, read_run
from gnnretrieval.evaluation import ClickedDev, fuse, mean, per_query
from gnnretrieval.feedback import SimulationSettings, import_feedback, simulate_log
from gnnretrieval.feedback.judgement_table import read_judgements
from gnnretrieval.index.faiss_index import open_index
from gnnretrieval.index.hybrid import RankingSettings
from gnnretrieval.index.lexical import LexicalSetting
from gnnretrieval.index.search import index_run
from gnnretrieval.recipes import report
from gnnretrieval.recipes import run as running
from gnnretrieval.recipes.dry_run import dry_run
from gnnretrieval.recipes.examples import changed_examples
from gnnretrieval.recipes.hybrid import WITH, WITHOUT, choose_pipelines, clicked_dev, compare_hybrids, fusion_lines
from gnnretrieval.recipes.recipe import CompareSettings
from gnnretrieval.recipes.run import run_recipe
from gnnretrieval.training.gnn.held_out import held_out_queries

QRELS = {f"q{number}": {"right": 1} for number in range(30)}
DENSE, WITH_GRAPH = ("dual-encoder", "label-mean"), ("gnn-encoder",)
LEXICAL = ("bm25", "bm25+questions")


def run(**scores):
    return {query: rank([ScoredPassage(*pair) for pair in scores.items()]) for query in QRELS}


RUNS = {
    "bm25": run(wrong=1.0, right=0.9, x=0.0),
    "dual-encoder": run(other=1.0, right=0.9, y=0.0),  # either alone has the right passage second, both have it first
    "bm25+questions": run(wrong=1.0, x=0.9, right=0.8),
    "label-mean": run(other=1.0, x=0.9, right=0.8),
    "gnn-encoder": run(right=1.0, wrong=0.2, x=0.0),  # BM25 adds nothing to it
}


def hybrids(fuse="chosen", **dev):
    settings = CompareSettings(fuse=fuse, measures=("RR@10",))
    return compare_hybrids(QRELS, RUNS, settings, LEXICAL, DENSE, WITH_GRAPH, {"recipe": "r"}, {}, **dev)


def values(comparison):
    return {system["name"]: system["measures"]["RR@10"] for system in comparison.as_json()["systems"]}


def test_pipelines_are_those_that_dev_chooses_and_the_provenance_says_which():
    comparison = hybrids(dev_runs=RUNS, dev_qrels=QRELS)
    alone = {"bm25": 0.5, "bm25+questions": pytest.approx(1 / 3)}
    assert values(comparison) == {**alone, "bm25+dual-encoder": 1, WITHOUT: 1, WITH: 1}
    assert comparison.baseline == WITHOUT
    provenance = comparison.provenance
    assert (provenance["recipe"], provenance["fusion"]) == ("r", "chosen on dev")
    choices = provenance["fusion_choices"]
    assert all(choices["bm25+dual-encoder"]["weights"])
    assert (choices[WITH]["runs"], choices[WITH]["weights"]) == (["bm25", "gnn-encoder"], [0, 1])
    assert choices[WITHOUT]["runs"] == ["bm25", "dual-encoder"]
    assert choices["bm25+dual-encoder"]["value"] > choices["bm25+dual-encoder"]["half"]
    assert provenance["pipeline"] == RankingSettings(system="gnn-encoder").model_dump(mode="json")  # the index alone
    assert fusion_lines(comparison)[2] == f"{WITH}: {choices[WITH]['said']}"


def test_the_pipeline_is_named_as_settings_of_the_index():
    weak = {**RUNS, "gnn-encoder": RUNS["dual-encoder"], "bm25+questions": RUNS["bm25"], "bm25": RUNS["label-mean"]}
    setting = LexicalSetting(repeats=2, k1=1.5)
    comparison = compare_hybrids(
        QRELS,
        weak,
        CompareSettings(measures=("RR@10",), depth=50),
        LEXICAL,
        DENSE,
        WITH_GRAPH,
        {},
        {},
        dev_runs=weak,
        dev_qrels=QRELS,
        expanded=setting,
    )
    choice = comparison.provenance["fusion_choices"][WITH]
    assert choice["runs"] == ["bm25+questions", "gnn-encoder"]
    expected = {
        "system": "gnn-encoder",
        "hybrid": True,
        "fuse": choice["method"],
        "weights": choice["weights"][::-1],
        "candidates": 50,
    }
    assert RankingSettings.parse(comparison.provenance["pipeline"]) == RankingSettings.parse(
        {**expected, "system": "gnn-encoder", "lexical": setting._asdict()}
    )


@pytest.mark.parametrize(("of_one_vector", "joins"), [("gnn-encoder", False), ("dual-encoder", True)])
def test_a_pipeline_over_one_vector_a_passage_is_named_as_settings_of_the_index(of_one_vector, joins):
    both = {"gnn-encoder": RUNS["label-mean"], "gnn-encoder-one-vector": RUNS[of_one_vector]}
    weak = {**RUNS, **both}
    comparison = compare_hybrids(
        QRELS,
        weak,
        CompareSettings(measures=("RR@10",)),
        ("bm25",),
        ("label-mean",),
        tuple(both),
        {},
        {},
        dev_runs=weak,
        dev_qrels=QRELS,
    )
    choice = comparison.provenance["fusion_choices"][WITH]
    assert choice["runs"] == ["bm25", "gnn-encoder-one-vector"]
    pipeline = RankingSettings.parse(comparison.provenance["pipeline"])
    assert (pipeline.system, pipeline.hybrid) == ("gnn-encoder-one-vector", joins)


def test_no_pipeline_without_the_graph_has_the_gnn_encoder():
    weak = {**RUNS, "dual-encoder": RUNS["label-mean"]}
    chosen = choose_pipelines(LEXICAL, DENSE, WITH_GRAPH, weak, QRELS)
    assert chosen[WITHOUT].choice.value < chosen[WITH].choice.value
    assert chosen[WITHOUT].dense != "gnn-encoder"


@pytest.mark.parametrize(("asked", "method"), [("chosen", "rrf"), ("rrf", "rrf"), ("weighted", "weighted")])
def test_without_dev_runs_or_where_a_method_is_named_it_is_joined_by_equal_weights(asked, method):
    comparison = hybrids(asked, **({} if asked == "chosen" else {"dev_runs": RUNS, "dev_qrels": QRELS}))
    pipeline = RankingSettings(system="gnn-encoder", hybrid=True, fuse=method)
    assert comparison.provenance == {"recipe": "r", "fusion": method, "pipeline": pipeline.model_dump(mode="json")}
    joined = fuse([RUNS["bm25"], RUNS["gnn-encoder"]], method, depth=100)
    rank_of_right = [passage.passage_id for passage in joined["q0"]].index("right") + 1
    assert values(comparison)["bm25+gnn-encoder"] == pytest.approx(1 / rank_of_right)


def test_without_a_dev_split_the_questions_that_training_held_out_choose(tiny_dataset, tiny_checkpoint, tmp_path):
    shutil.copytree(tiny_dataset, tmp_path / "data")
    (tmp_path / "data" / "qrels" / "dev.tsv").unlink()
    encoder = f'[encoder]\ncheckpoint = "{tiny_checkpoint}"\nmax_tokens = 48\nprecision = "float32"\n'
    (tmp_path / "r.toml").write_text(f'name = "r"\n[data]\nsource = "data"\n{encoder}', encoding="utf-8")
    made = run_recipe(tmp_path / "r.toml", out=tmp_path / "out")
    held_out = held_out_queries(made.graph, made.dataset, made.features, 0)
    assert list(made.model.held_out_run) == held_out.ids
    assert made.hybrids.provenance["fusion"] == "chosen on held-out training queries"
    assert {WITH, WITHOUT} <= {system.name for system in made.hybrids.systems}
    run = read_run(tmp_path / "out" / "rankings" / "dev" / "gnn-encoder.run")
    assert run == made.model.held_out_run  # not of the index, which knows their answers
    judged = {id_: made.dataset.split("train")[id_] for id_ in held_out.ids}
    found = mean(per_query(judged, run, ["RR@10"]))["RR@10"]
    assert found == pytest.approx(made.model.meta["dev"]["chosen"]["RR@10"], abs=0.02)


def test_where_another_seed_holds_other_questions_out_these_are_ranked_though_no_vector_changed(
    tiny_dataset, tiny_checkpoint, tmp_path
):
    shutil.copytree(tiny_dataset, tmp_path / "data")
    (tmp_path / "data" / "qrels" / "dev.tsv").unlink()
    encoder = f'[encoder]\ncheckpoint = "{tiny_checkpoint}"\nmax_tokens = 48\nprecision = "float32"\n'
    recipe = f'name = "r"\n[data]\nsource = "data"\n{encoder}[compare]\nbaselines = false\n[train]\nevidence = 1e-9\n'
    indexes = set()
    for seed in (0, 7):
        (tmp_path / "r.toml").write_text(f"{recipe}seed = {seed}\n", encoding="utf-8")
        made = run_recipe(tmp_path / "r.toml", out=tmp_path / "out")
        indexes.add(made.index.hash)
        assert read_run(tmp_path / "out" / "rankings" / "dev" / "gnn-encoder.run") == made.model.held_out_run
    assert len(indexes) == 1


def test_dev_is_the_default_and_none_is_no_table():
    assert CompareSettings().fuse == "chosen"
    assert hybrids("none", dev_runs=RUNS, dev_qrels=QRELS) is None


def test_by_clicks_dev_ranks_what_was_shown():
    shown = dict.fromkeys(QRELS, ("right", "x", "y"))  # "wrong" and "other" were ranked first, and nobody saw them
    clicked = ClickedDev(shown, dict.fromkeys(QRELS, 1.0))
    chosen = hybrids(dev_runs=RUNS, dev_qrels=QRELS, clicked=clicked).provenance["fusion_choices"]
    assert chosen["bm25+dual-encoder"]["half"] == 1.0
    assert hybrids(dev_runs=RUNS, dev_qrels=QRELS).provenance["fusion_choices"]["bm25+dual-encoder"]["half"] == 0.5


def test_the_dev_questions_of_event_logs_count_by_their_clicks(tiny_dataset, tmp_path):
    log = simulate_log(Dataset.open(tiny_dataset), tmp_path / "log.jsonl", SimulationSettings(impressions=600))
    dev, test = map(datetime.fromisoformat, (log.dev_from, log.test_from))
    made = import_feedback([tmp_path / "log.jsonl"], tiny_dataset, tmp_path / "data", dev_from=dev, test_from=test)
    dataset = Dataset.open(made.path)
    queries = [*dataset.split("dev")]
    clicked = clicked_dev(dataset, "dev", queries)
    judged = read_judgements(made.path, "dev")
    assert clicked.shown == {query: {one.passage for one in judged[query]} for query in queries}
    assert max(clicked.weights.values()) > 1
    assert clicked_dev(Dataset.open(tiny_dataset), "dev", [*Dataset.open(tiny_dataset).split("dev")]) is None


def test_a_run_also_ranks_by_one_vector_a_passage_where_training_kept_several(
    tiny_dataset, tiny_checkpoint, tmp_path, monkeypatch
):
    train = running.train_gnn
    monkeypatch.setattr(running, "train_gnn", lambda *given, **more: keep_questions(train(*given, **more)))
    encoder = f'[encoder]\ncheckpoint = "{tiny_checkpoint}"\nmax_tokens = 48\nprecision = "float32"\n'
    (tmp_path / "r.toml").write_text(f'name = "r"\n[data]\nsource = "{tiny_dataset}"\n{encoder}', encoding="utf-8")
    made = run_recipe(tmp_path / "r.toml", out=tmp_path / "out")
    name, index = "gnn-encoder-one-vector", open_index(tmp_path / "out" / "index-one-vector")
    assert index.meta["system"] == name
    assert made.index.has_questions
    assert not index.has_questions
    for part, split in (("", "test"), ("dev", "dev")):
        queries = [query.id for query in made.dataset.queries_of(split)]
        vectors = made.features.queries[made.features.rows_of(queries)]
        ranked = read_run(tmp_path / "out" / "rankings" / part / f"{name}.run")
        assert ranked == index_run(index, queries, vectors, 100)
        assert ranked != read_run(tmp_path / "out" / "rankings" / part / "gnn-encoder.run")
    for comparison in (made.comparison, made.same_labels.comparison):
        assert name in {system.name for system in comparison.systems}
    provenance = made.hybrids.provenance
    assert provenance["pipeline"]["system"] == provenance["fusion_choices"][WITH]["runs"][1]
    page = report.write_report(made).read_text()
    assert "index-one-vector/meta.json" in page
    examples = [example for kind in changed_examples(made, 5) for example in kind]
    found = [(passage, text) for example in examples for passage, text in example.matched.items()]
    assert found
    assert page.count("Found by its training question") == len(found)
    labelled = {
        (passage, query.text)
        for query in made.dataset.queries_of("train")
        for passage in made.dataset.split("train")[query.id]
    }
    assert set(found) <= labelled
    plan = dry_run(tmp_path / "r.toml", out=tmp_path / "out")
    made_before = {Path(stage.path).name for stage in plan.stages if stage.made}
    assert {"embeddings-one-vector", "index-one-vector", "rankings"} <= made_before
    work = {Path(stage.path).name: stage.work for stage in plan.stages}
    assert work["embeddings"].endswith("through the GNN-encoder, and a vector for each of their training questions")
    assert work["index-one-vector"] == "40 vectors"
    assert any("`out/index-one-vector`" in sentence for sentence in made.verdict().sentences())
