"""Which columns Lance can keep: names that it reads, writes, filters by and searches, and types that it can store."""

from __future__ import annotations

import pyarrow as pa

from compatstore.arrays import ArrowTable
from compatstore.errors import InvalidInput
from compatstore.storage.failures import is_panic, told
from compatstore.storage.lance_engine import lance

# Lance resolves names as paths: a dot goes into a struct and a backtick quotes. A star is all columns.
_LANCE_TAKES = ("`", ".")
# What Lance gives rows beside their columns, and what a search gives them beside those.
_OF_LANCE = frozenset({"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"})
OF_RESULTS = frozenset({"_distance", "_version", "_origin", "_query"})


def fault_of(name: str) -> str:
    """The reason why a column cannot have this name, as text for a message; "" where it can."""
    if not name or name == "*":
        return "Lance does not read columns of such a name"
    taken = [character for character in _LANCE_TAKES if character in name]
    if taken:
        return f"Lance reads {taken[0]!r} in a name as its own"
    if "\0" in name or any("\ud800" <= character <= "\udfff" for character in name):
        return "Lance does not keep all of its characters"
    if name in _OF_LANCE or name in OF_RESULTS:
        return "results have a column of that name"
    return ""


ROWS = 100


def require_storable(columns: ArrowTable, asked: str) -> None:
    """Refuse columns that Lance cannot write, or not read back.

    Args:
        columns: Arrow table; its first rows are tried, and a row of nulls, as the gallery's other rows have.
        asked: What the caller wants, for messages.

    Raises:
        InvalidInput: Names the column and what Lance says.
    """
    for name in columns.column_names:
        one = columns.select([name])
        sample = pa.concat_tables([one.slice(0, ROWS), pa.table([pa.nulls(1, one.schema[0].type)], schema=one.schema)])
        try:
            lance.write_dataset(sample, "memory://rehearsal").to_table()
        except BaseException as error:
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            raise InvalidInput(
                asked,
                expected="metadata of types that Lance can keep",
                found=f"column {name!r} of type {one.schema[0].type}: {told(error)}",
                fix="Convert the column, to text for one, or leave it out.",
            ) from error
