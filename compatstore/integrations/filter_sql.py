"""Conditions on metadata, compiled to SQL for a gallery's `where`.

Values of a caller enter the SQL only as literals in quotes or as parsed numbers. A field
lies in a column of its own, or in a column of JSON: `json_get` takes the name of a key as a value, not as a path, and
`json_extract(..., '$')` gives the value as a text of JSON, which shows its class: 1, "1" and true are three texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import TypeAlias, TypeGuard

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowType
from compatstore.errors import InvalidInput, first_offenders
from compatstore.ingest.arrow import INT64
from compatstore.integrations.filters import (
    MOMENT_PATTERN,
    AllOf,
    AnyOf,
    Condition,
    Field,
    Not,
    Plain,
    Term,
    moment_of,
    require_shallow,
)

_INFINITY = "CAST('inf' AS DOUBLE)"
# Elements of a list as JSON writes them, up to the first list or object in it.
_ELEMENT = r'(?:"(?:[^"\\]|\\.)*"|[^",\[\]{}"]+)'
_CHARACTERS = r'(?:[^"\\]|\\u[0-9a-f]{4}|\\[^u])*'  # of a text, each whole


@dataclass(frozen=True)
class Fields:
    """Columns of a table for the fields of conditions.

    Args:
        columns: Field -> (column, or path to a field of a struct, and Arrow type) of those that have one of their own.
        json: Column of JSON objects that holds all other metadata, or None if there is none.
    """

    columns: Mapping[Field, tuple[str | Field, ArrowType]] = field(default_factory=dict)
    json: str | None = None

    def place(self, name: Field) -> _Place:
        """Column or JSON path of a field.

        Raises:
            InvalidInput: The table has no such field, and no JSON that could.
        """
        if name in self.columns:
            return _Column(*self.columns[name])
        if self.json is None or name[:1] != ("metadata",) or len(name) < 2:
            known = [".".join(path) for path in self.columns]
            raise InvalidInput(
                f"filter by {'.'.join(name)[:120]!a}",
                expected=f"a field that the gallery has: {first_offenders(known, 20) or 'none'}",
                found="no such column, and no column of JSON that holds other metadata",
                fix="Add items that have it, or make the gallery with a column of JSON called metadata.",
            )
        return _Json(self.json, _paths(name[1:]))


def _paths(name: Sequence[str]) -> list[Sequence[str]]:
    """Possible JSON paths of a value: "docx.author" is a key of that name, or the key `author` of the object `docx`."""
    if len(name) > 1:
        return [name, (".".join(name),)]
    parts = name[0].split(".")
    return [name, parts] if len(parts) > 1 and all(parts) else [name]


def to_sql(condition: Condition, fields: Fields) -> str:
    """Compile a condition.

    Args:
        condition: Condition on an item.
        fields: Columns of its fields.

    Returns:
        One SQL expression, true of an item if the condition is.

    Raises:
        InvalidInput: A field is unknown, or conditions are nested too deeply.
    """
    require_shallow(condition)
    return _sql(condition, fields)


def _sql(condition: Condition, fields: Fields) -> str:
    if isinstance(condition, AllOf):
        return " AND ".join(f"({_sql(part, fields)})" for part in condition.parts) or "TRUE"
    if isinstance(condition, AnyOf):
        return " OR ".join(f"({part})" for part in _any(condition, fields)) or "FALSE"
    if isinstance(condition, Not):
        return f"({_sql(condition.part, fields)}) IS NOT TRUE"  # a test of a missing value is NULL in SQL
    return _test(fields.place(condition.field), condition)


def _any(condition: AnyOf, fields: Fields) -> Iterator[str]:
    """The parts in SQL; all values that one field may be equal to are one list, however many parts name them."""
    values: dict[Field, list[Plain]] = {}
    for part in _alternatives(condition):
        if isinstance(part, Term) and part.operator in ("=", "in") and part.value is not None:
            values.setdefault(part.field, []).extend(part.value if isinstance(part.value, tuple) else [part.value])
        else:
            yield _sql(part, fields)
    for name, every in values.items():
        yield _among(fields.place(name), every)


def _alternatives(condition: AnyOf) -> Iterator[Condition]:
    """The parts, and in place of one that is an AnyOf itself, its parts; an AllOf of one part is that part."""
    for part in condition.parts:
        while isinstance(part, AllOf) and len(part.parts) == 1:
            (part,) = part.parts
        if isinstance(part, AnyOf):
            yield from _alternatives(part)
        else:
            yield part


def _test(place: _Place, test: Term) -> str:
    value = test.value
    if test.operator == "missing":
        return place.missing()
    if test.operator == "empty":
        return place.empty()
    if isinstance(value, tuple):
        return _among(place, value)
    if value is None:  # refused when the test was made
        return "FALSE"
    if test.operator == "=":
        return _among(place, [value])
    if test.operator == "holds":
        return place.holds(value)
    if test.operator in ("mentions", "mentions in any case"):
        return place.mentions(str(value), any_case=test.operator != "mentions")
    if isinstance(value, int | float):
        return place.number(test.operator, value)
    moment = moment_of(value)
    return place.text(test.operator, str(value)) if moment is None else place.moment(test.operator, moment)


def _among(place: _Place, values: Sequence[Plain]) -> str:
    """One IN for all texts and one for all numbers: one test after the other would take seconds for a thousand."""
    distinct = list({(type(value), value): value for value in values}.values())
    texts = [value for value in distinct if isinstance(value, str)]
    numbers = [value for value in distinct if _is_number(value)]
    parts = [place.among(texts)] if texts else []
    parts += [place.among_numbers(numbers)] if numbers else []
    parts += [place.truth(value) for value in distinct if isinstance(value, bool)]
    parts += [place.moment("=", moment) for value in distinct if (moment := moment_of(value)) is not None]
    return " OR ".join(f"({part})" for part in parts) or "FALSE"


class _Json:
    """A value in a column of JSON, by its keys; of several places where it may lie the first that has one.

    Each method gives an expression that is true if the test is, else false or NULL; so do those of `_Column`.
    """

    def __init__(self, column: str, paths: Sequence[Sequence[str]]) -> None:
        values = []
        for path in paths:
            found = _name(column)
            for key in path:
                found = f"json_get({found}, {_quoted(key)})"
            values.append(f"json_extract({found}, '$')")
        self._value = values[0] if len(values) == 1 else f"COALESCE({', '.join(values)})"

    def missing(self) -> str:
        return f"{self._value} IS NULL OR {self._value} = 'null'"

    def empty(self) -> str:
        return f"{self.missing()} OR {self._value} IN ('\"\"', '[]')"

    def truth(self, value: bool) -> str:
        return f"{self._value} = '{json.dumps(value)}'"

    def number(self, operator: str, value: int | float) -> str:
        as_double = _as_doubles(f"TRY_CAST({self._value} AS DOUBLE)", operator, value)
        if isinstance(value, float):
            return as_double
        return f"COALESCE(TRY_CAST({self._value} AS BIGINT) {operator} {_whole(value)}, {as_double})"

    def text(self, operator: str, value: str) -> str:
        bare = f"left(substr({self._value}, 2), -1)"  # without the quotes around it
        return f"starts_with({self._value}, '\"') AND {_unescaped(bare)} {operator} {_quoted(_ordered(value))}"

    def among(self, values: Sequence[str]) -> str:
        return f"{self._value} IN ({', '.join(_quoted(_json(value)) for value in values)})"

    def among_numbers(self, values: Sequence[int | float]) -> str:
        as_whole, as_double = f"TRY_CAST({self._value} AS BIGINT)", f"TRY_CAST({self._value} AS DOUBLE)"
        whole = [value for value in values if isinstance(value, int)]
        fractions = [value for value in values if isinstance(value, float)]
        parts = [f"{as_double} IN ({_doubles(fractions)})"] if fractions else []
        if whole:
            parts.append(f"{as_whole} IN ({', '.join(map(_whole, whole))})")
            parts.append(f"{as_whole} IS NULL AND {as_double} IN ({_doubles(whole)})")
        return " OR ".join(f"({part})" for part in parts)

    def moment(self, operator: str, value: datetime) -> str:
        is_moment = f"regexp_like({self._value}, '^\"{MOMENT_PATTERN}\"$')"
        return f"{is_moment} AND TRY_CAST(btrim({self._value}, '\"') AS TIMESTAMP) {operator} {_moment(value)}"

    def holds(self, value: Plain) -> str:
        stored = value.isoformat() if isinstance(value, date) else value
        element = _numeral(value) if _is_number(value) else _literally(_json(stored))
        pattern = rf"^\[(?:{_ELEMENT},)*(?:{element})(?:,|\]$)"
        return f"regexp_like({self._value}, {_quoted(pattern)})"

    def mentions(self, value: str, *, any_case: bool) -> str:
        whole = f"lower({self._value})" if any_case else self._value
        part = _json(value.lower() if any_case else value)[1:-1]
        pattern = f'^"{_CHARACTERS}{_literally(part)}'
        return f"regexp_like({whole}, {_quoted(pattern)})"


class _Column:
    """A column of its own, of an Arrow type; a test of another class than the type's is false."""

    def __init__(self, column: str | Field, kind: ArrowType) -> None:
        self._value = ".".join(map(_name, [column] if isinstance(column, str) else column))
        self._kind = kind.value_type if pa.types.is_dictionary(kind) else kind

    def missing(self) -> str:
        return f"{self._value} IS NULL"

    def empty(self) -> str:
        if _is_text(self._kind):
            return f"{self.missing()} OR {self._value} = ''"
        return f"{self.missing()} OR array_length({self._value}) = 0" if _is_list(self._kind) else self.missing()

    def truth(self, value: bool) -> str:
        return f"{self._value} = {str(value).upper()}" if pa.types.is_boolean(self._kind) else "FALSE"

    def number(self, operator: str, value: int | float) -> str:
        if pa.types.is_integer(self._kind) and isinstance(value, int):
            return f"{self._value} {operator} {_whole(value)}"
        if not _is_numeric(self._kind):
            return "FALSE"
        found = f"CAST({self._value} AS DOUBLE)"
        compared = _as_doubles(found, operator, value)
        # To Lance NaN is greater than every number.
        return f"{compared} AND {found} <= {_INFINITY}" if operator in (">", ">=") else compared

    def text(self, operator: str, value: str) -> str:
        return f"{self._value} {operator} {_quoted(value)}" if _is_text(self._kind) else "FALSE"

    def among(self, values: Sequence[str]) -> str:
        return f"{self._value} IN ({', '.join(map(_quoted, values))})" if _is_text(self._kind) else "FALSE"

    def among_numbers(self, values: Sequence[int | float]) -> str:
        if not _is_numeric(self._kind):
            return "FALSE"
        exact = [value for value in values if isinstance(value, int) and pa.types.is_integer(self._kind)]
        others = [value for value in values if not isinstance(value, int) or not exact]
        parts = [f"{self._value} IN ({', '.join(map(_whole, exact))})"] if exact else []
        parts += [f"CAST({self._value} AS DOUBLE) IN ({_doubles(others)})"] if others else []
        return " OR ".join(f"({part})" for part in parts)

    def moment(self, operator: str, value: datetime) -> str:
        if _is_text(self._kind):
            is_moment = f"regexp_like({self._value}, '^{MOMENT_PATTERN}$')"
            return f"{is_moment} AND TRY_CAST({self._value} AS TIMESTAMP) {operator} {_moment(value)}"
        if pa.types.is_timestamp(self._kind) or pa.types.is_date(self._kind):
            return f"CAST({self._value} AS TIMESTAMP) {operator} {_moment(value)}"
        return "FALSE"

    def holds(self, value: Plain) -> str:
        if not _is_list(self._kind):
            return "FALSE"
        kind = self._kind.value_type
        if _is_text(kind) and isinstance(value, str):
            return f"array_has({self._value}, {_quoted(value)})"
        if pa.types.is_boolean(kind) and isinstance(value, bool):
            return f"array_has({self._value}, {str(value).upper()})"
        if pa.types.is_integer(kind) and _is_number(value) and value == int(value) and int(value) in INT64:
            return f"array_has({self._value}, {_whole(int(value))})"
        if pa.types.is_floating(kind) and _is_number(value):
            single = kind.bit_width < 64
            with np.errstate(over="ignore"):  # a value beyond float32 equals none of them
                held = not single or float(np.float32(value)) == value
            if held:
                return f"array_has({self._value}, CAST('{value!r}' AS {'FLOAT' if single else 'DOUBLE'}))"
        return "FALSE"

    def mentions(self, value: str, *, any_case: bool) -> str:
        if not _is_text(self._kind):
            return "FALSE"
        if any_case:
            return f"strpos(lower({self._value}), {_quoted(value.lower())}) > 0"
        return f"strpos({self._value}, {_quoted(value)}) > 0"


_Place: TypeAlias = _Json | _Column


def _name(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _json(value: object) -> str:
    """A value as Lance writes it in JSON."""
    return json.dumps(value, ensure_ascii=False)


def _unescaped(text: str) -> str:
    """SQL that unescapes a text of JSON, for comparison with texts of `_ordered`.

    A backslash is replaced by U+0002 until all else is replaced: JSON has no control characters of its own.
    """
    pairs = [("\\\\", "\2"), ("\\u00", _CONTROL), ('\\"', '"'), ("\\/", "/")]
    pairs += [(escape, _ordered(character)) for escape, character in _SHORT.items()]
    for escape, character in (*pairs, ("\2", "\\")):
        text = f"replace({text}, {_quoted(escape)}, {_quoted(character)})"
    return text


_CONTROL = "\1"
_SHORT = {"\\b": "\b", "\\t": "\t", "\\n": "\n", "\\f": "\f", "\\r": "\r"}


def _ordered(text: str) -> str:
    """A text with U+0001 and two hexadecimal digits for each control character: its order is that of the text."""
    return "".join(f"{_CONTROL}{ord(one):02x}" if one < " " else one for one in text)


def _whole(value: int) -> str:
    return f"CAST('{value}' AS BIGINT)"


def _double(value: float) -> str:
    return f"CAST('{float(value)!r}' AS DOUBLE)"


def _doubles(values: Iterable[int | float]) -> str:
    """Numbers for an IN; a zero matches both zeros of DOUBLE."""
    found = {float(value) for value in values}
    return ", ".join([*map(_double, sorted(found)), *([_double(-0.0), _double(0.0)] if 0.0 in found else [])])


def _as_doubles(found: str, operator: str, value: int | float) -> str:
    """The order of two numbers as DOUBLE; to Lance -0.0 lies below 0.0."""
    bound = value or (-0.0 if operator in ("<", ">=") else 0.0)
    return f"{found} {operator} {_double(bound)}"


def _moment(value: datetime) -> str:
    return f"CAST('{value.isoformat(timespec='microseconds')}' AS TIMESTAMP)"


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(kind: ArrowType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_list(kind: ArrowType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_numeric(kind: ArrowType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _literally(text: str) -> str:
    """A regular expression of exactly this text."""
    return "".join(c if c.isalnum() and c.isascii() else rf"\x{{{ord(c):x}}}" for c in text)


def _numeral(value: float) -> str:
    """A regular expression of the forms in which JSON writes a number: 20, 20.0, 2e1, 2.0e+01."""
    number = Decimal(repr(value)).normalize()
    if not number:
        return r"-?0(?:\.0)?"
    sign, digits, _ = number.as_tuple()
    whole, point = r"(?:\.0)?", r"\."
    plain, power = format(abs(number), "f"), number.adjusted()
    rest = "".join(map(str, digits[1:]))
    positional = plain.replace(".", point) if "." in plain else plain + whole
    scientific = f"{digits[0]}{point + rest if rest else whole}e{'-' if power < 0 else '[+]?'}0*{abs(power)}"
    return f"{'-' if sign else ''}(?:{positional}|{scientific})"
