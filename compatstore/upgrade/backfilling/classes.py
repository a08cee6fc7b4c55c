"""Classes: what a column of the user's says that items are, and that a column can say it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowArray, ArrowSchema, ArrowType, Positions
from compatstore.errors import InvalidInput, meant


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
        fit = [field.name for field in schema if _holds_classes(field.type) and "__" not in field.name]
        expected = f"labels in one of {', '.join(fit)}" if fit else "a column of labels: text or whole numbers"
        raise InvalidInput(asked, expected=expected, found=column, fix=meant(column, fit))
    kind = schema.field(column).type
    if not _holds_classes(kind):
        raise InvalidInput(asked, expected=f"text or whole numbers in the column {column}", found=str(kind))


def _holds_classes(kind: ArrowType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean)
    return any(check(plain) for check in checks)


def classes_of(labels: ArrowArray) -> Positions:
    """Labels as numbers from 0, -1 for an item that has none: (n,) intp."""
    combined = labels.combine_chunks() if isinstance(labels, pa.ChunkedArray) else labels
    numbers = combined if pa.types.is_dictionary(combined.type) else combined.dictionary_encode()
    classes: Positions = pc.fill_null(numbers.indices, -1).to_numpy(zero_copy_only=False).astype(np.intp)
    return classes
