"""The site's reference is complete; `make docs` builds the site, and a warning there is an error."""

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
