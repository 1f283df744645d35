"""``gnnretrieval run``: every stage, reused the second time."""

import json

import pytest

from tests.html_page import assert_opens_offline


@pytest.fixture(scope="module")
def first_run(recipe_text, succeeds, tmp_path_factory):
    """Directory of a recipe that was run once, and what the command printed."""
    directory = tmp_path_factory.mktemp("recipe")
    (directory / "tiny.toml").write_text(recipe_text, encoding="utf-8")
    return directory, succeeds("run", directory / "tiny.toml")


def test_comparison_json_has_the_documented_form(first_run):
    directory, _ = first_run
    comparison = json.loads((directory / "tiny" / "comparison.json").read_text(encoding="utf-8"))
    documented = {"split", "baseline", "systems", "tests", "provenance"}
    assert documented <= comparison.keys()
    assert comparison["split"] == "test"
    assert comparison["baseline"] == "dual-encoder"
    assert [system["name"] for system in comparison["systems"]] == ["bm25", "dual-encoder", "gnn-encoder"]
    measures = {"RR@10", "nDCG@10", "R@1", "R@5", "R@20", "R@100"}
    for system in comparison["systems"]:
        assert system.keys() == {"name", "measures"}
        assert system["measures"].keys() == measures
        assert all(0 <= value <= 1 for value in system["measures"].values())
    tested = {(test["system"], test["measure"]) for test in comparison["tests"]}
    assert tested == {(system, measure) for system in ("bm25", "gnn-encoder") for measure in measures}
    means = {system["name"]: system["measures"] for system in comparison["systems"]}
    for test in comparison["tests"]:
        assert {"system", "measure", "difference", "p", "p_holm"} <= test.keys()
        assert 0 <= test["p"] <= test["p_holm"] <= 1
        of_system, of_baseline = means[test["system"]][test["measure"]], means["dual-encoder"][test["measure"]]
        assert test["difference"] == pytest.approx(of_system - of_baseline)


def test_what_is_beyond_the_documented_form_is_counts_intervals_and_sizes(first_run):
    directory, _ = first_run
    comparison = json.loads((directory / "tiny" / "comparison.json").read_text(encoding="utf-8"))
    assert comparison.keys() - {"split", "baseline", "systems", "tests", "provenance"} <= {"queries", "intervals"}
    for test in comparison["tests"]:
        assert test.keys() - {"system", "measure", "difference", "p", "p_holm"} <= {
            *("wins", "ties", "losses", "interval", "effect_size"),
            *("p_randomisation", "p_randomisation_holm"),
        }


def test_provenance_names_data_seed_versions_and_every_setting(first_run):
    directory, _ = first_run
    provenance = json.loads((directory / "tiny" / "comparison.json").read_text(encoding="utf-8"))["provenance"]
    assert provenance["dataset"]["splits"] == {"train": 60, "dev": 10, "test": 10}
    assert len(provenance["dataset"]["hash"]) == 64
    assert provenance["seed"] == 0
    assert provenance["recipe"]["train"]["epochs"] == 30
    assert {"torch", "numpy", "gnnretrieval"} <= provenance["versions"].keys()


def test_everything_lies_under_the_recipe_s_name_and_nothing_half_made(first_run):
    directory, outcome = first_run
    names = {path.name for path in (directory / "tiny").iterdir()}
    assert {"features", "graph", "model", "embeddings", "index", "rankings", "comparison.json"} <= names
    assert not [name for name in names if name.startswith(".")]
    assert "gnn-encoder" in outcome.out
    assert "[comparison]" in outcome.err
    assert_opens_offline((directory / "tiny" / "report.html").read_text(encoding="utf-8"))
    assert f"{directory / 'tiny' / 'report.html'}" in outcome.out.splitlines()[-1]


def test_the_second_run_reuses_everything_and_changes_no_byte(first_run, succeeds):
    directory, outcome = first_run
    before = {path: path.read_bytes() for path in (directory / "tiny").rglob("*") if path.is_file()}
    again = succeeds("run", directory / "tiny.toml")
    assert again.err.count("already made from these inputs, reused") == 10
    assert again.out == outcome.out
    assert {path: path.read_bytes() for path in (directory / "tiny").rglob("*") if path.is_file()} == before


def test_a_changed_setting_makes_its_stage_again_and_says_which(first_run, succeeds, recipe_text):
    directory, _ = first_run
    changed = recipe_text.replace("epochs = 30", "epochs = 2").replace('"tiny"', '"changed"')
    (directory / "changed.toml").write_text(changed, encoding="utf-8")
    succeeds("run", directory / "changed.toml")
    (directory / "changed.toml").write_text(changed.replace("epochs = 2", "epochs = 3"), encoding="utf-8")
    again = succeeds("run", directory / "changed.toml").err
    assert f"{directory / 'changed' / 'model'}: made again, since epochs was 2 and is now 3" in again
    assert f"{directory / 'changed' / 'features'}: already made from these inputs, reused" in again


def test_json_is_the_comparison_on_disk(first_run, succeeds):
    directory, _ = first_run
    printed = succeeds("run", directory / "tiny.toml", "--json").json
    assert printed == json.loads((directory / "tiny" / "comparison.json").read_text(encoding="utf-8"))


def test_bm25_joined_with_each_dense_ranking_is_compared_as_fuse_and_evaluate_would(
    first_run, succeeds, tiny_dataset, tmp_path
):
    directory, outcome = first_run
    joined = json.loads((directory / "tiny" / "comparison-with-bm25.json").read_text(encoding="utf-8"))
    names = ["bm25", "bm25+questions", "bm25+dual-encoder", "best without the graph", "best with the graph"]
    assert [system["name"] for system in joined["systems"]] == names
    assert (joined["baseline"], joined["provenance"]["fusion"]) == (names[3], "chosen on dev")
    choice = joined["provenance"]["fusion_choices"]["best with the graph"]
    assert choice["said"] in outcome.out
    places = {"bm25": "rankings", "gnn-encoder": "rankings", "bm25+questions": "baselines"}
    both = [directory / "tiny" / places[name] / f"{name}.run" for name in choice["runs"]]
    weights = ",".join(map(str, choice["weights"]))
    succeeds("fuse", *both, "--out", tmp_path / "joined.run", "--method", choice["method"], "--weights", weights)
    alone = succeeds("evaluate", tmp_path / "joined.run", "--data", tiny_dataset, "--json").json
    assert joined["systems"][-1]["measures"] == pytest.approx(alone["measures"])
    index = ("--index", directory / "tiny", "--data", tiny_dataset, "--run", tmp_path / "pipeline.run")
    assert "pipeline" in succeeds("search", *index, "--pipeline").out
    served = succeeds("evaluate", tmp_path / "pipeline.run", "--data", tiny_dataset, "--json").json
    assert joined["systems"][-1]["measures"] == pytest.approx(served["measures"])


def test_the_gnn_encoder_is_beside_what_the_same_labels_are_worth_without_it(first_run, succeeds):
    directory, outcome = first_run
    found = json.loads((directory / "tiny" / "comparison-same-labels.json").read_text(encoding="utf-8"))
    names = [system["name"] for system in found["systems"]]
    assert (names[:2], names[-2:]) == (["bm25", "dual-encoder"], ["bm25+questions", "gnn-encoder"])
    assert found["baseline"] in names[2:-2]
    compared = json.loads((directory / "tiny" / "comparison.json").read_text(encoding="utf-8"))
    (test,) = (one for one in compared["tests"] if (one["system"], one["measure"]) == ("gnn-encoder", "RR@10"))
    assert test["difference"] > 0
    how = "ranks better than" if test["p"] < 0.05 else "does not rank significantly differently from"
    assert f"Verdict:\n  The gnn-encoder {how} its dual-encoder" in outcome.out
    assert f"{found['baseline']}, the strongest baseline on dev" in " ".join(outcome.out.split())
    assert "passages with training questions (10)" in outcome.out
    report = (directory / "tiny" / "report.html").read_text(encoding="utf-8")
    assert "The same labels without a GNN" in report
    made = directory / "tiny" / "baselines"
    again = succeeds("baselines", directory / "tiny" / "graph", "--out", made).out
    assert again.splitlines()[0].startswith("local-scaling")


def test_without_baselines_the_comparison_is_as_it_was(recipe_text, succeeds, tmp_path):
    short = recipe_text.replace("epochs = 30", "epochs = 1") + "\n[compare]\nbaselines = false\n"
    (tmp_path / "r.toml").write_text(short, encoding="utf-8")
    out = succeeds("run", tmp_path / "r.toml").out
    assert "label-mean" not in out
    assert "best without the graph" in out
    assert not (tmp_path / "tiny" / "baselines").exists()
    assert not list((tmp_path / "tiny").glob("comparison-same-labels.*"))


def test_without_fusion_there_is_no_comparison_of_hybrids(recipe_text, succeeds, tmp_path):
    short = recipe_text.replace("epochs = 30", "epochs = 1") + '\n[compare]\nfuse = "none"\n'
    (tmp_path / "r.toml").write_text(short, encoding="utf-8")
    assert "bm25+dual-encoder" not in succeeds("run", tmp_path / "r.toml").out
    assert not list((tmp_path / "tiny").glob("comparison-with-bm25.*"))


def test_comparisons_that_a_changed_recipe_no_longer_makes_do_not_stay(recipe_text, succeeds, refuses, tmp_path):
    recipe = recipe_text.replace("epochs = 30", "epochs = 1")
    (tmp_path / "r.toml").write_text(recipe, encoding="utf-8")
    succeeds("run", tmp_path / "r.toml")
    (tmp_path / "r.toml").write_text(f'{recipe}\n[compare]\nfuse = "none"\nbaselines = false\n', encoding="utf-8")
    succeeds("run", tmp_path / "r.toml")
    left = sorted(path.name for path in (tmp_path / "tiny").glob("comparison*"))
    assert left == ["comparison.json", "comparison.md"]
    refuses("search", "words", "--index", tmp_path / "tiny", "--pipeline", says=("there is no such file",))


def test_the_questions_that_gained_most_are_left_for_the_explorer(first_run):
    directory, outcome = first_run
    examples = json.loads((directory / "tiny" / "examples.json").read_text(encoding="utf-8"))
    assert 0 < len(examples) <= 6
    for example in examples:
        assert example["before"] is None or example["before"] > example["after"]
    assert f"{examples[0]['passage']}: rank {examples[0]['before']} → rank {examples[0]['after']}" in outcome.out


def test_data_and_out_on_the_command_line_replace_the_recipe_s(recipe_text, tiny_dataset, succeeds, tmp_path):
    without = "\n".join(line for line in recipe_text.splitlines() if not line.startswith("source"))
    (tmp_path / "r.toml").write_text(without.replace("epochs = 30", "epochs = 1"), encoding="utf-8")
    succeeds("run", tmp_path / "r.toml", "--data", tiny_dataset, "--out", tmp_path / "elsewhere")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "r.toml"]
