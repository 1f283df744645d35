"""Every command on tiny data, as its help shows it."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

import gnnretrieval
from gnnretrieval.cli import cli
from gnnretrieval.cli.options import part_of
from gnnretrieval.data import Dataset
from gnnretrieval.data.inspection.near_copies import QueryVectors, copy_cosine
from gnnretrieval.encoders.features import open_features
from gnnretrieval.recipes import recipe as recipe_module
from tests.html_page import assert_opens_offline

CHECKOUT = Path(__file__).resolve().parent.parent.parent


def _leaves(group: click.Group, path: tuple[str, ...] = ()) -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found |= _leaves(command, (*path, name))
        else:
            found[" ".join((*path, name))] = command
    return found


COMMANDS = _leaves(cli)


def _examples(command: click.Command) -> list[str]:
    """Each paragraph line after ``Example:``, unwrapped."""
    paragraphs = [" ".join(part.replace("\b", "").split()) for part in (command.help or "").split("\n\n")]
    return [text.strip() for part in paragraphs for text in part.split("Example:")[1:]]


def test_every_command_of_the_tree_is_known_here():
    assert set(COMMANDS) == {
        "quickstart",
        "run",
        "rollback",
        "update",
        "answer",
        "baselines",
        "data convert",
        "data docstrings",
        "data import",
        "data inspect",
        "data sentences",
        "encoder encode",
        "encoder import",
        "encoder inspect",
        "encoder train",
        "feedback fetch",
        "feedback forget",
        "feedback import",
        "feedback simulate",
        "graph add",
        "graph build",
        "graph export",
        "graph inspect",
        "graph neighbors",
        "graph view",
        "map build",
        "map view",
        "mine denoise",
        "mine negatives",
        "mine pseudo-label",
        "train",
        "embed",
        "index build",
        "index export",
        "index inspect",
        "index remove",
        "search",
        "serve",
        "evaluate",
        "compare",
        "fuse",
        "verify",
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_that_the_command_accepts(name, succeeds):
    assert "Example: gnnretrieval" in succeeds(*name.split(), "--help").out
    for example in _examples(COMMANDS[name]):
        program, *words = shlex.split(example)
        assert program == "gnnretrieval"
        assert words[: len(name.split())] == name.split()
        COMMANDS[name].make_context(name, words[len(name.split()) :])  # raises for what it does not know


@pytest.mark.parametrize("name", COMMANDS)
def test_help_gives_every_option_a_meaning(name):
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_a_checkout_and_the_installed_script_are_the_same_program():
    version = [sys.executable, "cli.py", "--version"]
    from_checkout = subprocess.run(version, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert from_checkout.stdout.strip() == f"gnnretrieval, version {gnnretrieval.__version__}"
    script = Path(sys.executable).with_name("gnnretrieval")
    installed = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
    assert installed.stderr == ""
    assert "gnnretrieval quickstart" in installed.stdout
    for name in cli.commands:
        assert f"\n  {name} " in installed.stdout


def test_a_wrong_command_in_a_process_of_its_own_has_exit_code_2_and_an_empty_stdout():
    wrong = subprocess.run([sys.executable, "cli.py", "grph"], cwd=CHECKOUT, capture_output=True, text=True)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "No such command 'grph'" in wrong.stderr


def test_data_inspect_counts_and_warns(made, succeeds):
    text = succeeds("data", "inspect", made.data).out
    assert "passages           40" in text
    assert "The test split is too small" in text
    figures = succeeds("data", "inspect", made.data, "--json").json
    assert (figures["passages"], figures["queries"]) == (40, 80)
    assert figures["splits"]["train"]["queries"] == 60
    assert figures["problems"] == []
    assert figures["tokens"] is None


def test_data_inspect_counts_tokens_names_examples_and_writes_a_page(made, tiny_checkpoint, succeeds, tmp_path):
    page = tmp_path / "page.html"
    limits = ("--max-tokens", 12, "--query-max-tokens", 9)
    outcome = succeeds(
        "data", "inspect", made.data, "--checkpoint", tiny_checkpoint, *limits, "--most", 1, "--json", "--html", page
    )
    tokens = outcome.json["tokens"]
    assert (tokens["passages"]["limit"], tokens["queries"]["limit"]) == (12, 9)
    assert 0 < tokens["passages"]["share_cut"] <= 1
    assert len(outcome.json["queries_per_passage"]["most_asked"]) == 1
    assert f"{page}: the page" in outcome.err
    assert "Tokens per passage" in page.read_text(encoding="utf-8")
    text = succeeds("data", "inspect", made.data, "--checkpoint", tiny_checkpoint).out
    assert f"Tokens, as {tiny_checkpoint} reads them" in text
    assert "Leakage: what a split shares with an earlier one" in text


def test_data_inspect_finds_near_copies_by_words_and_by_the_vectors_of_features(made, tiny_checkpoint, succeeds):
    (dev, test) = succeeds("data", "inspect", made.data, "--features", made.features, "--json").json["near_copies"]
    assert (dev["split"], test["split"], test["of"], test["queries"]) == ("dev", "test", "train", 10)
    assert test["by_vectors"]["encoder"] == str(tiny_checkpoint)
    features = open_features(made.features)
    vectors = QueryVectors("", features.query_rows(), features.queries)
    cosines = copy_cosine(Dataset.open(made.data), "test", vectors)
    assert test["by_vectors"]["at_least"]["0.8"] == sum(cosine >= 0.8 for cosine in cosines.values()) / 10
    text = succeeds("data", "inspect", made.data, "--features", made.features).out
    assert f"training question of the same passage (cosine: by {tiny_checkpoint})" in text
    assert "cosine ≥ 0.9" in text
    assert "cosine" not in succeeds("data", "inspect", made.data).out


def test_data_inspect_refuses_features_of_other_texts(made, refuses, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(made.data, other)
    queries = other / "queries.jsonl"
    queries.write_text(queries.read_text(encoding="utf-8") + '{"_id": "late", "text": "x"}\n', encoding="utf-8")
    refuses("data", "inspect", other, "--features", made.features, says=(made.features, "made from other texts than"))


def test_data_inspect_refuses_what_it_cannot_use_before_any_work(made, tmp_path, refuses):
    refuses("data", "inspect", made.data, "--max-tokens", 9, says=("give --checkpoint too",))
    refuses("data", "inspect", made.data, "--html", tmp_path, says=("is a directory",))
    refuses("data", "inspect", made.data, "--checkpoint", tmp_path / "none", says=("no such directory",))


def test_each_stage_says_what_it_made(made):
    said = {name: outcome.out.strip() for name, outcome in made.said.items()}
    assert said["encode"] == f"{made.features}: 40 passages and 80 queries, 32 dimensions"
    assert said["graph build"] == f"{made.graph}: 40 passages, 60 queries, 300 edges"
    assert said["train"].startswith(f"{made.model}: dev RR@10 ")
    assert "dual-encoder" in said["train"]
    assert said["embed"] == f"{made.embeddings}: 40 passages, 32 dimensions"
    for name, place in (("index build", made.index), ("index build of features", made.baseline_index)):
        assert said[name].startswith(f"{place}: 40 passages, ")
    for place in made[1:7]:
        assert sorted(path.name for path in place.parent.iterdir()) == [place.name], "nothing is left beside it"


def test_a_stage_made_again_from_the_same_inputs_is_reused(made, succeeds):
    before = {file: file.read_bytes() for file in made.graph.rglob("*") if file.is_file()}
    again = succeeds("graph", "build", made.data, made.features, "--out", made.graph)
    assert "already made from these inputs, reused" in again.err
    assert {file: file.read_bytes() for file in made.graph.rglob("*") if file.is_file()} == before


def test_graph_inspect(made, succeeds):
    text = succeeds("graph", "inspect", made.graph).out
    assert "40 passages, 60 queries, k = 5: 300 edges" in text
    figures = succeeds("graph", "inspect", made.graph, "--json").json
    assert (figures["passages"], figures["queries"], figures["edges"]) == (40, 60, 300)


def test_graph_neighbors_of_a_query_and_of_a_passage_are_the_same_edges(made, succeeds):
    of_query = succeeds("graph", "neighbors", made.graph, "train-00", "--query", "--json").json
    assert [neighbor["rank"] for neighbor in of_query["neighbors"]] == [1, 2, 3, 4, 5]
    first = of_query["neighbors"][0]
    of_passage = succeeds("graph", "neighbors", made.graph, first["id"], "--most", 60, "--json").json
    (back,) = (neighbor for neighbor in of_passage["neighbors"] if neighbor["id"] == "train-00")
    assert (back["score"], back["rank"], back["labelled"]) == (first["score"], 1, first["labelled"])
    assert "train-00: 5 passages" in succeeds("graph", "neighbors", made.graph, "train-00", "--query").out
    assert f"{first['id']}: " in succeeds("graph", "neighbors", made.graph, first["id"]).out


def test_search_answers_explains_and_prints_json(made, succeeds):
    question = "What is of use?"
    text = succeeds("search", question, "--index", made.index, "--k", 3).out
    assert text.rstrip().splitlines()[-1].startswith("3 of 40 passages in ")
    found = succeeds("search", question, "--index", made.index, "--k", 3, "--json").json
    assert [hit["rank"] for hit in found["hits"]] == [1, 2, 3]
    assert found["system"] == "gnn-encoder"
    assert all(hit["id"] in text for hit in found["hits"])
    explained = succeeds("search", question, "--index", made.index, "--k", 3, "--explain", "--json").json
    assert [hit["id"] for hit in explained["hits"]] == [hit["id"] for hit in found["hits"]]
    assert all(hit["why"]["dual_encoder_rank"] >= 1 for hit in explained["hits"])
    assert "dual-encoder rank" in succeeds("search", question, "--index", made.index, "--explain").out


def test_search_with_k_above_the_index_finds_all_there_is(made, succeeds):
    found = succeeds("search", "anything", "--index", made.index, "--k", 1000, "--json").json
    assert len({hit["id"] for hit in found["hits"]}) == 40


def test_search_works_wherever_it_is_started(made, succeeds, tmp_path, monkeypatch):
    here = succeeds("search", "anything", "--index", made.index, "--json").json["hits"]
    monkeypatch.chdir(tmp_path)
    assert succeeds("search", "anything", "--index", made.index, "--json").json["hits"] == here


def test_a_checkpoint_named_relative_to_the_working_directory_is_found_from_another(
    made, tiny_checkpoint, succeeds, tmp_path, monkeypatch
):
    monkeypatch.chdir(tiny_checkpoint.parent)
    encoder = ("--checkpoint", tiny_checkpoint.name, "--precision", "float32")
    succeeds("encoder", "encode", made.data, *encoder, "--out", tmp_path / "features")
    succeeds("index", "build", tmp_path / "features", "--out", tmp_path / "index")
    monkeypatch.chdir(tmp_path)
    succeeds("search", "anything", "--index", "index")


def test_runs_are_trec_files_of_every_query(runs):
    for name, file in runs.items():
        rows = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
        assert {len(row) for row in rows} == {6}
        assert {row[0] for row in rows} == {f"test-{number:02d}" for number in range(10)}
        assert {row[5] for row in rows} == {name}


def test_evaluate_agrees_with_compare(made, runs, succeeds):
    measured = {
        name: succeeds("evaluate", file, "--data", made.data, "--json").json["measures"] for name, file in runs.items()
    }
    table = succeeds("compare", *runs.values(), "--data", made.data, "--json").json
    assert {system["name"]: system["measures"] for system in table["systems"]} == measured
    assert table["baseline"] == "dual-encoder"
    assert {test["system"] for test in table["tests"]} == {"gnn-encoder", "bm25"}
    text = succeeds("evaluate", runs["bm25"], "--data", made.data).out
    assert "10 queries of test, measures × 100" in text
    assert f"RR@10      {100 * measured['bm25']['RR@10']:5.1f}" in text
    text = succeeds("compare", *runs.values(), "--data", made.data, "--baseline", "bm25").out
    assert all(name in text for name in runs)
    assert "differs from bm25" in text


def test_compare_writes_a_page_of_the_same_figures(made, runs, succeeds, refuses, tmp_path):
    place = tmp_path / "comparison.html"
    outcome = succeeds("compare", *runs.values(), "--data", made.data, "--json", "--html", place, "--changed", 2)
    assert f"{place}: the page" in outcome.err
    page = assert_opens_offline(place.read_text(encoding="utf-8"))
    for system, row in zip(outcome.json["systems"], page.tables[0][1:], strict=True):
        assert row[0] == system["name"]
        assert row[1].startswith(f"{100 * system['measures']['RR@10']:.1f}")
    assert [row[2] for row in page.tables[-1][1:]] == list(outcome.json["provenance"]["runs"].values())
    assert "rank" in page.seen
    refuses("compare", runs["bm25"], "--data", made.data, "--html", tmp_path, says=("is a directory",))


def test_quickstart_goes_the_whole_way_and_points_on(recipe_text, succeeds, tmp_path, monkeypatch):
    # Only the recipe is replaced: the real one takes minutes.
    recipe = tmp_path / "package" / "graphs" / "docstrings.toml"
    recipe.parent.mkdir(parents=True)
    recipe.write_text(recipe_text, encoding="utf-8")
    monkeypatch.setattr(recipe_module, "_PACKAGE", tmp_path / "package")
    monkeypatch.chdir(tmp_path)
    outcome = succeeds("quickstart")
    assert (tmp_path / "graphs" / "docstrings" / "comparison.json").is_file()
    assert "test: 10 queries" in outcome.out
    suggested = [line.strip() for line in outcome.out.splitlines() if line.startswith("  gnnretrieval ")]
    assert len(suggested) >= 3
    for line in suggested:
        words = shlex.split(line)[1:]
        name = next(name for name in COMMANDS if words[: len(name.split())] == name.split())
        COMMANDS[name].make_context(name, words[len(name.split()) :])
    (search,) = (shlex.split(line)[1:] for line in suggested if line.startswith("gnnretrieval search"))
    succeeds(*search)  # with the default --index
    assert json.loads(succeeds("quickstart", "--json").out)["baseline"] == "dual-encoder"


def test_the_next_command_selects_the_same_part_of_the_dataset():
    assert part_of(Path("my data"), "qrels", {}) == "'my data'"
    assert part_of(Path("d"), "qrels_by_passage", {"domain": "squad"}) == (
        "d --qrels qrels_by_passage --where domain=squad"
    )


def test_each_command_names_the_next_and_puts_its_results_beside_its_input(
    succeeds, tiny_dataset, tiny_checkpoint, tmp_path, monkeypatch
):
    place = tmp_path / "my work"  # each command can be pasted as it is printed
    data = shutil.copytree(tiny_dataset, place / "data")
    said = succeeds("encoder", "encode", data, "--checkpoint", tiny_checkpoint, "--precision", "float32").err
    for made in ("graph", "model", "embeddings", "index"):
        command = next(line for line in said.splitlines() if line.startswith("Next: ")).removeprefix("Next: ")
        words = shlex.split(command.split(", ")[0])[1:]
        said = succeeds(*words).err
        assert (place / made / "meta.json").is_file()
    assert f"gnnretrieval serve '{place / 'index'}'" in said
    succeeds("baselines", place / "graph", "--only", "label-mean")
    succeeds("index", "build", place / "features")
    mined = succeeds("mine", "negatives", data).err
    assert f"Next: gnnretrieval mine denoise '{place / 'negatives'}' --cross-encoder NAME, or" in mined
    succeeds("data", "convert", data, "--to", "tsv")
    succeeds("graph", "export", place / "graph")
    written = {"baselines", "index-dual-encoder", "negatives", "data-tsv", "edges.tsv"}
    assert written <= {path.name for path in place.iterdir()}
    monkeypatch.chdir(place / "graph")
    assert "reused" in succeeds("baselines", ".", "--only", "label-mean").err
