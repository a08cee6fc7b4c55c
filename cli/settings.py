"""Options made from a frozen dataclass: names, types, defaults and help are its own, so they cannot drift apart."""

from __future__ import annotations

import dataclasses
import inspect
import re
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click

_ARGUMENT = re.compile(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


def options_of(settings: type) -> list[click.Option]:
    """One option a field, in the order of the fields."""
    hints, helps = get_type_hints(settings), descriptions(settings)
    return [_option(field, hints[field.name], helps.get(field.name, "")) for field in _fields(settings)]


def collect(settings: type, values: dict[str, Any]) -> Any:
    """Take a dataclass's fields out of a command's parameters and make it of them.

    Raises:
        InvalidInput: A setting is out of its range.
    """
    return settings(**{field.name: values.pop(field.name) for field in _fields(settings)})


def descriptions(settings: type) -> dict[str, str]:
    """Field -> description, from the `Args:` of a dataclass's docstring and of those that it extends."""
    found: dict[str, str] = {}
    for kind in reversed(settings.__mro__):
        _, _, arguments = (inspect.cleandoc(kind.__doc__ or "")).partition("Args:\n")
        arguments = re.split(r"^\S", arguments, maxsplit=1, flags=re.MULTILINE)[0]
        found |= {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(arguments)}
    return found


def _fields(settings: type) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(settings) if field.init]


def _option(field: dataclasses.Field[Any], hint: Any, text: str) -> click.Option:
    flag = f"--{field.name.replace('_', '-')}"
    required = field.default is dataclasses.MISSING
    default = None if required else field.default
    kind = _without_none(hint)
    if kind is bool:
        flags = f"{flag}/--no-{flag[2:]}" if default else flag
        return click.Option([flags, field.name], is_flag=True, default=default, help=text, show_default=bool(default))
    return click.Option(
        [flag, field.name],
        type=click.Choice(get_args(kind)) if get_origin(kind) is Literal else kind,
        default=default,
        required=required,
        show_default=default not in (None, ""),
        help=text,
    )


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, UnionType):
        return hint
    (kind,) = [part for part in get_args(hint) if part is not NoneType]
    return kind
