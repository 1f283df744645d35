"""A recipe that is killed and run again ends as if it had not been (law 5)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# One process imports torch once; each run is a fork of it. The moments are files that appear, not seconds.
SERVER = Path(__file__).with_name("interrupted_runs.py")


@pytest.fixture(scope="module")
def report(recipe_text, tmp_path_factory):
    """Where the runs are, and what :mod:`interrupted_runs` tells of each."""
    directory = tmp_path_factory.mktemp("interrupted")
    longer = recipe_text.replace("epochs = 30", "epochs = 40")  # there is time to interrupt it, on a busy machine too
    assert longer != recipe_text
    plain = "[compare]\nbaselines = false\n"  # one more stage, made whole like the others, in every one of nine runs
    (directory / "r.toml").write_text(longer + plain, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, SERVER, directory], capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return directory, json.loads(done.stdout)


def _result(directory: Path) -> dict[str, object]:
    comparison = json.loads((directory / "comparison.json").read_text(encoding="utf-8"))
    return {key: comparison[key] for key in ("systems", "tests")}


def _content(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    dated = ("meta.json", "comparison.json", "report.html")  # the time that they were made, and the git revision then
    return {str(path.relative_to(directory)): path.read_bytes() for path in files if path.name not in dated}


@pytest.mark.parametrize("name", ["encoding", "training", "saving", "stopped"])
def test_run_again_after_an_interruption_gives_the_unbroken_run_s_bytes(name, report):
    directory, told = report
    assert told["unbroken"]["code"] == 0, told["unbroken"]["log"]
    assert told[name]["code"] == 0, told[name]["log"]
    assert "half made before, going on" in told[name]["log"]
    assert _result(directory / name) == _result(directory / "unbroken")
    model = "model/model.safetensors"
    assert (directory / name / model).read_bytes() == (directory / "unbroken" / model).read_bytes()
    content, expected = _content(directory / name), _content(directory / "unbroken")
    assert sorted(content) == sorted(expected)
    assert content == expected


@pytest.mark.parametrize("name", ["encoding", "training", "saving"])
def test_a_killed_run_was_killed(name, report):
    _, told = report
    assert told[name]["interrupted"] == -9


def test_ctrl_c_says_how_to_go_on(report):
    _, told = report
    assert told["stopped"]["interrupted"] == 130
    assert told["stopped"]["last words"].endswith("Stopped. Run the same command again to continue.\n")
    assert "Traceback" not in told["stopped"]["last words"]
