"""The documentation site: `make docs` builds it into docs/_build.

The source directory is the repository, so that a link means the same on the site and on the forge. Pages are those of
docs/ and of benchmarks/, and the few beside the README.
"""

import sys
from pathlib import Path

from gnnretrieval import __version__

ROOT = Path(__file__).resolve().parents[1]
PAGES_BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")

sys.path.insert(0, str(ROOT / "docs" / "_ext"))

project = "gnnretrieval"
author = "The gnnretrieval developers"
copyright = author
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_click",
    "sphinx_copybutton",
    "api_names",
    "command_help",
    "settings_fields",
]
root_doc = "docs/index"
include_patterns = ["docs/**", "benchmarks/**", *PAGES_BESIDE]
# Directories that hold no page are not walked: there may be gigabytes of artifacts in a checkout.
exclude_patterns = [
    *(one.name for one in ROOT.iterdir() if one.name not in ("docs", "benchmarks", *PAGES_BESIDE)),
    "docs/_build",
]

# Markdown and notebooks.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "docs" / "_build" / "notebooks")
nb_execution_raise_on_error = True
nb_execution_timeout = 1800  # seconds of a cell, on a machine with other work too
nb_execution_in_temp = False  # they import help_desk.py beside them
nb_output_stderr = "remove"  # warnings about the terminal

# Docstrings.
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = "gnnretrieval"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_extra"]
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"
pygments_dark_style = "github-dark"
