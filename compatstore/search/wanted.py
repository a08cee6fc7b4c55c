"""What a search is to return: how many results, and which columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compatstore.boundary import shown
from compatstore.errors import InvalidInput, first_offenders, meant
from compatstore.ingest import metadata
from compatstore.storage.app_columns import OF_RESULTS
from compatstore.storage.registry import Registry

MOST_RESULTS = 2**31 - 1


def require_count(k: int) -> None:
    """Refuse a number of results that no search has.

    Raises:
        InvalidInput: It is below 1, or above `MOST_RESULTS`.
    """
    if not isinstance(k, int | np.integer) or k < 1:
        raise InvalidInput("search", expected="a whole number k >= 1", found=shown(k))
    if k > MOST_RESULTS:
        raise InvalidInput("search", expected=f"{MOST_RESULTS} results at most", found=shown(k))


def result_columns(registry: Registry, schema: Sequence[str], columns: Sequence[str] | None) -> list[str]:
    """Columns of the table that a search returns: those that are named, or the user's own: id, source, metadata.

    Raises:
        InvalidInput: The table has no such column.
    """
    if columns is not None:
        return require_columns([name for name in columns if name not in OF_RESULTS], schema)
    own = {registry.id_column, registry.source_column, *metadata.own_columns(registry, schema)}
    return [name for name in schema if name in own and name not in OF_RESULTS]


def require_columns(columns: Sequence[str], schema: Sequence[str]) -> list[str]:
    """Columns, all of which a table has.

    Raises:
        InvalidInput: It lacks some.
    """
    unknown = [name for name in columns if name not in schema]
    if unknown:
        expected, found = f"some of {', '.join(schema)}", first_offenders(unknown)
        raise InvalidInput("read columns", expected=expected, found=found, fix=meant(unknown[0], schema))
    return list(columns)
