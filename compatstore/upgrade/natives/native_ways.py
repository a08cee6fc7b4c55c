"""How natives are stored: by columns where that writes little, as no row moves then, and else by what writes less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from compatstore.errors import InvalidInput
from compatstore.storage.columns import VersionColumns
from compatstore.storage.fragments import field_ids, list_fragments
from compatstore.storage.moves import row_bytes, unmovable
from compatstore.storage.registry import Registry

Way = Literal["rows", "columns"]
NativesSetting = Literal["auto", "rows", "columns"]

LITTLE = 3.0  # times the vectors' own bytes
BATCH_ROWS = 1024  # that a backfill stores at once: each time the marks of deleted rows are written anew


@dataclass(frozen=True)
class NativesPlan:
    """How the natives of an upgrade will be stored.

    Attributes:
        way: "rows": each batch moves its rows, with the natives in them. "columns": natives are staged beside the table
            and folded into the target's columns at the end, and no row moves.
        rows_bytes: What storing them by rows writes, about.
        columns_bytes: What storing them by columns writes, about.
        why: Why this way, in words.
    """

    way: Way
    rows_bytes: int
    columns_bytes: int
    why: str

    @property
    def bytes(self) -> int:
        """What will be written, about."""
        return self.rows_bytes if self.way == "rows" else self.columns_bytes

    def __str__(self) -> str:
        other, written = ("columns", self.columns_bytes) if self.way == "rows" else ("rows", self.rows_bytes)
        against = f", against {_megabytes(written)} by {other}" if written else ""
        return f"stored by {self.way} ({self.why}), {_megabytes(self.bytes)}{against}"


def require_way(setting: str) -> NativesSetting:
    """Read a setting.

    Raises:
        InvalidInput: There is no such way.
    """
    for known in get_args(NativesSetting):
        if setting == known:
            return known  # type: ignore[no-any-return]
    raise InvalidInput(
        "choose how natives are stored", expected=f"one of {', '.join(get_args(NativesSetting))}", found=repr(setting)
    )


def plan_natives(
    snapshot: Any, registry: Registry, target: VersionColumns, setting: NativesSetting, natives: int
) -> NativesPlan:
    """Choose a way, and say what each would write; read-only.

    Rows that move leave marks behind them, which slow searches down until the table is compacted. So they move only
    where leaving them writes more than `LITTLE`. In an adopted table they stay unless the user says otherwise: its app
    knows them by their addresses and keeps an index of its own on them.

    Args:
        snapshot: The table as of now.
        registry: Its state.
        target: Columns of the version that is upgraded to; they need not be in the table yet.
        setting: What the user asked for.
        natives: How many vectors there will be.

    Raises:
        InvalidInput: Rows were asked for, and rows of this table cannot be moved.
    """
    obstacle = unmovable(snapshot)
    rows = 0 if obstacle else _bytes_by_rows(snapshot, target, natives)
    columns = _bytes_by_columns(snapshot, target, natives)
    if setting == "rows" and obstacle:
        raise InvalidInput(
            "store natives by rows",
            expected="a table whose rows can move",
            found=obstacle,
            fix="Store them by columns: natives='columns' (--natives columns).",
        )
    if setting != "auto":
        return NativesPlan(setting, rows, columns, "as asked")
    if obstacle:
        return NativesPlan("columns", rows, columns, obstacle)
    if registry.adopted:
        return NativesPlan("columns", rows, columns, "the app's rows stay where they are")
    own = natives * target.dim * np.dtype(target.dtype).itemsize
    if columns <= max(rows, LITTLE * own):
        return NativesPlan("columns", rows, columns, "no row moves")
    return NativesPlan("rows", rows, columns, "it writes less")


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def _bytes_by_rows(snapshot: Any, target: VersionColumns, natives: int) -> int:
    """A row's width for each, and the marks of deleted rows: four bytes or a bit for each row, whichever is less."""
    field = field_ids(snapshot).get(target.vector)
    hopped = any(field in fragment.fields for fragment in list_fragments(snapshot))
    width = row_bytes(snapshot) + (0 if hopped else target.row_bytes)
    marks = min(4 * natives / 2, snapshot.count_rows() / 8) * -(-natives // BATCH_ROWS)
    return int(natives * width + marks)


def _bytes_by_columns(snapshot: Any, target: VersionColumns, natives: int) -> int:
    """Each vector once beside the table, and the target's columns of all fragments that one of them is expected in."""
    fragments = list_fragments(snapshot)
    others = 1 - natives / max(sum(fragment.rows for fragment in fragments), natives, 1)
    touched = sum(fragment.rows * (1 - others**fragment.rows) for fragment in fragments)
    return int(natives * (4 * target.dim + 8) + touched * target.row_bytes)
