"""Ranges of settings: a field's type says them, `epochs: Count`, and `require_settings` holds values against them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Protocol, Union, get_args, get_origin, get_type_hints

from compatstore.boundary import require_fields, shown
from compatstore.errors import InvalidInput


class Settings(Protocol):
    """A frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


@dataclass(frozen=True)
class Rule:
    """What a value has to fulfil, where it is not None.

    Args:
        text: What is expected, after the name of the setting: ">= 1".
        holds: Whether a value fulfils the rule.
    """

    text: str
    holds: Callable[[Any], bool]


def at_least(least: float) -> Rule:
    """Numbers >= `least`."""
    return Rule(f">= {least:g}", lambda value: value >= least)


def above(limit: float) -> Rule:
    """Numbers > `limit`."""
    return Rule(f"> {limit:g}", lambda value: value > limit)


def from_to(least: float, most: float) -> Rule:
    """Numbers of the closed interval [least, most]."""
    return Rule(f"from {least:g} to {most:g}", lambda value: least <= value <= most)


def each(rule: Rule) -> Rule:
    """Tuples of one value or more, each of which fulfils a rule."""
    return Rule(f"of one value or more, each {rule.text}", lambda values: bool(values) and all(map(rule.holds, values)))


NOT_EMPTY = Rule("of one value or more", bool)

Count = Annotated[int, at_least(1)]
BatchRows = Annotated[int, at_least(2)]
Positive = Annotated[float, above(0)]
NotNegative = Annotated[float, at_least(0)]
Share = Annotated[float, Rule("from 0 to below 1", lambda value: 0 <= value < 1)]
OpenShare = Annotated[float, Rule("between 0 and 1", lambda value: 0 < value < 1)]


def require_settings(settings: Settings, rules: Mapping[str, bool] | None = None) -> None:
    """Check the fields of a dataclass by their types, the ranges and choices in them, and rules on several fields.

    Args:
        settings: The dataclass, in its `__post_init__`.
        rules: What several fields have to fulfil together, and whether they do: {"extra < dim": False}. Each rule
            begins with the name of the field that is to be reported.

    Raises:
        InvalidInput: A field is of another type, or out of its range; names all such fields with their values.
    """
    require_fields(settings)
    broken = {name: rule.text for name, rule in _rules(type(settings)) if not _fits(rule, getattr(settings, name))}
    broken |= {rule.split()[0]: " ".join(rule.split()[1:]) for rule, holds in (rules or {}).items() if not holds}
    if broken:
        raise InvalidInput(
            f"set up {type(settings).__name__}",
            expected=", ".join(f"{name} {text}" for name, text in broken.items()),
            found=", ".join(f"{name}={shown(getattr(settings, name))}" for name in broken),
        )


def _fits(rule: Rule, value: object) -> bool:
    return value is None or rule.holds(value)


@cache
def _rules(kind: type) -> tuple[tuple[str, Rule], ...]:
    hints = get_type_hints(kind, include_extras=True)
    fields = kind.__dataclass_fields__  # type: ignore[attr-defined]
    return tuple((name, rule) for name in fields for rule in _rules_in(hints[name]))


def _rules_in(hint: Any) -> Iterator[Rule]:
    """Rules of a type: of `Annotated` and `Literal`, alone or beside None."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        yield from (part for part in arguments if isinstance(part, Rule))
    elif origin is Literal:
        yield Rule(f"of {', '.join(map(repr, arguments))}", lambda value: value in arguments)
    elif origin in (Union, UnionType):
        closed = [part for part in arguments if part is not type(None)]
        if len(closed) == 1:
            yield from _rules_in(closed[0])
