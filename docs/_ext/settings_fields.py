"""Fields of settings classes: their choices and defaults, which napoleon does not know."""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticUndefined
from sphinx.application import Sphinx

from gnnretrieval.settings import OneOf, Settings

_FIELD, _TYPE = ".. attribute:: ", "   :type: "


def _complete(app: Sphinx, what: str, name: str, documented: Any, options: Any, lines: list[str]) -> None:
    """Replace the type of a field that is one of a table's names, and add the default."""
    if not (isinstance(documented, type) and issubclass(documented, Settings)):
        return
    field = None
    for row, line in enumerate(lines):
        if line.startswith(_FIELD):
            field = documented.model_fields.get(line.removeprefix(_FIELD))
        elif line.startswith(_TYPE) and field is not None:
            names = next((one.names for one in field.metadata if isinstance(one, OneOf)), None)
            if names is not None:
                lines[row] = f"{_TYPE}{' | '.join(map(repr, names))}"
            if field.default is not PydanticUndefined and field.default is not None:
                lines[row] += f", default ``{field.default!r}``"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx, behind napoleon."""
    app.connect("autodoc-process-docstring", _complete, priority=900)
    return {"parallel_read_safe": True}
