from pathlib import Path

import pytest

from gnnretrieval.errors import InputError
from gnnretrieval.recipes import Recipe, read_recipe, run
from gnnretrieval.recipes.recipe import find_recipe
from gnnretrieval.storage.artifacts import Artifact

GRAPHS = sorted((Path(__file__).resolve().parents[2] / "graphs").glob("*.toml"))


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("path", GRAPHS, ids=lambda path: path.stem)
def test_every_recipe_of_the_repository_is_one_named_after_its_file(path):
    assert read_recipe(path).name == path.stem


@pytest.mark.parametrize("name", ["docstrings", "docstrings.toml", "graphs/docstrings.toml"])
def test_a_recipe_of_ours_is_found_by_its_name_wherever_one_is(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert read_recipe(find_recipe(Path(name))).name == "docstrings"


def test_a_file_of_that_name_comes_first_and_another_name_lists_ours(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("docstrings.toml").touch()
    assert find_recipe(Path("docstrings.toml")) == Path("docstrings.toml")
    with pytest.raises(InputError, match="or one of these names: docstrings, docstrings-cut, "):
        read_recipe(find_recipe(Path("docstring")))


def test_there_are_recipes():
    assert {"docstrings", "docstrings-cut"} <= {path.stem for path in GRAPHS}


def test_each_docstring_recipe_makes_its_variant(monkeypatch, tmp_path):
    made: dict[str, str] = {}

    def make(path: Path, summaries: str, **options: object) -> Artifact:
        made[str(path.relative_to(tmp_path))] = summaries
        raise InputError("not made here")

    monkeypatch.setattr(run, "make_docstring_corpus", make)
    for name in ("docstrings", "docstrings-cut"):
        path = next(path for path in GRAPHS if path.stem == name)
        with pytest.raises(InputError, match="not made here"):
            run.run_recipe(path, out=tmp_path / name)
    assert made == {"docstrings/dataset": "passage", "docstrings-cut/dataset": "question"}


def test_a_recipe_holds_the_settings_of_every_stage(write):
    recipe = read_recipe(
        write(
            """
            name = "mine"
            [data]
            source = "corpus"
            where = { domain = "news" }
            [encoder]
            checkpoint = "a/b"
            [graph]
            k = 7
            edge_features = ["score"]
            [train]
            epochs = 2
            [train.encoder]
            heads = 2
            [compare]
            depth = 10
            """
        )
    )
    assert recipe.data.source == "corpus"
    assert recipe.data.where == {"domain": "news"}
    assert recipe.encoder.checkpoint == "a/b"
    assert (recipe.graph.k, recipe.graph.edge_features) == (7, ("score",))
    assert (recipe.train.epochs, recipe.train.encoder.heads) == (2, 2)
    assert recipe.compare.depth == 10


def test_what_a_recipe_leaves_out_has_its_default(write):
    assert read_recipe(write('name = "mine"')) == Recipe(name="mine")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "a"\n\n[train]\nepocs = 3\n', r"mine\.toml:4: unknown key 'train\.epocs'\. Did you mean 'epochs'\?"),
        ('name = "a"\ntrian.epochs = 3\n', r"mine\.toml:2: unknown key 'trian'\. Did you mean 'train'\?"),
        ('name = "a"\n[grahp]\nk = 3\n', r"mine\.toml:2: unknown key 'grahp'\. Did you mean 'graph'\?"),
        ('name = "a"\n[train]\nepochs = 2\n[train.encoder]\nhead = 3\n', r"mine\.toml:5: .*'train\.encoder\.head'"),
        ('name = "a"\n[train.encoder]\nheads = 0\n', r"mine\.toml:3: train\.encoder\.heads: .*found 0"),
        ('name = "a"\n[train]\n# epochs = 1\nepochs = "x"\n', r"mine\.toml:4: train\.epochs: .*found 'x'"),
        (
            'name = "a"\n[graph]\nedge_features = [\n  "score",\n  "bm52",\n]\n',
            r"mine\.toml:3: graph\.edge_features\.1: ",
        ),
        ('name = "../a"\n', r"mine\.toml:1: name: .*found '\.\./a'"),
        ("[train]\nepochs = 1\n", r"mine\.toml: name is missing: add it"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_its_line(write, text, message):
    with pytest.raises(InputError, match=message) as caught:
        read_recipe(write(text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line"), [('name = "a"\nk = \n', 2), ('name = "a"\n[train\n', 2), ('name = "a"\nname = "b"\n', 2)]
)
def test_a_line_that_is_no_toml_is_named(write, text, line):
    with pytest.raises(InputError, match=rf"mine\.toml:{line}: not TOML: ") as caught:
        read_recipe(write(text))
    assert caught.value.line == line


def test_a_recipe_that_is_not_there_or_not_utf8_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml: there is no such recipe\. Give a TOML file"):
        read_recipe(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes('name = "é"'.encode("latin-1"))
    with pytest.raises(InputError, match=r"latin\.toml: not UTF-8"):
        read_recipe(tmp_path / "latin.toml")
    with pytest.raises(InputError, match="no such recipe"):
        read_recipe(tmp_path)


def test_a_recipe_has_the_tables_of_the_one_it_extends_and_its_own(write, tmp_path):
    base = '[data]\nsource = "corpus"\n[graph]\nk = 7\nedge_features = ["score"]\n'
    (tmp_path / "base.toml").write_text(f'name = "base"\n{base}', encoding="utf-8")
    recipe = read_recipe(write('name = "mine"\nextends = "base.toml"\n[graph]\nk = 3\n'))
    assert (recipe.name, recipe.data.source) == ("mine", "corpus")
    assert recipe.graph == Recipe.parse({"name": "x", "graph": {"k": 3}}, tmp_path, {}).graph


@pytest.mark.parametrize(
    ("extends", "base", "message"),
    [
        ('"../base.toml"', "", "mine.toml:2: extends must be the file name of a recipe beside this one"),
        ("3", "", "mine.toml:2: extends must be the file name of a recipe beside this one"),
        ('"base.toml"', 'extends = "other.toml"\n', "mine.toml:2: base.toml extends another recipe: extend"),
        ('"base.toml"', "[graph]\nkk = 1\n", "base.toml:3"),
        ('"none.toml"', "", "none.toml: there is no such recipe"),
    ],
)
def test_what_cannot_be_extended_is_named(write, tmp_path, extends, base, message):
    (tmp_path / "base.toml").write_text(f'name = "base"\n{base}', encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_recipe(write(f'name = "mine"\nextends = {extends}\n'))


def test_a_ranking_that_adds_nothing_to_the_index_is_refused(write):
    assert read_recipe(write('name = "a"\n[ranking]\nrerank = "late"\nadaptive = "gar"\n')).ranking.adaptive == "gar"
    with pytest.raises(InputError, match="adds nothing to the index"):
        read_recipe(write('name = "a"\n[ranking]\nrerank_depth = 50\n'))
    with pytest.raises(InputError, match="rerank_depth has no effect without rerank"):
        read_recipe(write('name = "a"\n[ranking]\nrerank_depth = 5\n'))


def test_a_setting_of_the_ranking_without_effect_and_weights_of_other_than_two_are_refused(write):
    for settings, said in (
        ('rerank = "late"\nweights = [1.0, 2.0]', "weights has no effect without hybrid"),
        ("hybrid = true\nrerank_depth = 5", "rerank_depth has no effect without rerank"),
        ('rerank = "late"\nneighbors = 4', "neighbors has no effect without adaptive"),
        ("hybrid = true\nweights = [1.0, 2.0, 3.0]", "3 weights for 2 runs"),
        ("hybrid = true\nweights = [0.0, 0.0]", "not all 0"),
    ):
        with pytest.raises(InputError, match=said):
            read_recipe(write(f'name = "a"\n[ranking]\n{settings}\n'))
