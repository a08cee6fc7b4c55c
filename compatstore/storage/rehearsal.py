"""A rehearsal: whether Lance can keep values of a type that a table has no column of yet, tried in memory.

Lance takes a field of some types that it cannot write, or panics; the table would be left with that field.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from compatstore.errors import InvalidInput
from compatstore.storage.failures import is_panic, told
from compatstore.storage.lance_engine import lance

ROWS = 100


def require_storable(columns: Any, asked: str) -> None:
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
