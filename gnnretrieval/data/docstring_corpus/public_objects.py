"""The documented public functions and classes of installed packages, each once, by its shortest public name."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import warnings
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

# Tests, build tools, vendored copies of other projects, and numpy's deprecated aliases of its private core.
SKIPPED_MODULES = frozenset({"conftest", "core", "distutils", "externals", "setup", "test", "tests"})
_C_SIGNATURE = re.compile(r"\A\w+\(.*\)\n--\n+")  # the prefix of the docstring of a class written in C
# scipy writes deprecated arguments as a set; its order differs between processes.
_ARGUMENT_SET = re.compile(r"(?<=argument\(s\) ``\{)[^{}]*(?=\})")


class PublicObject(NamedTuple):
    """A function or class: its ``docstring``, its shortest public ``name``, and all its public ``names``."""

    name: str
    names: tuple[str, ...]
    docstring: str


def public_objects(packages: Sequence[str]) -> list[PublicObject]:
    """The documented functions and classes of ``packages``, sorted by name.

    Objects with several names, and objects with the same docstring (masked array functions that wrap a ufunc), are one
    object, named by the first package that has it. Methods and undocumented objects are left out. Modules are imported
    with warnings silenced, and nothing is called. A module that cannot be imported, for lack of an optional dependency,
    is skipped.
    """
    names_of: dict[str, list[str]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Import all packages before reading one: the import of scipy.special changes the docstring of numpy.sinc.
        modules = {package: list(_public_modules(importlib.import_module(package))) for package in packages}
    for package in packages:
        names_here: dict[str, set[str]] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for module in modules[package]:
                for name, docstring in _documented(module, package):
                    names_here.setdefault(docstring, set()).add(f"{module.__name__}.{name}")
        for docstring, names in names_here.items():
            shortest_first = sorted(names, key=lambda name: (name.count("."), len(name), name))
            names_of.setdefault(docstring, []).extend(shortest_first)
    return sorted(PublicObject(names[0], tuple(names), docstring) for docstring, names in names_of.items())


def _public_modules(module: ModuleType) -> Iterator[ModuleType]:
    yield module
    for info in sorted(pkgutil.iter_modules(getattr(module, "__path__", ())), key=lambda info: info.name):
        if info.name.startswith("_") or info.name in SKIPPED_MODULES:
            continue
        try:
            inner = importlib.import_module(f"{module.__name__}.{info.name}")
        except Exception:  # a missing dependency may raise anything; users cannot import the module either
            continue
        yield from _public_modules(inner)


def _documented(module: ModuleType, package: str) -> Iterator[tuple[str, str]]:
    """Name and docstring of each public function or class of ``module`` that comes from ``package``."""
    listed = getattr(module, "__all__", None)
    for name in sorted(dir(module) if listed is None else listed):
        if name.startswith("_"):
            continue
        try:
            value = getattr(module, name)
        except Exception:  # a deprecated name that was removed
            continue
        # networkx wraps functions in a dispatcher, which adds the installed backends to the docstring.
        value = getattr(value, "orig_func", value)
        # scipy's ufuncs have no module: accept them where ``__all__`` lists them. Without ``__all__``, accept only
        # objects that are defined in the module or below it, and not those that it imports.
        home = getattr(value, "__module__", None) or (package if listed is not None else "")
        wanted = package if listed is not None else module.__name__
        if _is_function_or_class(value) and f"{home}.".startswith(f"{wanted}."):
            docstring = _C_SIGNATURE.sub("", inspect.cleandoc(value.__doc__))
            docstring = _ARGUMENT_SET.sub(lambda names: ", ".join(sorted(names[0].split(", "))), docstring)
            if docstring:
                yield name, docstring


def _is_function_or_class(value: Any) -> bool:
    """Whether ``value`` is callable and has its own docstring, as ufuncs and scipy's distributions do."""
    docstring = getattr(value, "__doc__", None)
    if not callable(value) or not isinstance(docstring, str):
        return False
    own = "__doc__" in getattr(value, "__dict__", ()) or docstring != type(value).__doc__
    return own or isinstance(value, type)
