import json
import shutil
from dataclasses import replace
from urllib.parse import unquote

import pytest
from click.testing import CliRunner

from gnnretrieval import Retriever
from gnnretrieval.cli import cli
from gnnretrieval.recipes import run_recipe, write_report
from gnnretrieval.recipes.examples import changed_examples
from gnnretrieval.recipes.run_encoder import run_encoder_recipe
from tests.html_page import EVIL, Page, assert_opens_offline

GNN = """
name = "tiny"
[encoder]
checkpoint = "{checkpoint}"
precision = "float32"
[graph]
k = 5
[train]
epochs = 4
batch_size = 4
learning_rate = 0.02
weight_averaging = 0.5
evidence = 1.0
[joint]
epochs = 2
batch_size = 8
learning_rate = 0.01
evidence = 1.0
precision = "float32"
[joint.dual_encoder]
encoder_learning_rate = 1e-3
[ranking]
hybrid = true
"""
ENCODER = """
name = "tiny-dpr"
[[stages]]
name = "mined"
kind = "negatives"
by = "bm25"
settings = {{ top_k = 6 }}
[[stages]]
name = "trained"
kind = "encoder"
examples = ["labels", "mined"]
[train]
epochs = 1
batch_size = 16
learning_rate = 1e-3
[encoder]
checkpoint = "{checkpoint}"
max_tokens = 48
precision = "float32"
"""


@pytest.fixture(scope="module")
def evil_dataset(tiny_dataset, tmp_path_factory):
    """The tiny dataset with texts that would be markup if they could."""
    place = shutil.copytree(tiny_dataset, tmp_path_factory.mktemp("evil") / "data & more")
    for name in ("corpus", "queries"):
        records = [json.loads(line) for line in (place / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        lines = [json.dumps(record | {"text": f"{record['text']} {EVIL}"}) for record in records]
        (place / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def run(evil_dataset, tiny_checkpoint, tmp_path_factory):
    """A run with joint training, and its report."""
    place = tmp_path_factory.mktemp("gnn")
    (place / "tiny.toml").write_text(GNN.format(checkpoint=tiny_checkpoint), encoding="utf-8")
    made = run_recipe(place / "tiny.toml", data=evil_dataset)
    assert write_report(made) == place / "tiny" / "report.html"
    return made


def test_a_ranking_over_the_index_is_one_more_system(run):
    assert list(run.runs) == ["bm25", "dual-encoder", "gnn-encoder", "gnn-encoder+bm25"]
    retriever = Retriever.open(run.index.path, ranking=run.recipe.ranking)
    features, queries = run.joint_features or run.features, {q.id: q.text for q in run.dataset.queries_of("test")}
    vectors = features.queries[features.rows_of(queries)]
    ours = retriever.run(queries, run.recipe.compare.depth, vectors=vectors)
    found = {id_: [one.passage_id for one in ranking] for id_, ranking in run.runs["gnn-encoder+bm25"].items()}
    assert found == {id_: [one.passage_id for one in ranking] for id_, ranking in ours.items()}


@pytest.fixture(scope="module")
def text(run):
    return (run.directory / "report.html").read_text(encoding="utf-8")


def headings(page: Page, text: str) -> list[str]:
    return [part.split("</h2>")[0] for part in text.split("<h2>")[1:]]


def test_it_opens_offline_and_has_every_part(run, text):
    page = assert_opens_offline(text)
    assert headings(page, text) == [
        *("Verdict", "Comparison", "The same labels without a GNN", "With BM25", "Examples before and after"),
        *("What was run", "Data", "Graph", "Training: model", "Training: model-joint"),
        *("Every test", "Question by question", "Costs", "Provenance"),
    ]
    assert len(text) < 400_000
    head, folded = text.split('<details class="card"', 1)
    assert headings(page, head) == ["Verdict", "Comparison"]
    shown = 1 + ('<svg class="map"' in head)  # figures that are not folded
    assert head.count("<figure>") == shown + head[head.index("<details>") :].count("<figure>")
    assert folded.count('<details class="card"') == len(headings(page, folded)) - 1  # every other part is folded


def test_a_rerun_that_keeps_the_dual_encoder_leaves_no_page_of_an_earlier_map(tiny_run, tmp_path):
    place = shutil.copytree(tiny_run, tmp_path / "run")
    recipe = tmp_path / "tiny.toml"

    def pages(evidence: str) -> bool:
        text = tiny_run.with_suffix(".toml").read_text()
        recipe.write_text(text[: text.index("[train]")] + f"[compare]\nbaselines = false\n[train]\n{evidence}\n")
        result = CliRunner().invoke(cli, ["run", str(recipe), "--out", str(place)])
        assert result.exit_code == 0, result.output
        return (place / "map.html").is_file()

    assert pages("evidence = 1.0")
    assert not pages("evidence = 1e-30")


def test_the_map_s_picture_is_beside_the_verdict_and_the_whole_map_is_linked_where_it_is(run):
    drawn, report = run.directory / "map.html", run.directory / "report.html"
    assert (run.map is None) == (not run.model.meta["dev"]["believed"])
    shown = report.read_text(encoding="utf-8")
    has_picture = run.map is not None and run.map.meta["share_moved"] > 0
    assert has_picture == ('<svg class="map"' in shown[: shown.index("<details")])
    assert has_picture == ("A dot is a passage, and its line begins where it was before" in shown)
    assert "map.html" not in shown
    drawn.touch()
    write_report(run)
    assert ('<a href="map.html">' in report.read_text(encoding="utf-8")) == (run.map is not None)
    drawn.unlink()
    write_report(run)
    assert report.read_text(encoding="utf-8") == shown


def test_its_figures_are_the_comparison_s(run, text):
    page = Page(text)
    written = json.loads((run.directory / "comparison.json").read_text(encoding="utf-8"))
    means = next(table for table in page.tables if table[0][-1] == "W/T/L" and table[0][0] == "system")
    for system, row in zip(written["systems"], means[1:], strict=True):
        assert row[0] == system["name"]
        for cell, (measure, value) in zip(row[1:], system["measures"].items(), strict=False):
            low, high = written["intervals"][system["name"]][measure]
            assert cell.startswith(f"{100 * value:.1f}")
            assert cell.endswith(f"{100 * low:.1f} – {100 * high:.1f}")
    tests = next(table for table in page.tables if table[0][:3] == ["system", "measure", "Δ"])
    assert [row[:3] for row in tests[1:]] == [
        [test["system"], test["measure"], f"{100 * test['difference']:+.1f}"] for test in written["tests"]
    ]
    settings = dict(row for table in page.tables if table[0] == ["setting", "value"] for row in table[1:])
    assert settings["train.epochs"] == "4"
    assert settings["joint.mode"] == "joint"


def test_every_figure_names_files_that_are_there(run, text):
    figures = text.split("<figure>")[1:]
    assert len(figures) >= 4 + 2 * 4 + 6 + 3 + 2
    assert all('<p class="source">From <' in figure for figure in figures)
    links = {unquote(link) for link in Page(text).attributes("href") if not link.startswith("#")}
    assert {"comparison.json", "model/log.jsonl", "model-joint/log.jsonl", "rankings/bm25.run"} <= links
    assert [link for link in links if not (run.directory / link).is_file()] == []


def test_a_dataset_that_lies_elsewhere_is_named_and_not_linked(text):
    assert "From <code>data &amp; more/corpus.jsonl</code>" in text
    assert ".." not in "".join(Page(text).attributes("href"))


def test_texts_are_shown_as_they_are_and_never_run(run, text):
    page = Page(text)
    helped, _ = changed_examples(run, 5)
    assert helped
    for example in helped:
        assert EVIL in example.question
        assert f"{example.question} RR@10" in page.seen


def test_examples_have_ranks_rankings_and_the_questions_that_moved_the_passage(run, text):
    page = Page(text)
    helped, hurt = changed_examples(run, 5)
    for example in (*helped, *hurt):
        before, after = (f"{rank}" if rank else "not found" for rank in (example.before, example.after))
        assert f"{example.passage_id} rank {before} → {after}" in page.seen
        assert f"What moved {example.passage_id}: mean gate {example.why.mean_gate:.2f}" in page.seen or (
            not example.why.neighbors
        )
    moved = [table for table in page.tables if table[0] == ["training question that moved it", "attention"]]
    explained = [one.why for one in (*helped, *hurt)] + [one.above[1] for one in hurt if one.above]
    assert len(moved) == sum(bool(why.neighbors) for why in explained)
    assert page.seen.count("Ranked first by the dual-encoder") == len(helped) + len(hurt)
    assert "A passage moves towards the training questions that retrieved it." in page.seen


def test_a_hurt_question_s_passage_stood_higher_before(run):
    _, hurt = changed_examples(run, 40)
    for example in hurt:
        assert example.change.difference < 0
        assert example.after is None or example.after > example.before
        judged = run.dataset.split("test")[example.change.query]
        assert example.above is None or judged.get(example.above[0], 0) <= 0


def test_costs_are_of_every_artifact(run, text):
    (costs,) = (table for table in Page(text).tables if table[0][:2] == ["directory", "what it is"])
    assert [row[0] for row in costs[1:]] == [
        *("features", "graph", "model", "model-joint", *(["features-joint"] if run.joint_features else [])),
        *("embeddings", "index", "index-dual-encoder", *(["map"] if run.map else []), "rankings", "baselines"),
    ]
    seconds = {row[0]: row[2] for row in costs[1:]}
    assert seconds["model"] == f"{json.loads((run.directory / 'model' / 'meta.json').read_text())['seconds']:.1f} s"


def test_the_same_run_gives_the_same_bytes_and_is_not_written_again(run, text, said):
    path = run.directory / "report.html"
    stamp = path.stat().st_mtime_ns
    write_report(run)
    assert said == [f"{path}: already made from these inputs, reused"]
    assert path.stat().st_mtime_ns == stamp
    path.unlink()
    write_report(run)
    assert path.read_text(encoding="utf-8") == text


def test_another_comparison_and_a_page_of_something_else_are_written_anew(run, text):
    path = run.directory / "report.html"
    try:
        provenance = run.comparison.provenance | {"git_revision": "another"}
        write_report(replace(run, comparison=run.comparison.model_copy(update={"provenance": provenance})))
        assert "<code>another</code>" in path.read_text(encoding="utf-8")
        path.write_text("something else", encoding="utf-8")
        write_report(run)
        assert path.read_text(encoding="utf-8") == text
    finally:
        path.write_text(text, encoding="utf-8")


def test_a_model_without_a_log_has_no_curves_and_the_rest(run, tmp_path):
    copy = shutil.copytree(run.directory, tmp_path / "copy")
    (copy / "report.html").unlink()
    meta = json.loads((copy / "model" / "meta.json").read_text(encoding="utf-8"))
    del meta["files"]["log.jsonl"], meta["seconds"]  # as an earlier version wrote them
    (copy / "model" / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    (copy / "model" / "log.jsonl").unlink()
    page = assert_opens_offline(write_report(replace(run, directory=copy)).read_text(encoding="utf-8"))
    assert "There are no curves: log.jsonl is missing, or of another version." in page.seen
    assert ["model", "gnn-encoder", "–"] in [row[:3] for table in page.tables for row in table]


def test_an_encoder_s_recipe_has_its_report(evil_dataset, tiny_checkpoint, tmp_path):
    (tmp_path / "dpr.toml").write_text(ENCODER.format(checkpoint=tiny_checkpoint), encoding="utf-8")
    data = shutil.copytree(evil_dataset, tmp_path / "out" / "data")
    made = run_encoder_recipe(tmp_path / "dpr.toml", tmp_path / "out", data=data)
    text = write_report(made).read_text(encoding="utf-8")
    page = assert_opens_offline(text)
    assert headings(page, text) == [
        *("Comparison", "What was run", "Data", "Mining: mined", "Training: trained", "Every test"),
        *("Question by question", "The questions that changed most", "Costs", "Provenance"),
    ]
    links = {unquote(link) for link in page.attributes("href") if not link.startswith("#")}
    assert {"trained/log.jsonl", "mined/report.json", "data/qrels/test.tsv", "rankings/trained.run"} <= links
    assert [link for link in links if not (tmp_path / "out" / link).is_file()] == []
    assert "queries: 60, of which 60 are kept" in page.seen
