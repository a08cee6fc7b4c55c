"""What users hand over, as Arrow arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from compatstore.errors import InvalidInput

NOT_CONVERTIBLE = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError)


def cast(values: Any, kind: Any, name: str, asked: str) -> Any:
    """Make values an Arrow array of a type.

    Args:
        values: n values, as `as_array` takes them.
        kind: Arrow type.
        name: Of their column, for messages.
        asked: What the caller wants, for messages.

    Raises:
        InvalidInput: They are none of that type.
    """
    array = as_array(values)
    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except NOT_CONVERTIBLE as error:
        raise InvalidInput(
            asked, expected=f"column {name!r} of type {kind}", found=f"{array.type} ({error})"
        ) from error


def as_array(values: Any) -> Any:
    """Make n values of any kind one Arrow array; what Arrow does not know becomes text."""
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    if isinstance(values, pa.Array):
        return values
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    if isinstance(values, np.ndarray) and values.ndim > 1:
        values = list(values)
    try:
        return pa.array(values)
    except NOT_CONVERTIBLE:
        return pa.array([None if value is None else str(value) for value in values])
