import shutil

import pytest


@pytest.fixture(scope="module")
def embeddings(made, tmp_path_factory):
    """A copy that a map may lie beside; its paths to graph and model are relative."""
    return shutil.copytree(made.embeddings, tmp_path_factory.mktemp("beside") / "embeddings")


def test_a_map_lies_beside_the_embeddings(embeddings, succeeds):
    said = succeeds("map", "build", embeddings).out
    assert said.startswith(f"{embeddings.with_name('map')}: 40 passages")
    assert "% of the variance" in said


def test_a_map_of_an_index_lies_beside_the_index_where_serve_looks(made, succeeds, tmp_path_factory):
    index = shutil.copytree(made.index, tmp_path_factory.mktemp("elsewhere") / "index")
    assert succeeds("map", "build", index).out.startswith(f"{index.with_name('map')}: 40 passages")


def test_what_has_no_embeddings_is_refused(made, refuses, tmp_path):
    out = tmp_path / "map"
    refuses("map", "build", made.baseline_index, "--out", out, says=("no graph", "GNN-encoder's index"), out=out)
    refuses("map", "build", made.graph, "--out", out, says=("holds a graph, not an index",), out=out)
    refuses("map", "build", made.index, "--method", "tsne", "--out", out, out=out)


def test_a_map_s_page_lies_beside_it_and_its_picture_where_it_is_told(embeddings, succeeds, refuses, tmp_path):
    place = embeddings.with_name("map-of-picture")
    said = succeeds("map", "build", embeddings, "--out", place).err
    assert f"Next: gnnretrieval map view {place}," in said
    assert succeeds("map", "view", place).err.startswith(f"{place}.html: the page")
    svg = tmp_path / "map.svg"
    assert succeeds("map", "view", place, "--svg", svg).err.startswith(f"{svg}: the picture")
    assert svg.read_text("utf-8").startswith("<svg ")
    both = ("--svg", tmp_path / "other.svg", "--html", tmp_path / "other.html")
    refuses("map", "view", place, *both, says=("--html writes a page and --svg a picture",), out=both[1])


def test_a_map_is_written_as_one_file(embeddings, succeeds, refuses, tmp_path):
    place = tmp_path / "map.html"
    succeeds("map", "build", embeddings, "--out", embeddings.with_name("map-of-file"))
    succeeds("map", "view", embeddings.with_name("map-of-file"), "--points", 20, "--texts", 5, "--html", place)
    assert "gnnretrieval: the map" in place.read_text("utf-8")
    refuses("map", "view", embeddings, "--html", tmp_path / "other.html", says=("holds embeddings, not a map",))
    refuses("map", "view", embeddings.with_name("map-of-file"), "--html", tmp_path, says=("this is a directory",))
