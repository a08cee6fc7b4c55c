"""Specs with settings, "KIND:ARGUMENT?name=value&name=value": read into the arguments of an encoder, and written.

Settings are the keyword arguments of the encoder's class. Those at their default are not written, so that a spec stays
short. A spec is stored with the gallery and shown by `status`; so no encoder takes a secret as a setting.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, quote, unquote, urlencode

from compatstore.encoders.protocol import Encoder
from compatstore.errors import InvalidInput, first_offenders

Value = str | int | float | bool
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def split_spec(text: str) -> tuple[list[str], str]:
    """Arguments and settings of a spec without its kind; a "?", "%" or "#" within an argument is written as %3F."""
    arguments, _, settings = text.partition("?")
    return [unquote(argument) for argument in arguments.split("#")], settings


def join_spec(
    kind: str, arguments: Sequence[str], make: Callable[..., Encoder], settings: Mapping[str, Value | None]
) -> str:
    """Write a spec, without the settings that are at their default; "#" stands between arguments."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(make).parameters.items()}
    told = {name: _written(value) for name, value in settings.items() if value is not None and value != defaults[name]}
    escaped = "#".join(quote(argument, safe="/:@!$&'()*+,;=~. ") for argument in arguments)
    return f"{kind}:{escaped}" + (f"?{urlencode(told, quote_via=quote)}" if told else "")


def build(kind: str, text: str, make: Callable[..., Encoder]) -> Encoder:
    """Build an encoder from its spec without the kind.

    Raises:
        InvalidInput: A setting is unknown, twice there, of another type, or one is missing that has no default. Values
            are not shown: one may be a secret.
    """
    arguments, settings = split_spec(text)
    wanted = _arguments_of(make)
    if len(arguments) != len(wanted) or not all(arguments):
        asked, expected = f"build an encoder {kind}:...", f"{kind}:{'#'.join(name.upper() for name in wanted)}"
        raise InvalidInput(asked, expected=expected, found=f"{len(arguments)} parts, parted by '#'")
    read = read_settings(kind, settings, make)
    missing = [name for name in _required_of(make) if name not in read]
    if missing:
        asked, expected = f"build an encoder {kind}:...", f"{kind}:...?{'&'.join(f'{name}=...' for name in missing)}"
        raise InvalidInput(asked, expected=expected, found=f"no {', '.join(missing)}")
    return make(*arguments, **read)


def read_settings(kind: str, settings: str, make: Callable[..., Encoder]) -> dict[str, Value]:
    """Read "name=value&name=value" as keyword arguments of a class of encoders.

    Raises:
        InvalidInput: See `build`.
    """
    types = _settings_of(make)
    pairs = parse_qsl(settings, keep_blank_values=True)
    names = [name for name, _ in pairs]
    unknown = [name for name in names if name not in types or names.count(name) > 1]
    asked = f"read the settings of an encoder {kind}:..."
    if unknown or (settings and not pairs):
        known = ", ".join(types)
        fix = "A key belongs into the environment, never into a spec." if "key" in "".join(unknown).lower() else ""
        raise InvalidInput(asked, expected=f"name=value, each once, of {known}", found=_names(unknown), fix=fix)
    return {name: _read(asked, name, value, types[name]) for name, value in pairs}


def _names(unknown: list[str]) -> str:
    return first_offenders([name[:40] for name in unknown]) if unknown else "no name=value"


def _arguments_of(make: Callable[..., Encoder]) -> list[str]:
    """Names of the arguments that stand before the settings."""
    parameters = inspect.signature(make).parameters.items()
    return [name for name, parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]


def _required_of(make: Callable[..., Encoder]) -> list[str]:
    """Names of the settings that have no default."""
    parameters = inspect.signature(make).parameters.items()
    return [name for name, p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]


def _settings_of(make: Callable[..., Encoder]) -> dict[str, type]:
    """Name -> type of the keyword arguments that a spec can name."""
    made = inspect.unwrap(vars(make)["__init__"]) if isinstance(make, type) else make
    hints, found = get_type_hints(made), {}
    for name, parameter in inspect.signature(made).parameters.items():
        plain = [_plain(hint) for hint in (hints[name], *get_args(hints[name]))] if name in hints else []
        kinds = [kind for kind in plain if kind is not None]
        if parameter.kind is parameter.KEYWORD_ONLY and kinds:
            found[name] = kinds[0]
    return found


def _plain(hint: Any) -> type | None:
    if get_origin(hint) is Literal:
        return str
    return hint if hint in (str, int, float, bool) else None


def _read(asked: str, name: str, value: str, kind: type) -> Value:
    try:
        read: Value = _TRUTHS[value.lower()] if kind is bool else kind(value)
    except (KeyError, ValueError):
        expected = f"{name}: {'true or false' if kind is bool else f'a value of type {kind.__name__}'}"
        raise InvalidInput(asked, expected=expected, found=f"{len(value)} other characters") from None
    return read


def _written(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_SECRET = re.compile(r"key$|token$|secret|password|passphrase|credential|^auth", re.IGNORECASE)
_RUNNING = frozenset({"batch_size", "device", "max_retries", "num_workers", "show_progress_bar"})
_WITHIN = re.compile(r"(?<=://)[^/@]*@")  # a name and password in an address


def without_secrets(value: Any) -> Any:
    """A value as JSON can hold it, without secrets; what JSON has no form for becomes the name of its type."""
    if isinstance(value, Mapping):
        kept = {f"{key}": item for key, item in value.items() if not _SECRET.search(f"{key}") and key not in _RUNNING}
        return {key: without_secrets(item) for key, item in kept.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(item) for item in value]
    if isinstance(value, str):
        return _WITHIN.sub("", value)
    return value if value is None or isinstance(value, bool | int | float) else f"{type(value).__name__}"
