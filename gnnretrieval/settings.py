"""The base class of every configuration: typed and frozen; an unknown key is an error that suggests the nearest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, core_schema

from gnnretrieval.errors import InputError, nearest

DEFAULT_MEASURES = ("RR@10", "nDCG@10", "R@1", "R@5", "R@20", "R@100")
SECRET = "secret"  # type of a pydantic error: no message repeats its value


class OneOf:
    """Type of a string that must be one of some names: ``Annotated[str, OneOf("a", "b")]``.

    Attributes:
        names: The names, in the order of help texts and errors.
    """

    def __init__(self, *names: str) -> None:
        self.names = names

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema of a string, followed by the check."""
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def _checked(self, name: str) -> str:
        if name not in self.names:
            raise ValueError(f"wanted one of {', '.join(self.names)}.{nearest(name, self.names)}".rstrip("."))
        return name


class Settings(BaseModel):
    """A typed, frozen group of settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    @classmethod
    def parse(
        cls, values: Mapping[str, Any], path: str | Path | None = None, lines: Mapping[str, int] | None = None
    ) -> Self:
        """The settings from ``values``, validated.

        Args:
            values: The settings by name.
            path: The file they came from, named in errors.
            lines: Line number in ``path`` by dotted key.

        Raises:
            InputError: an unknown key (with the nearest known one) or a value that does not fit.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            first = error.errors()[0]
            keys = [str(part) for part in first["loc"]]
            dotted = ".".join(keys)
            outward = (".".join(keys[:n]) for n in range(len(keys), 0, -1))
            line = next((lines[key] for key in outward if key in lines), None) if lines else None
            if first["type"] == "extra_forbidden":
                known = cls._known(keys[:-1])
                message = f"unknown key {dotted!r}.{nearest(keys[-1], known)} Known here: {', '.join(known)}."
            elif first["type"] == "missing":
                message = f"{dotted} is missing: add it."
            else:
                given = first.get("input")
                reason = first["msg"].removeprefix("Value error, ")
                message = f"{dotted or 'settings'}: {reason[0].lower()}{reason[1:]}" + (
                    "." if isinstance(given, Mapping) or first["type"] == SECRET else f" (found {given!r})."
                )
            raise InputError(message, path, line) from None

    @classmethod
    def _known(cls, keys: list[str]) -> list[str]:
        model: Any = cls
        for key in keys:
            field = model.model_fields.get(key)
            annotation = field.annotation if field else None
            model = next((one for one in (annotation, *get_args(annotation)) if _is_model(one)), None)
            if model is None:
                return []
        return list(model.model_fields)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
