"""The site builds without a warning, where its packages are (`pip install '.[docs]'`); notebooks run in `make docs`."""

import subprocess
import sys

import pytest
from doc_pages import ROOT

from gnnretrieval import __all__ as public
from gnnretrieval.cli import cli

COMMANDS = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs/reference/commands").glob("*.md"))
API = (ROOT / "docs" / "reference" / "python-api.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_is_in_the_reference(name):
    assert f":prog: gnnretrieval {name}\n" in COMMANDS


@pytest.mark.parametrize("name", sorted(set(public) - {"__version__"}))
def test_every_public_name_is_in_the_reference(name):
    assert f":: gnnretrieval.{name}\n" in API


def test_the_site_builds_without_a_warning(tmp_path):
    for package in ("furo", "myst_nb", "sphinx_click", "sphinx_copybutton"):
        pytest.importorskip(package, reason="no documentation packages here: pip install '.[docs]'")
    build = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going", "-D", "nb_execution_mode=off"]
    build += ["-c", "docs", ".", tmp_path / "html"]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "html" / "docs" / "reference" / "commands" / "graph.html").read_text(encoding="utf-8")
    assert "--edges" in page
