"""Rows of a gallery for other libraries, in batches of one table version; and the columns that a search returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowBatch, ArrowField, ArrowSchema, ArrowTable
from compatstore.boundary import shown
from compatstore.errors import InvalidInput, first_offenders, load_extra, meant
from compatstore.ingest import metadata
from compatstore.search.parts import refused_condition
from compatstore.shown import Shown, Table, cell, table, view
from compatstore.storage.app_columns import OF_RESULTS
from compatstore.storage.failures import answering
from compatstore.storage.location import Location
from compatstore.storage.registry import Registry
from compatstore.storage.snapshot import Snapshot

if TYPE_CHECKING:
    import pandas
    import polars

PREVIEW, LONGEST = 10, 60  # rows, and characters of a value, that a notebook shows


class Scan(Shown):
    """Rows of a gallery as of one table version, read on demand.

    Readers of Arrow streams (the Arrow PyCapsule interface) take it batch by batch:
    `polars.DataFrame(scan)`, `pyarrow.RecordBatchReader.from_stream(scan)`.

    Attributes:
        schema: Arrow schema of the rows.

    Examples:
        >>> scan = gallery.scan(["id", "label"], where="label = 0")
        >>> len(scan), scan.to_arrow()["id"].to_pylist()
        (2, ['a', 'b'])
    """

    def __init__(
        self, snapshot: Snapshot, location: Location, columns: list[str], where: str | None, limit: int | None
    ) -> None:
        self._snapshot, self._location = snapshot, location
        self._columns, self._where, self._limit = columns, where, limit
        with refused_condition("scan the gallery", where):
            read = snapshot.scanner(columns=columns, filter=where).projected_schema
        self.schema: ArrowSchema = pa.schema([field.remove_metadata() for field in read])

    def __len__(self) -> int:
        with answering("scan", self._location):
            rows = int(self._snapshot.count_rows(self._where))
        return rows if self._limit is None else min(rows, self._limit)

    def batches(self) -> Iterator[ArrowBatch]:
        """Read the rows, a batch at a time.

        Raises:
            StorageError: The table cannot be read.
        """
        with answering("scan", self._location):
            for batch in self._snapshot.to_batches(columns=self._columns, filter=self._where, limit=self._limit):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an Arrow stream, for any library that reads one."""
        return self._reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> ArrowTable:
        """Return the rows as an Arrow table."""
        return self._reader().read_all()

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a pandas frame; vectors are arrays in a column of objects.

        Raises:
            MissingExtra: pandas is not installed.
        """
        load_extra("pandas", "frames")  # Arrow imports it, with a poorer message if it is missing
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Return the rows as a polars frame.

        Raises:
            MissingExtra: polars is not installed.
        """
        frame: polars.DataFrame = load_extra("polars", "frames").DataFrame(self)
        return frame

    def _reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def preview(self) -> ArrowTable:
        """The first rows, at most 10."""
        limit = PREVIEW if self._limit is None else min(PREVIEW, self._limit)
        with answering("scan", self._location):
            return self._snapshot.to_table(columns=self._columns, filter=self._where, limit=limit)


@view.register
def _(result: Scan) -> Iterator[str | Table]:
    """The first rows."""
    first, rows = result.preview(), len(result)
    yield table(first.column_names, [[_short(value) for value in row.values()] for row in first.to_pylist()])
    yield f"{first.num_rows} of {rows} rows" if rows > first.num_rows else f"{rows} rows"


def _short(value: object) -> str | int | float:
    if isinstance(value, int | float):
        return value
    shown = cell(value)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 3]}..."


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


def result_columns(registry: Registry, schema: ArrowSchema, columns: Sequence[str] | None) -> list[str]:
    """Columns that a search returns: those that are named, or the user's own: id, source, metadata.

    Raises:
        InvalidInput: The table has no such column.
    """
    if columns is not None:
        return require_columns([name for name in columns if name not in OF_RESULTS], schema)
    own = {registry.id_column, registry.source_column, *metadata.own_columns(registry, schema.names)}
    return [name for name in schema.names if name in own and name not in OF_RESULTS]


def require_columns(columns: Sequence[str], schema: ArrowSchema) -> list[str]:
    """Columns of a table, or fields of its structs as "meta.lang", all of which it has.

    Raises:
        InvalidInput: It lacks some.
    """
    known = _names(schema)
    unknown = [name for name in columns if name not in known]
    if unknown:
        expected, found = f"some of {', '.join(schema.names)}", first_offenders(unknown)
        raise InvalidInput("read columns", expected=expected, found=found, fix=meant(unknown[0], known))
    return list(columns)


def whole_columns(columns: Sequence[str]) -> list[str]:
    """The columns of the table that hold the named ones: `meta` for "meta.lang"."""
    return list(dict.fromkeys(name.partition(".")[0] for name in columns))


def with_fields(table: ArrowTable, columns: Sequence[str] | None) -> ArrowTable:
    """A result of `whole_columns` with the named columns and the computed ones."""
    if columns is None or not any("." in name for name in columns):
        return table
    computed = [name for name in table.column_names if name not in whole_columns(columns)]
    named = [*(name for name in columns if name not in OF_RESULTS), *computed]
    parts = [name.split(".") for name in named]
    arrays = [pc.struct_field(table[first], inner) if inner else table[first] for first, *inner in parts]
    return pa.table(arrays, names=named).replace_schema_metadata(table.schema.metadata)


def _names(fields: Iterable[ArrowField], above: str = "") -> list[str]:
    """Names of columns and of the fields of structs, in any depth."""
    names = []
    for field in fields:
        names.append(f"{above}{field.name}")
        if pa.types.is_struct(field.type):
            names += _names(field.type, f"{above}{field.name}.")
    return names
