"""LangChain's filters on metadata, as its stores have them: {"year": {"$gte": 2024}, "$or": [...]}."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from compatstore.boundary import shown
from compatstore.errors import InvalidInput
from compatstore.integrations.filters import (
    AllOf,
    AnyOf,
    Condition,
    Field,
    Not,
    Operator,
    Term,
    entries,
    metadata,
    one_of,
)

ASKED = "read a filter"


def read_filter(filter: object) -> Condition:
    """Read a filter: all its entries must hold.

    Args:
        filter: Key -> value that the metadata must be equal to, None where there must be none; or key -> mapping of
            operators `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`, `$in`, `$nin`, `$between`, `$exists`, `$contains` (a
            list holds a value, or a text has a part); or `$and`, `$or` -> list of
            filters, `$not` -> filter. A key with dots is that key, or leads into objects: "docx.author".

    Raises:
        InvalidInput: It is none of these.
    """
    return AllOf(tuple(_entry(key, value) for key, value in entries(filter, ASKED).items()))


def _entry(key: str, value: Any) -> Condition:
    if key in ("$and", "$or"):
        if not isinstance(value, list | tuple) or not value:
            raise InvalidInput(ASKED, expected=f"a list of filters in {key}", found=shown(value))
        parts = tuple(read_filter(part) for part in value)
        return AllOf(parts) if key == "$and" else AnyOf(parts)
    if key == "$not":
        return Not(read_filter(value))
    if key.startswith("$"):
        raise InvalidInput(ASKED, expected="$and, $or or $not beside keys of metadata", found=key[:120])
    field = metadata(key)
    if not isinstance(value, Mapping):
        return _equal(field, value)
    if not value:
        raise InvalidInput(ASKED, expected=f"an operator for {key[:120]!a}", found="none")
    return AllOf(tuple(_operator(field, name, wanted) for name, wanted in entries(value, ASKED).items()))


def _operator(field: Field, name: str, wanted: Any) -> Condition:
    if name not in _OPERATORS:
        raise InvalidInput(ASKED, expected=f"an operator of {', '.join(_OPERATORS)}", found=name[:120])
    return _OPERATORS[name](field, wanted)


def _equal(field: Field, wanted: Any) -> Condition:
    return Term(field, "missing") if wanted is None else Term(field, "=", wanted)


def _ordered(operator: Operator) -> Callable[[Field, Any], Condition]:
    return lambda field, wanted: Term(field, operator, wanted)


def _between(field: Field, wanted: Any) -> Condition:
    ends = one_of(wanted, ASKED)
    if len(ends) != 2:
        raise InvalidInput(ASKED, expected="two values in $between", found=f"{len(ends)}")
    return AllOf((Term(field, ">=", ends[0]), Term(field, "<=", ends[1])))


def _exists(field: Field, wanted: Any) -> Condition:
    if not isinstance(wanted, bool):
        raise InvalidInput(ASKED, expected="true or false in $exists", found=shown(wanted))
    return Not(Term(field, "missing")) if wanted else Term(field, "missing")


def _contains(field: Field, wanted: Any) -> Condition:
    holds = Term(field, "holds", wanted)
    return AnyOf((holds, Term(field, "mentions", wanted))) if isinstance(wanted, str) else holds


_OPERATORS: Mapping[str, Callable[[Field, Any], Condition]] = {
    "$eq": _equal,
    "$ne": lambda field, wanted: Not(_equal(field, wanted)),
    "$gt": _ordered(">"),
    "$gte": _ordered(">="),
    "$lt": _ordered("<"),
    "$lte": _ordered("<="),
    "$in": lambda field, wanted: Term(field, "in", one_of(wanted, ASKED)),
    "$nin": lambda field, wanted: Not(Term(field, "in", one_of(wanted, ASKED))),
    "$between": _between,
    "$exists": _exists,
    "$contains": _contains,
}
