"""Optional dependencies: imported when they are needed, and missing ones named with the extra that installs them."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from gnnretrieval.errors import GnnRetrievalError


def extra(module: str, name: str, wanted_for: str, instead: str = "") -> Any:
    """The module of an extra.

    Args:
        module: What is imported.
        name: The extra of this package that installs it.
        wanted_for: What wants it, as the sentence begins.
        instead: What to do without it, after a comma.

    Raises:
        GnnRetrievalError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        raise _missing(module, name, wanted_for, instead) from None


def require_extra(module: str, name: str, wanted_for: str) -> None:
    """As :func:`extra`, before any work and without importing.

    Raises:
        GnnRetrievalError: it is not installed.
    """
    if find_spec(module) is None:
        raise _missing(module, name, wanted_for, "")


def _missing(module: str, name: str, wanted_for: str, instead: str) -> GnnRetrievalError:
    other = f", {instead}" if instead else ""
    return GnnRetrievalError(
        f"{wanted_for} wants {module.partition('.')[0]}: pip install 'gnnretrieval[{name}]'{other}."
    )
