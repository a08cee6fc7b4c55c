"""The meaning of a condition in Python, held against what its SQL selects."""

from __future__ import annotations

import operator
from datetime import date

from compatstore.integrations.filters import AllOf, AnyOf, Not, moment_of

COMPARE = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def matches(condition, item):
    """Whether a condition is true of an item, a mapping of its fields: {("metadata", "year"): 2024}."""
    if isinstance(condition, AllOf):
        return all(matches(part, item) for part in condition.parts)
    if isinstance(condition, AnyOf):
        return any(matches(part, item) for part in condition.parts)
    if isinstance(condition, Not):
        return not matches(condition.part, item)
    return tested(found(item, condition.field), condition.operator, condition.value)


def found(item, field):
    """The value of a field: of its own, or within the objects of the first key."""
    if field in item:
        return item[field]
    value = item.get(field[:2])
    for key in field[2:]:
        value = value[key] if isinstance(value, dict) and key in value else None
    return value


def tested(value, test, wanted):
    if test == "missing":
        return value is None
    if test == "empty":
        return value is None or value == "" or value == []
    if test == "in":
        return any(compared(value, "=", one) for one in wanted)
    if test == "holds":
        return isinstance(value, list) and any(same(one, wanted) for one in plain_elements(value))
    if test == "mentions":
        return isinstance(value, str) and wanted in value
    if test == "mentions in any case":
        return isinstance(value, str) and wanted.lower() in value.lower()
    return compared(value, test, wanted)


def plain_elements(values):
    """Elements up to the first list or object."""
    for value in values:
        if isinstance(value, list | dict):
            return
        yield value


def same(value, wanted):
    if isinstance(wanted, date):
        wanted = wanted.isoformat()
    kinds = [bool, str, (int, float)]
    return any(isinstance(value, kind) and isinstance(wanted, kind) for kind in kinds) and (
        isinstance(value, bool) == isinstance(wanted, bool) and value == wanted
    )


def compared(value, test, wanted):
    moments = moment_of(value), moment_of(wanted)
    if moments[1] is not None and (test != "=" or isinstance(wanted, date)):
        return moments[0] is not None and COMPARE[test](*moments)
    if isinstance(value, bool) or isinstance(wanted, bool):
        return isinstance(value, bool) and isinstance(wanted, bool) and COMPARE[test](value, wanted)
    if isinstance(value, int | float) and isinstance(wanted, int | float):
        exact = isinstance(value, int) and isinstance(wanted, int)
        return COMPARE[test](value, wanted) if exact else COMPARE[test](float(value), float(wanted))
    if not isinstance(value, str) or not isinstance(wanted, str):
        return isinstance(value, date) and moments[1] is not None and COMPARE[test](*moments)
    if test == "=":
        return value == wanted or (moments[1] is not None and moments[0] == moments[1])
    return COMPARE[test](value, wanted)
