"""The still picture of a map."""

import re
import shutil
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from gnnretrieval.errors import ArtifactError
from gnnretrieval.maps.building import build_map
from gnnretrieval.maps.passage_map import open_map
from gnnretrieval.maps.picture import picture_of, write_picture


def numbers(path: str, letter: str) -> np.ndarray:
    """The places that a path goes to by ``letter``."""
    return np.array([[float(part) for part in pair.split()] for pair in re.findall(rf"{letter}([\d. -]+)", path)])


def paths(drawn: str) -> dict[str, str]:
    return {one.get("class"): one.get("d") for one in ElementTree.fromstring(drawn).iter() if one.tag.endswith("path")}


def test_dots_lines_and_diamonds_are_the_map_s_points_by_one_scale(half_moved, tmp_path):
    shown = build_map(half_moved, tmp_path / "map")
    drawn = paths(picture_of(shown))
    moved = shown.displacement > 0
    assert 0 < moved.sum() < len(moved)
    placed = np.concatenate(
        [
            numbers(drawn["still"], "M"),
            numbers(drawn["tail"], "M"),
            numbers(drawn["tail"], "L"),
            numbers(drawn["asked"], "M"),
        ]
    )
    real = np.concatenate([shown.after[~moved], shown.before[moved], shown.after[moved], shown.questions])
    placed[-len(shown.questions) :, 1] += 2.5  # a diamond begins at its top
    scale = np.ptp(placed[:, 0]) / np.ptp(real[:, 0])
    np.testing.assert_allclose(placed - placed[0], (real - real[0]) * [scale, -scale], atol=0.3)
    assert ((placed >= 0) & (placed <= [440, 330])).all()
    np.testing.assert_array_equal(numbers(drawn["head"], "M"), numbers(drawn["tail"], "L"))


def test_the_file_is_an_svg_for_light_and_dark_without_script_or_texts(built, tmp_path):
    write_picture(built, tmp_path / "map.svg")
    text = (tmp_path / "map.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in text
    assert not re.search("<script|<text|href", text)


def test_a_damaged_map_is_refused(built, tmp_path):
    place = shutil.copytree(built.path, tmp_path / "map")
    np.save(place / "after.npy", np.full_like(np.load(place / "after.npy"), np.nan))
    with pytest.raises(ArtifactError, match="the map is damaged"):
        picture_of(open_map(place))
