"""Classes: what a column of the user's says that items are, and that a column can say it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowArray, ArrowSchema, Positions
from compatstore.errors import InvalidInput


def require_classes(asked: str, schema: ArrowSchema, column: str) -> None:
    """Refuse a column that holds no classes.

    Args:
        asked: What the classes are for.
        schema: Of the table.
        column: Its name.

    Raises:
        InvalidInput: There is no such column, or it holds neither text nor whole numbers.
    """
    if column not in schema.names:
        raise InvalidInput(asked, expected=f"labels in one of {', '.join(schema.names)}", found=column)
    kind = schema.field(column).type
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not any(check(plain) for check in (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer)) and (
        not pa.types.is_boolean(plain)
    ):
        raise InvalidInput(asked, expected=f"text or whole numbers in the column {column}", found=str(kind))


def classes_of(labels: ArrowArray) -> Positions:
    """Labels as numbers from 0, -1 for an item that has none: (n,) intp."""
    combined = labels.combine_chunks() if isinstance(labels, pa.ChunkedArray) else labels
    numbers = combined if pa.types.is_dictionary(combined.type) else combined.dictionary_encode()
    classes: Positions = pc.fill_null(numbers.indices, -1).to_numpy(zero_copy_only=False).astype(np.intp)
    return classes
