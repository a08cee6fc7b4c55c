"""Options made from a frozen dataclass: names, types, defaults and help are its own, so they cannot drift apart."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click

_EARLIER = "earlier_"
_TEXTS = "texts"  # an option that may be repeated
_ARGUMENT = re.compile(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """An option under which a field was known before; it is read, and not shown.

    Args:
        flag: The option, such as --natives.
        values: Earlier value -> value of the field, such as rows -> move_rows; empty where any value is the field's.
    """

    flag: str
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options that a verb makes of a frozen dataclass.

    Args:
        kind: The dataclass.
        only: Its fields that are options here; all where it is None.
        flags: Field -> option, where that is not --FIELD.
        earlier: Field -> the option under which it was known before.
    """

    kind: type
    only: Sequence[str] | None = None
    flags: Mapping[str, str] = field(default_factory=dict)
    earlier: Mapping[str, Earlier] = field(default_factory=dict)

    def made(self) -> list[click.Option]:
        """One option a field, in the order of the fields; a field that no option can say (an object) has none."""
        hints, helps = get_type_hints(self.kind), descriptions(self.kind)
        found = []
        for part in self._fields():
            kind, flag = _type(hints[part.name]), self._flag(part.name)
            if kind is not None:
                found.append(_option(part, flag, kind, helps.get(part.name, "")))
            if part.name in self.earlier:
                found.append(_hidden(part.name, flag, kind, self.earlier[part.name]))
            for within in _within(hints[part.name]):
                found += within.made()
        return found

    def collect(self, values: dict[str, Any]) -> Any:
        """Take the fields out of a command's parameters and make the dataclass of them.

        Raises:
            InvalidInput: A setting is out of its range.
            UsageError: A field is named by its option and by its earlier one, or by options of two kinds.
        """
        hints = get_type_hints(self.kind)
        for part in self._fields():
            for within in _within(hints[part.name]):
                self._collect_within(part.name, within, values)
        for name, earlier in self.earlier.items():
            said = values.pop(_EARLIER + name, None)
            if said is None:
                continue
            if values.get(name) is not None:
                raise click.UsageError(f"{earlier.flag} is {self._flag(name)} by its earlier name; give one of them.")
            values[name] = earlier.values.get(said, said)
        return self.kind(**{part.name: values.pop(part.name) for part in self._fields() if part.name in values})

    def _collect_within(self, name: str, within: Options, values: dict[str, Any]) -> None:
        """Take the options of a dataclass that a field may be; where one of them is named, the field is that."""
        said = {part.name: values.pop(part.name, None) for part in within._fields()}
        given = {part: value for part, value in said.items() if value is not None}
        if not given:
            return
        if values.get(name) is not None:
            flags = f"{self._flag(name)} and {within._flag(next(iter(given)))}"
            raise click.UsageError(f"{flags} say the same in two ways; give one of them.")
        values[name] = within.kind(**given)

    def _flag(self, name: str) -> str:
        return self.flags.get(name, f"--{name.replace('_', '-')}")

    def _fields(self) -> list[dataclasses.Field[Any]]:
        only = self.only
        shown = [part for part in dataclasses.fields(self.kind) if part.init and part.metadata.get("option", True)]
        return [part for part in shown if only is None or part.name in only]


def descriptions(settings: type) -> dict[str, str]:
    """Field -> description, from the `Args:` of a dataclass's docstring and of those that it extends."""
    found: dict[str, str] = {}
    for kind in reversed(settings.__mro__):
        _, _, arguments = (inspect.cleandoc(kind.__doc__ or "")).partition("Args:\n")
        arguments = re.split(r"^\S", arguments, maxsplit=1, flags=re.MULTILINE)[0]
        found |= {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(arguments)}
    return found


def _option(part: dataclasses.Field[Any], flag: str, kind: Any, text: str) -> click.Option:
    unit = part.metadata.get("unit")
    if part.default is dataclasses.MISSING:
        return click.Option([flag, part.name], type=kind, required=True, help=text, metavar=unit)
    default = part.default
    if kind is bool:
        flags = flag if default is False else f"{flag}/--no-{flag[2:]}"
        return click.Option([flags, part.name], is_flag=True, default=default, help=text, show_default=bool(default))
    many, shown = kind is _TEXTS, _shown(default)
    kind = str if many else kind
    return click.Option(
        [flag, part.name],
        type=kind,
        default=default,
        show_default=shown,
        help=text + (" Repeat it for more." if many else ""),
        metavar=unit,
        multiple=many,
    )


def _hidden(name: str, flag: str, kind: Any, earlier: Earlier) -> click.Option:
    """The option by which a field went before."""
    kind = click.Choice(list(earlier.values)) if earlier.values else kind
    return click.Option([earlier.flag, _EARLIER + name], type=kind, hidden=True, help=f"Earlier name of {flag}.")


def _type(hint: Any) -> Any:
    """What click reads a field's type as, or None where a word on the command line cannot say it."""
    if get_origin(hint) in (Union, UnionType):
        parts = [part for part in get_args(hint) if part is not NoneType]
        hint = str if str in parts else parts[0]  # of what a program may hand over, a word can be a text alone
    if get_origin(hint) is Literal:
        return click.Choice(get_args(hint))
    if get_origin(hint) is tuple and get_args(hint)[0] is str:
        return _TEXTS
    if get_origin(hint) is tuple and get_args(hint)[0] in (int, float):
        return _numbers(get_args(hint)[0])
    return SHARE if hint is float else hint if hint in (bool, int, str) else None


class _Share(click.types.FloatParamType):
    """A number; 20% is 0.2."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        if not text.endswith("%"):
            return float(super().convert(value, param, ctx))
        return self.convert(text[:-1], param, ctx) / 100


SHARE = _Share()


def _within(hint: Any) -> list[Options]:
    """The options of dataclasses that a field may be in place of a word, as `labels` may be `Queries`."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else ()
    kinds = [part for part in parts if isinstance(part, type) and dataclasses.is_dataclass(part)]
    return [Options(kind=kind) for kind in kinds if str in parts]


def _numbers(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    """A type of click: numbers with commas between them."""

    def numbers(value: Any) -> tuple[Any, ...]:
        return value if isinstance(value, tuple) else tuple(kind(part) for part in str(value).split(","))

    return numbers


def _shown(default: Any) -> bool | str:
    """How a default appears in the help."""
    return (
        ",".join(str(part) for part in default)
        if isinstance(default, tuple) and default
        else bool(default not in (None, "", ()))
    )
