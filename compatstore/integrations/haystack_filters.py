"""Haystack's filters: {"operator": "AND", "conditions": [{"field": "meta.year", "operator": ">", "value": 2023}]}."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from compatstore.boundary import shown
from compatstore.errors import InvalidInput
from compatstore.integrations.filters import (
    ID,
    TEXT,
    AllOf,
    AnyOf,
    Condition,
    Field,
    Not,
    Operator,
    Term,
    entries,
    metadata,
    moment_of,
)

ASKED = "read a filter"
_OF_DOCUMENTS = {"id": ID, "content": TEXT}
_WITHOUT_TEST = ("blob", "score", "embedding", "sparse_embedding", "meta")


def read_filter(filters: object) -> Condition:
    """Read a filter: a comparison, or conditions joined by AND, OR and NOT.

    Fields are `id`, `content`, `meta.KEY` and `meta.KEY.KEY` of objects in metadata; a field without `meta.` is a key.
    As in Haystack, texts have an order only where they are dates of ISO 8601, and None only has equality.

    Raises:
        InvalidInput: A key is missing, an operator unknown, or a value does not fit its operator.
    """
    asked = entries(filters, ASKED)
    if "field" in asked:
        return _comparison(asked)
    operator, conditions = _required(asked, "operator"), _required(asked, "conditions")
    if operator not in ("AND", "OR", "NOT"):
        raise InvalidInput(ASKED, expected="an operator of AND, OR and NOT", found=shown(operator))
    if not isinstance(conditions, list):
        raise InvalidInput(ASKED, expected="a list of conditions", found=shown(conditions))
    parts = tuple(read_filter(part) for part in conditions)
    if operator == "OR":
        return AnyOf(parts)
    return AllOf(parts) if operator == "AND" else Not(AllOf(parts))


def field_of(name: object) -> Field:
    """The field that Haystack names "meta.author.name".

    Raises:
        InvalidInput: It is no name, or of what cannot be tested.
    """
    if not isinstance(name, str) or name in _WITHOUT_TEST:
        raise InvalidInput(ASKED, expected="a field: id, content or meta.KEY", found=shown(name))
    return _OF_DOCUMENTS.get(name) or metadata(*name.removeprefix("meta.").split("."))


def _comparison(asked: Mapping[str, Any]) -> Condition:
    field, operator, value = field_of(asked["field"]), _required(asked, "operator"), _required(asked, "value")
    if not isinstance(operator, str) or operator not in _OPERATORS:
        raise InvalidInput(ASKED, expected=f"an operator of {', '.join(_OPERATORS)}", found=shown(operator))
    return _OPERATORS[operator](field, value)


def _required(asked: Mapping[str, Any], key: str) -> Any:
    if key not in asked:
        raise InvalidInput(ASKED, expected=f"a key {key!r} in each condition", found=f"keys {', '.join(asked)}"[:200])
    return asked[key]


def _equal(field: Field, value: Any) -> Condition:
    return Term(field, "missing") if value is None else Term(field, "=", value)


def _among(field: Field, values: Any) -> Condition:
    if not isinstance(values, list):
        raise InvalidInput(ASKED, expected="a list of values", found=shown(values))
    present = Term(field, "in", tuple(value for value in values if value is not None))
    return AnyOf((present, Term(field, "missing"))) if None in values else present


def _ordered(operator: Operator) -> Callable[[Field, Any], Condition]:
    def read(field: Field, value: Any) -> Condition:
        if value is None:
            return AnyOf()
        if isinstance(value, str) and moment_of(value) is None:
            raise InvalidInput(ASKED, expected="a number or a date of ISO 8601 to compare with", found=shown(value))
        return Term(field, operator, value)

    return read


_OPERATORS: Mapping[str, Callable[[Field, Any], Condition]] = {
    "==": _equal,
    "!=": lambda field, value: Not(_equal(field, value)),
    ">": _ordered(">"),
    ">=": _ordered(">="),
    "<": _ordered("<"),
    "<=": _ordered("<="),
    "in": _among,
    "not in": lambda field, value: Not(_among(field, value)),
}
