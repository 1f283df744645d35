import sys
import types

import pytest

from gnnretrieval.data.docstring_corpus.public_objects import public_objects


@pytest.fixture
def package(monkeypatch, tmp_path):
    """A package on disk: ``toybox`` with a public and a private module, tests, and a module that cannot be imported."""
    files = {
        "__init__.py": """
from toybox._inner import listed, wrapper, Shape, undocumented
from os.path import join
__all__ = ["listed", "wrapper", "Shape", "undocumented", "join", "gone", "constant"]
constant = 3
""",
        "_inner.py": '''
def listed():
    """Listed."""
def wrapper():
    """Listed."""
class Shape:
    """A shape."""
    def area(self):
        """Its area."""
def undocumented(): pass
''',
        "open.py": '''
import warnings
warnings.warn("toybox.open is deprecated", DeprecationWarning)
from toybox._inner import Shape
def here(**kwargs):
    """Defined here."""
class Instance:
    """The class."""
    def __call__(self): pass
own = Instance()
own.__doc__ = "An instance with a docstring of its own."
plain = Instance()
''',
        "broken.py": "raise RuntimeError('no such dependency')",
        "tests/__init__.py": 'def test_it():\n    """A test."""\n',
    }
    for name, source in files.items():
        path = tmp_path / "toybox" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "toybox"]:
        del sys.modules[name]


def test_public_functions_classes_and_documented_instances_are_found_once(package, recwarn):
    found = {entry.name: entry for entry in public_objects(["toybox"])}
    assert list(found) == [
        "toybox.Shape",
        "toybox.listed",
        "toybox.open.Instance",
        "toybox.open.here",
        "toybox.open.own",
    ]
    assert found["toybox.listed"].names == ("toybox.listed", "toybox.wrapper")
    assert found["toybox.Shape"].docstring == "A shape."
    assert not recwarn.list


def test_a_dispatcher_is_seen_through(package):
    import toybox.open

    toybox.open.sent = types.SimpleNamespace(orig_func=toybox.open.here, __doc__="With backends.")
    entry = next(entry for entry in public_objects(["toybox"]) if entry.name == "toybox.open.here")
    assert entry.names == ("toybox.open.here", "toybox.open.sent")


def test_the_first_package_names_what_two_share(package, monkeypatch):
    other = types.ModuleType("otherbox")
    other.alias = lambda: None
    other.alias.__doc__ = "Listed."
    other.alias.__module__ = "otherbox"
    monkeypatch.setitem(sys.modules, "otherbox", other)
    entry = next(entry for entry in public_objects(["toybox", "otherbox"]) if entry.docstring == "Listed.")
    assert entry.name == "toybox.listed"
    assert "otherbox.alias" in entry.names
