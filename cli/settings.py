"""Options made from a frozen dataclass: names, types, defaults and help are its own, so they cannot drift apart."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click

_ARGUMENT = re.compile(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


def options_of(settings: type) -> list[click.Option]:
    """One option a field, in the order of the fields; a field that no option can say (an object) keeps its default."""
    hints, helps = get_type_hints(settings), descriptions(settings)
    made = ((field, _type(hints[field.name])) for field in _fields(settings))
    return [_option(field, kind, helps.get(field.name, "")) for field, kind in made if kind is not None]


def collect(settings: type, values: dict[str, Any]) -> Any:
    """Take a dataclass's fields out of a command's parameters and make it of them.

    Raises:
        InvalidInput: A setting is out of its range.
    """
    return settings(**{field.name: values.pop(field.name) for field in _fields(settings) if field.name in values})


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


def _option(field: dataclasses.Field[Any], kind: Any, text: str) -> click.Option:
    flag = f"--{field.name.replace('_', '-')}"
    if field.default is dataclasses.MISSING:
        return click.Option([flag, field.name], type=kind, required=True, help=text)
    default = field.default
    if kind is bool:
        flags = f"{flag}/--no-{flag[2:]}" if default else flag
        return click.Option([flags, field.name], is_flag=True, default=default, help=text, show_default=bool(default))
    return click.Option([flag, field.name], type=kind, default=default, show_default=_shown(default), help=text)


def _type(hint: Any) -> Any:
    """What click reads a field's type as, or None where a word on the command line cannot say it."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = [part for part in get_args(hint) if part is not NoneType]
    if get_origin(hint) is Literal:
        return click.Choice(get_args(hint))
    if get_origin(hint) is tuple and get_args(hint)[0] in (int, float):
        return _numbers(get_args(hint)[0])
    return hint if hint in (bool, int, float, str) else None


def _numbers(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    """A type of click: numbers with commas between them."""

    def numbers(value: Any) -> tuple[Any, ...]:
        return value if isinstance(value, tuple) else tuple(kind(part) for part in str(value).split(","))

    return numbers


def _shown(default: Any) -> bool | str:
    """How a default appears in the help."""
    return ",".join(str(part) for part in default) if isinstance(default, tuple) else default not in (None, "")
