"""Widths of columns in an app's table, such that LanceDB takes none of ours for the app's.

LanceDB finds "the" vector column by its dimension when an app's search does not name one, and raises when two fit. So
beside an app's columns a vector is stored with zeros behind it where it needs them: neither l2, cosine nor dot changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

import pyarrow as pa

from compatstore.arrays import ArrowField

PADDING = 8  # keeps the width divisible for product quantisation


def clear_of(dim: int, taken: Set[int]) -> int:
    """The smallest width for `dim` values that is none of those taken."""
    while dim in taken:
        dim += PADDING
    return dim


def widths(fields: Iterable[ArrowField]) -> Iterator[int]:
    """The dimensions that LanceDB sees in Arrow fields: fixed-size lists, those in lists and structs too."""
    for field in fields:
        kind = field.type
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_fixed_size_list(kind):
            yield kind.list_size
        elif pa.types.is_struct(kind):
            yield from widths(kind)
