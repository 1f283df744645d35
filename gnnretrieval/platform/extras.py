"""Optional dependencies, imported on use; the error for a missing one names the extra that installs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from gnnretrieval.errors import GnnRetrievalError


def extra(module: str, name: str, wanted_for: str, instead: str = "") -> Any:
    """Import a module that an extra of this package installs.

    Args:
        module: Name of the module.
        name: The extra that installs it.
        wanted_for: What needs it; the error starts with these words.
        instead: What to do without it; the error ends with these words, after a comma.

    Raises:
        GnnRetrievalError: The module is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        raise _missing(module, name, wanted_for, instead) from None


def require_extra(module: str, name: str, wanted_for: str) -> None:
    """Check before any work that the module of an extra is installed, without importing it; see :func:`extra`.

    Raises:
        GnnRetrievalError: The module is not installed.
    """
    if find_spec(module) is None:
        raise _missing(module, name, wanted_for, "")


def _missing(module: str, name: str, wanted_for: str, instead: str) -> GnnRetrievalError:
    other = f", {instead}" if instead else ""
    return GnnRetrievalError(
        f"{wanted_for} wants {module.partition('.')[0]}: pip install 'gnnretrieval[{name}]'{other}."
    )


@contextmanager
def without(module: str) -> Iterator[None]:
    """Let imports of ``module`` fail meanwhile, as if it were not installed."""
    before = sys.modules.get(module)
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]
        if before is not None:
            sys.modules[module] = before
