"""Cross-references of the Python API: a class is documented by its public name, and code refers to it by its module."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

_OF_TYPING = {"numpy", "collections", "pathlib", "ir_measures", "Path"}  # no inventory of these is at hand offline

_KINDS = {  # of objects, by the role that refers to them
    "func": ("function",),
    "class": ("class", "exception"),
    "exc": ("exception",),
    "meth": ("method",),
    "attr": ("attribute", "property"),
}


def _resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.Element) -> nodes.Node | None:
    """A link to the documented object with this last name; plain code for one that exists without a page."""
    if node.get("refdomain") != "py":
        return None
    target, kinds = str(node["reftarget"]), _KINDS.get(node["reftype"], (node["reftype"],))
    ending = "." + ".".join(target.split(".")[-2:] if node["reftype"] in ("meth", "attr") else target.split(".")[-1:])
    domain = env.domains.python_domain
    found = [
        (name, entry)
        for name, entry in domain.objects.items()
        if name.endswith(ending) and entry.objtype in kinds and not entry.aliased
    ]
    if len(found) == 1:
        name, entry = found[0]
        place = app.builder.get_relative_uri(str(node["refdoc"]), entry.docname)
        link = nodes.reference("", "", internal=True, refuri=f"{place}#{entry.node_id}", reftitle=name)
        link += shown
        return link
    if target.split(".")[0] in _OF_TYPING or target.split(".")[-1] in _names() or _is_importable(target):
        return shown
    return None


def _is_importable(target: str) -> bool:
    module, _, name = target.rpartition(".")
    try:
        return hasattr(import_module(module), name)
    except (ImportError, ValueError):
        return False


@cache
def _names() -> set[str]:
    """Names that a module or a class of the package defines."""
    modules = [module for name, module in sys.modules.items() if name.split(".")[0] == "gnnretrieval"]
    names = {module.__name__.split(".")[-1] for module in modules}
    for module in modules:
        for name, value in vars(module).items():
            names |= {name, *vars(value)} if isinstance(value, type) else {name}
    return names


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("missing-reference", _resolve)
    return {"parallel_read_safe": True}
