"""Fields of frozen dataclasses on a command line: as options, or as `--set NAME=VALUE` and lines of `--config FILE`.

Names, types, defaults and help are the dataclass's own, so they cannot drift apart.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click

from compatstore.errors import InvalidInput, NotFound, meant
from compatstore.paths import is_file

LISTED = Path(__file__).with_name("settings.json")  # written by docs/tools/cli_pages.py
_ARGUMENT = re.compile(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


@dataclass(frozen=True)
class NamedField:
    """A field that can be set by a word.

    Args:
        name: Of the field.
        hint: Its annotation.
        option_type: The type that click reads it as; of several texts, that of each.
        help: Its description.
        required: True if it has no default.
        default: Its default, None if it is required.
        unit: Shown for a value in the help, or None.
        owner: The dataclass that the field `within` may be, if this is a field of it, as `labels` is `Queries`.
        within: Name of that field, or "" for a field of the dataclass itself.
    """

    name: str
    hint: Any
    option_type: click.ParamType[Any]
    help: str
    required: bool
    default: Any
    unit: str | None
    owner: type | None = None
    within: str = ""

    @property
    def many(self) -> bool:
        """True if it is several texts."""
        return get_origin(self.hint) is tuple and get_args(self.hint)[0] is str

    def read(self, value: Any, name: str) -> Any:
        """The value of a word, or of a TOML value.

        Raises:
            BadParameter: It is no such value.
        """
        if value == "none" and NoneType in get_args(self.hint):
            return None
        if self.many:
            return tuple(map(str, value)) if isinstance(value, list) else tuple(str(value).split(","))
        if isinstance(value, dict):
            raise click.BadParameter(f"{name} is one value and no table.")
        word = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        return self.option_type.convert(word, click.Option([f"--{self.name}"], help=name), None)


def settings_of(kind: type) -> list[NamedField]:
    """The fields of a frozen dataclass that can be set by a word, in their order."""
    hints, helps = get_type_hints(kind), descriptions(kind)
    found = []
    for part in dataclasses.fields(kind):
        if not (part.init and part.metadata.get("option", True)):
            continue
        hint, required = hints[part.name], part.default is dataclasses.MISSING
        option_type, unit = _option_type(hint), part.metadata.get("unit")
        if option_type is not None:
            default = None if required else part.default
            found.append(NamedField(part.name, hint, option_type, helps.get(part.name, ""), required, default, unit))
        for owner in _dataclasses_in(hint):
            found += [dataclasses.replace(one, owner=owner, within=part.name) for one in settings_of(owner)]
    return found


def _option_type(hint: Any) -> click.ParamType[Any] | None:
    """The type that click reads a field as; None if no word can set it."""
    if get_origin(hint) in (Union, UnionType):
        parts = [part for part in get_args(hint) if part is not NoneType]
        hint = str if str in parts else parts[0]  # a word of the command line can only be a text
    if get_origin(hint) is Literal:
        return click.Choice(get_args(hint))
    if get_origin(hint) is tuple and get_args(hint)[0] in (int, float):
        number = get_args(hint)[0]
        return click.types.FuncParamType(
            lambda word: word if isinstance(word, tuple) else tuple(map(number, str(word).split(",")))
        )
    if get_origin(hint) is tuple:
        hint = get_args(hint)[0]
    return {float: SHARE, bool: click.BOOL, int: click.INT, str: click.STRING}.get(hint)


def construct(kind: type, values: Mapping[str, Any]) -> Any:
    """Make a dataclass of its settings' values.

    Raises:
        InvalidInput: A setting is out of its range.
        UsageError: A field is given by its own name and by that of a field within it.
    """
    made = dict(values)
    within = [one for one in settings_of(kind) if one.owner is not None]
    for holder in dict.fromkeys(one.within for one in within):
        parts = [one for one in within if one.within == holder]
        given = {one.name: made.pop(one.name) for one in parts if one.name in made}
        given = {name: value for name, value in given.items() if value is not None}
        if given and made.get(holder) is not None:
            raise click.UsageError(f"{holder} and {next(iter(given))} say the same in two ways; give one of them.")
        if given:
            assert parts[0].owner is not None
            made[holder] = parts[0].owner(**given)
    return kind(**made)


@dataclass(frozen=True)
class Options:
    """The options that a verb makes of a frozen dataclass.

    Args:
        place: The dataclass, "module:Class"; it loads when the options are needed, so that listing commands is fast.
        only: Its fields that are options here; all if it is None.
    """

    place: str
    only: Sequence[str] | None = None

    @cached_property
    def kind(self) -> type:
        """The dataclass."""
        found: type = resolve_name(self.place)
        return found

    def made(self) -> list[click.Option]:
        """One option a field, in the order of the fields; a field that no option can say (an object) has none."""
        return [_option(one) for one in self._settings]

    def collect(self, values: dict[str, Any]) -> Any:
        """Take the fields out of a command's parameters and make the dataclass of them.

        Raises:
            InvalidInput: A setting is out of its range.
            UsageError: A field is given by options of two kinds.
        """
        return construct(self.kind, {one.name: values.pop(one.name) for one in self._settings if one.name in values})

    @cached_property
    def _settings(self) -> list[NamedField]:
        every = settings_of(self.kind)
        return [one for one in every if self.only is None or (one.within or one.name) in self.only]


def read_settings(
    kinds: Mapping[str, type], *, config: str | None, words: Sequence[str], given: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Make the dataclasses of a verb.

    Args:
        kinds: Section of the file and begin of a name -> dataclass; "" for names without a section.
        config: A TOML file, or None.
        words: NAME=VALUE each; they go before the file.
        given: Name -> value of options of their own; those that are not None go before both.
        where: The command whose help lists the settings.

    Returns:
        Section -> its dataclass.

    Raises:
        InvalidInput: The file is no TOML, a setting is not known, or is out of its range.
        UsageError: A value is of another type.
    """
    known = named_settings(kinds)
    found: dict[str, Any] = {} if config is None else dict(_flat(_toml(config), known))
    for word in words:
        name, mark, value = word.partition("=")
        if not mark:
            raise click.UsageError(f"--set takes NAME=VALUE, not {word!r}.")
        found[name.strip()] = value.strip()
    unknown = [name for name in found if name not in known]
    if unknown:
        by_last = {name.rpartition(".")[2]: name for name in known}
        full = by_last.get(unknown[0].rpartition(".")[2])
        hint = f"Did you mean {full!r}? " if full else meant(unknown[0], known)
        raise InvalidInput(
            "read the settings",
            expected=f"settings of `{where}`",
            found=", ".join(map(repr, unknown)),
            fix=f"{hint}See {where} --help.",
        )
    found = {name: known[name].read(value, name) for name, value in found.items()}
    found |= {name: value for name, value in given.items() if value is not None}
    values: dict[str, dict[str, Any]] = {section: {} for section in kinds}
    for name, value in found.items():
        values[name.rpartition(".")[0]][known[name].name] = value
    missing = [name for name, one in known.items() if one.required and name not in found]
    if missing:
        fix = "Set it: " + " ".join(f"--set {name}=..." for name in missing)
        raise InvalidInput("read the settings", expected=", ".join(missing), found="nothing", fix=fix)
    return {section: construct(kind, values[section]) for section, kind in kinds.items()}


def named_settings(kinds: Mapping[str, type]) -> dict[str, NamedField]:
    """Settings of some dataclasses by the names that --set takes: "run.throttle"."""
    return {
        f"{section}.{one.name}" if section else one.name: one
        for section, kind in kinds.items()
        for one in settings_of(kind)
    }


def settings_table(kinds: Mapping[str, type], *, whole: bool = True) -> Iterator[tuple[str, str]]:
    """(name, help and default) of all settings, for the help of a verb; of the help the first sentence, or all."""
    for name, one in named_settings(kinds).items():
        choices = one.option_type.choices if isinstance(one.option_type, click.Choice) else None
        unit = "|".join(choices) if choices else one.unit or _UNITS.get(one.option_type, "A,B,...")
        notes = "required" if one.required else f"default: {_text(one.default)}" if _text(one.default) else ""
        text = one.help if whole else re.split(r"(?<=[^.]{3}\w)\. ", one.help)[0].rstrip(".") + "."
        yield f"{name}={unit}", text + (f"  [{notes}]" if notes else "")


def listed_settings(command: str) -> list[tuple[str, str]]:
    """The settings of a command as its help lists them, from a file: to read them from their classes takes a second."""
    tables: dict[str, list[list[str]]] = json.loads(LISTED.read_text(encoding="utf-8"))
    return [(name, text) for name, text in tables[command]]


def descriptions(settings: type) -> dict[str, str]:
    """Field -> description, from the `Args:` of a dataclass's docstring and of those that it extends."""
    found: dict[str, str] = {}
    for kind in reversed(settings.__mro__):
        _, _, arguments = (inspect.cleandoc(kind.__doc__ or "")).partition("Args:\n")
        arguments = re.split(r"^\S", arguments, maxsplit=1, flags=re.MULTILINE)[0]
        found |= {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(arguments)}
    return found


def _toml(path: str) -> dict[str, Any]:
    if not is_file(path):
        raise NotFound(f"read {path}", expected="a TOML file of settings", found="nothing")
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"read {path}", expected="a TOML file of settings", found=str(error)) from error


def _flat(table: Mapping[str, Any], known: Mapping[str, NamedField], section: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        name = f"{section}.{key}" if section else key
        if isinstance(value, dict) and name not in known:
            yield from _flat(value, known, name)
        else:
            yield name, value


def _option(one: NamedField) -> click.Option:
    flag, is_flag = one.name.replace("_", "-"), one.option_type is click.BOOL
    return click.Option(
        [f"--{flag}/--no-{flag}" if is_flag and one.default is not False else f"--{flag}", one.name],
        type=one.option_type,
        is_flag=is_flag or None,  # False would let a value that begins with "-" be an option
        required=one.required,
        **({} if one.required else {"default": one.default}),
        show_default=bool(one.default) if is_flag else _text(one.default) or False,
        help=one.help + (" Repeat it for more." if one.many else ""),
        metavar=None if is_flag else one.unit,
        multiple=one.many,
    )


class _Share(click.types.FloatParamType):
    """A number; 20% is 0.2."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        if not text.endswith("%"):
            return float(super().convert(value, param, ctx))
        return self.convert(text[:-1], param, ctx) / 100


SHARE = _Share()
_UNITS = {SHARE: "NUMBER", click.INT: "N", click.BOOL: "true|false", click.STRING: "TEXT"}


def _dataclasses_in(hint: Any) -> list[type]:
    """The dataclasses that a field may be in place of a word, as `labels` may be `Queries`."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else ()
    return [part for part in parts if isinstance(part, type) and dataclasses.is_dataclass(part) and str in parts]


def _text(default: Any) -> str:
    """A default as the help shows it; "" if the help leaves it out."""
    if default in (None, "", ()):
        return ""
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return str(default).lower() if isinstance(default, bool) else str(default)
