"""Recipes that are wrong: said at once, with file and line, before anything is made."""

import shutil

import pytest

# By fault: what is replaced, by what, the line that is named (None: none), and what is said.
FAULTS = {
    "an unknown key": ("epochs = 30", "epoch = 30", 15, ("unknown key 'train.epoch'", "Did you mean 'epochs'?")),
    "an unknown table": ("[train]", "[trian]", 14, ("unknown key 'trian'", "Did you mean 'train'?")),
    "no TOML": ("epochs = 30", "epochs = ", 15, ("not TOML",)),
    "a key twice": ("k = 5", "k = 5\nk = 6", 13, ("not TOML",)),
    "words for a number": ("epochs = 30", 'epochs = "ten"', 15, ("train.epochs", "found 'ten'")),
    "a number out of range": ("k = 5", "k = 0", 12, ("graph.k", "found 0")),
    "a choice that is none": ('"float32"', '"fp16"', 8, ("encoder.precision", "found 'fp16'")),
    "no name": ('name = "tiny"', "", None, ("name",)),
    "a name that is a path": ('name = "tiny"', 'name = "../up"', 1, ("name", "found '../up'")),
    "no data": ("source = ", "# source = ", None, ("names no data", "--data")),
    "data that is not there": ("/tiny", "/nowhere", None, ("nowhere", "no such directory")),
    "an unknown split": ("k = 5", 'split = "trian"', None, ("no split 'trian'", "Did you mean 'train'?")),
    "an unknown checkpoint": ("checkpoint = ", 'checkpoint = "no/such-model" #', None, ("no/such-model",)),
    "an unknown measure": ("[graph]", '[compare]\nmeasures = ["NDGC@10"]\n[graph]', None, ("'NDGC@10'",)),
    "an unknown re-ranker": ("[train]", '[ranking]\nrerank = "no/such-one"\n[train]', None, ("no/such-one",)),
    "no measure": ("[graph]", "[compare]\nmeasures = []\n[graph]", None, ("measure",)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_recipe_makes_nothing(fault, recipe_text, refuses, tmp_path):
    found, replacement, line, says = FAULTS[fault]
    recipe = tmp_path / "wrong.toml"
    recipe.write_text(recipe_text.replace(found, replacement, 1), encoding="utf-8")
    where = f"{recipe}:{line}: " if line else ""
    refuses("run", recipe, says=(where, *says), out=tmp_path / "tiny")
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.toml"]


def test_dev_questions_that_no_run_can_hold_are_refused_before_any_work(recipe_text, tiny_dataset, refuses, tmp_path):
    data = shutil.copytree(tiny_dataset, tmp_path / "data")
    for file in (data / "queries.jsonl", data / "qrels" / "dev.tsv"):
        file.write_text(file.read_text(encoding="utf-8").replace("dev-03", "dev 03"), encoding="utf-8")
    (tmp_path / "r.toml").write_text(recipe_text, encoding="utf-8")
    refuses("run", tmp_path / "r.toml", "--data", data, says=(data, "'dev 03' cannot go into a TREC file"))
    assert not (tmp_path / "tiny").exists()


def test_heads_that_do_not_divide_the_width(recipe_text, refuses, tmp_path):
    recipe = tmp_path / "wrong.toml"
    recipe.write_text(recipe_text + "[train.encoder]\nheads = 5\n", encoding="utf-8")
    refuses("run", recipe, says=("5 heads", "32"))


@pytest.mark.parametrize(("table", "key"), [("graph", "split"), ("compare", "split")])
def test_training_and_reporting_on_one_split_is_refused(table, key, recipe_text, refuses, tmp_path):
    split = "test" if table == "graph" else "train"
    line = f'{key} = "{split}"\n'
    text = recipe_text.replace("k = 5\n", f"k = 5\n{line}") if table == "graph" else f"{recipe_text}[compare]\n{line}"
    (tmp_path / "leak.toml").write_text(text, encoding="utf-8")
    refuses("run", tmp_path / "leak.toml", says=(f"'{split}'",), out=tmp_path / "tiny")


def test_a_recipe_that_is_no_file(refuses, made, tmp_path):
    refuses("run", tmp_path / "no.toml", says=(tmp_path / "no.toml", "no such recipe"))
    refuses("run", tmp_path, says=(tmp_path, "recipe"))
    refuses("run", made.data / "corpus.jsonl", says=(f"{made.data / 'corpus.jsonl'}:1: ", "not TOML"))
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    refuses("run", tmp_path / "latin.toml", says=(tmp_path / "latin.toml", "not UTF-8"))


def test_places_on_the_command_line_that_cannot_be(recipe_text, refuses, made, tmp_path):
    recipe = tmp_path / "r.toml"
    recipe.write_text(recipe_text, encoding="utf-8")
    refuses("run", recipe, "--data", tmp_path / "nowhere", says=(tmp_path / "nowhere", "no such directory"))
    refuses("run", recipe, "--out", made.data / "corpus.jsonl", says=(made.data / "corpus.jsonl",))
    assert [path.name for path in tmp_path.iterdir()] == ["r.toml"]


def test_files_of_the_user_in_a_recipe_s_directory_survive(recipe_text, refuses, tmp_path):
    (tmp_path / "r.toml").write_text(recipe_text, encoding="utf-8")
    mine = tmp_path / "out" / "features" / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("years of work", encoding="utf-8")
    refuses("run", tmp_path / "r.toml", "--out", tmp_path / "out", says=(mine.parent,))
    assert mine.read_text(encoding="utf-8") == "years of work"


def test_ids_that_no_trec_file_can_hold_are_refused_before_anything_is_made(recipe_text, dataset, refuses, tmp_path):
    for file in (dataset / "queries.jsonl", *(dataset / "qrels").iterdir()):
        file.write_text(file.read_text(encoding="utf-8").replace("test-", "test "), encoding="utf-8")
    (tmp_path / "r.toml").write_text(recipe_text, encoding="utf-8")
    refuses("run", tmp_path / "r.toml", "--data", dataset, says=("'test 00'",), out=tmp_path / "tiny")


def test_the_dataset_s_own_directory_is_not_written_into(recipe_text, dataset, refuses, tmp_path):
    (tmp_path / "r.toml").write_text(recipe_text.replace('"tiny"', '"dataset"'), encoding="utf-8")
    before = sorted(path.name for path in dataset.iterdir())
    refuses("run", tmp_path / "r.toml", "--data", dataset, says=(dataset, "--out"))
    assert sorted(path.name for path in dataset.iterdir()) == before
