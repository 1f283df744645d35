"""Command-line options from a settings class, so that a field, its default and its meaning have one place."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeVar

import click
from pydantic_core import PydanticUndefined

from gnnretrieval.settings import OneOf, Settings

Command = TypeVar("Command", bound=Callable[..., Any])


def settings_options(model: type[Settings], required: Collection[str] = ()) -> Callable[[Command], Command]:
    """Decorator: an option for each field of ``model`` and of its groups, named after the field."""

    def decorate(command: Command) -> Command:
        for name, (_, annotation, default, meaning) in reversed(list(_fields(model).items())):
            command = _option(name, annotation, default, meaning, name in required)(command)
        return command

    return decorate


def settings_from(model: type[Settings], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values given on the command line, nested as in ``model``; fields that were not given are left out."""
    nested: dict[str, Any] = {}
    for name, (group, annotation, _, _) in _fields(model).items():
        value = values.get(name)
        if value is None:
            continue
        if _is_tuple(annotation):
            value = [part.strip() for part in value.split(",") if part.strip()]
        target = nested.setdefault(group, {}) if group else nested
        target[name] = value
    return nested


def _fields(model: type[Settings]) -> dict[str, tuple[str, Any, Any, str]]:
    """Group, annotation, default and meaning of each option."""
    meanings = _meanings(model)
    fields: dict[str, tuple[str, Any, Any, str]] = {}
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, Settings):
            for inner, (_, kind, default, meaning) in _fields(annotation).items():
                assert inner not in model.model_fields, f"{name}.{inner}: the option --{inner} has another meaning"
                fields[inner] = (name, kind, default, meaning)
        else:
            names = next((entry.names for entry in field.metadata if isinstance(entry, OneOf)), None)
            kind = annotation if names is None else Literal[names]
            fields[name] = ("", kind, field.default, meanings[name])
    return fields


def _meanings(model: type[Settings]) -> dict[str, str]:
    """Text of each field in the docstring's ``Attributes:`` section."""
    text = inspect.cleandoc(model.__doc__ or "").split("Attributes:", 1)[-1]
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", text, re.MULTILINE)
    return {name: re.sub(r"\s+", " ", meaning).replace("``", "") for name, meaning in entries}


def _option(name: str, annotation: Any, default: Any, meaning: str, required: bool) -> Callable[[Command], Command]:
    option, said = f"--{name.replace('_', '-')}", meaning.rstrip(".") + "."
    if annotation is bool and default is False:
        return click.option(option, name, is_flag=True, default=None, help=said)
    shown = "" if default is None or default is PydanticUndefined else f"  [default: {_as_text(default)}]"
    kind = _type(annotation)
    if required:  # click takes a given default for a value, also None
        return click.option(option, name, type=kind, required=True, help=said)
    return click.option(option, name, type=kind, default=None, help=said + shown)


def _as_text(default: Any) -> str:
    return ",".join(f"{part}" for part in default) if isinstance(default, tuple) else f"{default}"


def _is_tuple(annotation: Any) -> bool:
    return typing.get_origin(_without_none(annotation)) is tuple


def _without_none(annotation: Any) -> Any:
    """The type of a setting that is given, where it may also be None."""
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        (annotation,) = (part for part in typing.get_args(annotation) if part is not type(None))
    return annotation


def _type(annotation: Any) -> Any:
    annotation = _without_none(annotation)
    if typing.get_origin(annotation) is Literal:
        return click.Choice(typing.get_args(annotation))
    return {bool: click.BOOL, int: click.INT, float: click.FLOAT}.get(annotation, click.STRING)
