"""A recipe that is killed and run again ends as if it had not been (law 5)."""

import json
import subprocess
import sys
import types
from itertools import pairwise
from pathlib import Path

import pytest

from gnnretrieval.__main__ import main
from tests.forks import ROOT

MOMENTS = ["encoding", "saving", "training", "stopped"]  # in this order, by files that appear, not by seconds


@pytest.fixture(scope="module")
def report(recipe_text, tmp_path_factory):
    """Where the runs are, and what :mod:`interrupted_runs` tells of each start."""
    directory = tmp_path_factory.mktemp("interrupted")
    plain = "[compare]\nbaselines = false\n"  # one more stage, made whole like the others
    (directory / "r.toml").write_text(recipe_text + plain, encoding="utf-8")
    runs = [sys.executable, "-m", "tests.end_to_end.interrupted_runs", directory]
    done = subprocess.run(runs, cwd=ROOT, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return directory, json.loads(done.stdout)


def _result(directory: Path) -> dict[str, object]:
    comparison = json.loads((directory / "comparison.json").read_text(encoding="utf-8"))
    return {key: comparison[key] for key in ("systems", "tests")}


def _content(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    dated = ("meta.json", "comparison.json", "report.html")  # the time that they were made, and the git revision then
    return {str(path.relative_to(directory)): path.read_bytes() for path in files if path.name not in dated}


def test_a_run_that_goes_on_after_each_interruption_ends_with_the_unbroken_run_s_bytes(report):
    directory, told = report
    assert told["unbroken"]["code"] == 0, told["unbroken"]["log"]
    assert told["broken"]["code"] == 0, told["broken"]["log"]
    assert _result(directory / "broken") == _result(directory / "unbroken")
    model = "model/model.safetensors"
    assert (directory / "broken" / model).read_bytes() == (directory / "unbroken" / model).read_bytes()
    content, expected = _content(directory / "broken"), _content(directory / "unbroken")
    assert sorted(content) == sorted(expected)
    assert content == expected


@pytest.mark.parametrize(("name", "again"), pairwise([*MOMENTS, "broken"]))
def test_the_start_after_an_interruption_says_that_it_goes_on(name, again, report):
    _, told = report
    assert "half made before, going on" not in told["unbroken"]["log"]
    assert "half made before, going on" in told[again]["log"]


@pytest.mark.parametrize("name", ["encoding", "saving", "training"])
def test_a_killed_run_was_killed(name, report):
    _, told = report
    assert told[name]["code"] == -9


def test_ctrl_c_says_how_to_go_on(report):
    _, told = report
    assert told["stopped"]["code"] == 130
    assert told["stopped"]["log"].endswith("Stopped. Run the same command again to continue.\n")
    assert "Traceback" not in told["stopped"]["log"]


def test_ctrl_c_while_the_command_line_is_imported_is_no_traceback(monkeypatch):
    class Interrupted(types.ModuleType):
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "gnnretrieval.cli", Interrupted("gnnretrieval.cli"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
