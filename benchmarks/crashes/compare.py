"""Two ends of one story: a gallery whose upgrade was killed again and again, and one that nobody disturbed."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.crashes.checks import CLOSE, State
from benchmarks.crashes.template import Kind
from compatstore.storage.columns import NATIVE


def differences(one: State, other: State, kind: Kind, touched: set[str]) -> tuple[list[str], int]:
    """Compare row by row.

    The same items with the same sources must be there, the same version active, and vectors of the same origin must be
    equal (what is learned depends on what was native by then). Which items are native may differ where the order of
    arrival explains it: those that the app wrote to, and of the others at most as many as it wrote to, because each
    write moves the end of the budget.

    Args:
        one: The gallery that was killed.
        other: The undisturbed one.
        kind: Of both.
        touched: Ids of the items that were written to.

    Returns:
        Differences that nothing explains, and how many items that nobody wrote to are native in one of the two only.
    """
    left, right = one.table.sort_by(kind.id), other.table.sort_by(kind.id)
    if left.schema.names != right.schema.names:
        return [f"columns {left.schema.names}, undisturbed {right.schema.names}"], 0
    if left[kind.id].to_pylist() != right[kind.id].to_pylist():
        return [f"{left.num_rows} items, undisturbed {right.num_rows}, or others"], 0
    found = []
    if one.status.active != other.status.active:
        found.append(f"{one.status.active} is active, undisturbed {other.status.active}")
    if left[kind.source].to_pylist() != right[kind.source].to_pylist():
        found.append("sources differ")
    left_origin, right_origin = (np.array(table["v2__origin"].to_pylist(), object) for table in (left, right))
    apart = (left_origin == NATIVE) != (right_origin == NATIVE)
    alike = np.flatnonzero(left_origin == right_origin)
    found += [
        f"column {name} differs where the origin does not"
        for name in ("v2", "v2__uncertainty")
        if not np.allclose(_numbers(left, name, alike), _numbers(right, name, alike), **CLOSE, equal_nan=True)
    ]
    left_alone = np.array([item not in touched for item in left[kind.id].to_pylist()])
    natives_apart = int((apart & left_alone).sum())
    if natives_apart > len(touched):
        found.append(f"{natives_apart} items that nobody wrote to are native in one and not in the other")
    return found, natives_apart


def _numbers(table: Any, name: str, rows: Any) -> np.ndarray:
    return np.array([np.nan if v is None else v for v in table[name].take(rows).to_pylist()], np.float64)
