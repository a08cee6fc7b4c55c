"""Conditions on the metadata of items, as a tree: the common form of the frameworks' filter languages.

A condition is true or false of every item, never unknown. A field that an item does not have, or that is null, is
missing: every test of it is false but `missing` and `empty`, and `Not` of such a test is true. Values of different
classes are never equal and have no order: the number 1, the text "1" and `True` are three things, while 1 and 1.0 are
one number. A text that is a date of ISO 8601 ("2024-05-01", "2024-05-01T10:00:00+02:00") is compared as that moment,
from the year 1000 to 2999; one without a zone is in UTC. `filter_sql.py` compiles the tree.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal, TypeAlias

from compatstore.boundary import checked_fields, shown
from compatstore.errors import InvalidInput, first_offenders
from compatstore.ingest.arrow import INT64

Operator = Literal["=", "<", "<=", ">", ">=", "in", "holds", "mentions", "mentions in any case", "missing", "empty"]
Plain: TypeAlias = str | int | float | bool | date  # a value of a test; a datetime is a date
Values: TypeAlias = tuple[Plain, ...]
Field: TypeAlias = tuple[str, ...]

ID: Field = ("id",)
TEXT: Field = ("text",)
DEEPEST = 20  # conditions in one another
MOST_VALUES = 5_000  # of an "in"

_ORDER = ("<", "<=", ">", ">=")
_TEXTS = ("mentions", "mentions in any case")
# Years from 1000 to 2999, so that no time zone leads beyond the range of dates.
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+-][01][0-9]:[0-5][0-9])?"
_MOMENT = re.compile(rf"[12][0-9]{{3}}-[0-9]{{2}}-[0-9]{{2}}([T ]{_TIME})?")
MOMENT_PATTERN = _MOMENT.pattern


def metadata(*path: str) -> Field:
    """The field of a metadata value: a key, and keys of the objects in it ("author", "name")."""
    return ("metadata", *path)


def apart(column: str) -> Field:
    """The field of a column that an adapter keeps beside metadata, apart from all metadata keys."""
    return ("apart", column)


@checked_fields
@dataclass(frozen=True)
class Term:
    """One test of one field.

    Args:
        field: `ID`, `TEXT`, `metadata(...)` or `apart(...)`.
        operator: "=" and the four orders compare with one value; "in" is true if the field is equal to one of
            several. "holds": the field is a list, and the value is among its elements. "mentions": the field is a text
            that the value is a part of. "missing": no value, or null. "empty": missing, a text of length 0 or an empty
            list.
        value: One text, number, truth value or moment; a tuple of them for "in"; None for "missing" and "empty".

    Raises:
        InvalidInput: The value does not fit the operator.
    """

    field: Field
    operator: Operator
    value: Plain | Values | None = None

    def __post_init__(self) -> None:
        operation = f"test field {'.'.join(self.field)[:120]!a} with {self.operator!r}"
        if self.operator in ("missing", "empty"):
            if self.value is not None:
                raise InvalidInput(operation, expected="no value", found=shown(self.value))
            return
        several = self.operator == "in"
        if several is not isinstance(self.value, tuple):
            raise InvalidInput(
                operation, expected="several values" if several else "one value", found=shown(self.value)
            )
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        if len(values) > MOST_VALUES:
            raise InvalidInput(operation, expected=f"{MOST_VALUES} values at most", found=f"{len(values)}")
        odd = [shown(value) for value in values if not _is_plain(value)]
        if odd:
            raise InvalidInput(
                operation,
                expected="values that are a text, a finite number, a whole number of 64 bits, true, false or a date",
                found=first_offenders(odd),
            )
        if self.operator in _TEXTS and not isinstance(self.value, str):
            raise InvalidInput(operation, expected="a text", found=shown(self.value))
        if self.operator in _ORDER and isinstance(self.value, bool):
            raise InvalidInput(operation, expected="a value that has an order", found=shown(self.value))


@dataclass(frozen=True)
class AllOf:
    """True if all parts are; without parts it is true of every item."""

    parts: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class AnyOf:
    """True if one part or more is; without parts it is false of every item."""

    parts: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Not:
    """True if the part is false."""

    part: Condition


Condition: TypeAlias = Term | AllOf | AnyOf | Not


def require_shallow(condition: Condition, levels: int = DEEPEST) -> None:
    """Refuse conditions that are nested too deeply.

    Raises:
        InvalidInput: There are more than `DEEPEST` levels.
    """
    if isinstance(condition, Term):
        return
    if not levels:
        raise InvalidInput("filter items", expected=f"conditions nested {DEEPEST} deep at most", found="deeper ones")
    for part in (condition.part,) if isinstance(condition, Not) else condition.parts:
        require_shallow(part, levels - 1)


def moment_of(value: object) -> datetime | None:
    """The moment of a value, in UTC without a zone: of a date, a datetime or a text of ISO 8601; else None."""
    if isinstance(value, str):
        if not _MOMENT.fullmatch(value):
            return None
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return datetime(value.year, value.month, value.day) if isinstance(value, date) else None


def _is_plain(value: object) -> bool:
    if isinstance(value, bool | date):
        return True
    if isinstance(value, int):
        return value in INT64
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)
