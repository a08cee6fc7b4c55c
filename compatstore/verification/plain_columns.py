"""Vectors that are no gallery yet, read a batch at a time, and the columns that an adoption takes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.dataset import Dataset, InMemoryDataset, dataset

from compatstore import next_step
from compatstore.arrays import ArrowBatch, ArrowSchema, ArrowType
from compatstore.boundary import foreign
from compatstore.data_files import is_list, read_columns, readable
from compatstore.errors import CompatStoreError, InvalidInput
from compatstore.paths import is_file
from compatstore.storage.create import AppColumns, require_new
from compatstore.storage.lancedb_functions import function_of
from compatstore.storage.location import Location, locate
from compatstore.storage.registry import KEY, id_type_of
from compatstore.storage.store import Store, storage_errors
from compatstore.upgrade.progress import Monitor, OnProgress
from compatstore.verification.context import BATCH_ROWS

FORMATS = {".parquet": "parquet", ".arrow": "ipc", ".feather": "ipc", ".npz": "", ".npy": ""}
MATRIX = "vector"  # name of the column of a bare array


@dataclass(frozen=True, kw_only=True)
class PlainColumns:
    """Vectors to examine; nothing is written.

    Attributes:
        name: The user's name of them.
        rows: An Arrow dataset; a Lance table is one.
        store: The table, if they are in a Lance table.
    """

    name: str
    rows: Dataset
    store: Store | None = None

    @property
    def schema(self) -> ArrowSchema:
        """Arrow schema."""
        return self.rows.schema

    def __len__(self) -> int:
        return int(self.rows.count_rows())

    def read(self, columns: Sequence[str], progress: OnProgress = None) -> Iterator[ArrowBatch]:
        """Read columns of all rows in order, a few thousand rows at a time.

        Raises:
            InvalidInput: A file is damaged.
            StorageError: The table cannot be read.
        """
        monitor = Monitor(f"read {', '.join(columns)}", len(self), progress)
        monitor.begin()
        settings = {"batch_size": BATCH_ROWS, "batch_readahead": 2, "fragment_readahead": 1}
        reading = f"read {', '.join(columns)} of {self.name}"
        with readable(Path(self.name), reading) if self.store is None else storage_errors(reading):
            for batch in self.rows.to_batches(columns=list(columns), **settings):
                yield batch
                monitor.advance(batch.num_rows)


def open_plain(gallery: object, storage_options: dict[str, str] | None) -> PlainColumns | None:
    """Open vectors that are no gallery yet; None for a gallery, or if nothing can be opened.

    Raises:
        InvalidInput: A file is damaged, or arrays are of different lengths.
    """
    if isinstance(gallery, pa.Table):
        return PlainColumns(name="the table", rows=InMemoryDataset(gallery))
    if isinstance(gallery, Mapping):
        return _of_arrays("the arrays", {str(name): _array(values) for name, values in gallery.items()})
    if isinstance(gallery, np.ndarray) or hasattr(gallery, "detach"):
        return _of_arrays("the array", {MATRIX: _array(gallery)})
    if isinstance(gallery, str | os.PathLike) and Path(gallery).suffix in FORMATS and is_file(gallery):
        with readable(Path(gallery), f"examine {gallery}"):
            return _of_file(Path(gallery))
    try:
        store = Store.open(locate(gallery, storage_options))
        table = store.snapshot()
    except CompatStoreError:  # the examination of the place reports it
        return None
    return None if KEY in table.config() else PlainColumns(name=store.location.name, rows=table, store=store)


def _of_file(path: Path) -> PlainColumns:
    if FORMATS[path.suffix]:
        return PlainColumns(name=str(path), rows=dataset(path, format=FORMATS[path.suffix]))
    return _of_arrays(str(path), read_columns(path, f"examine {path}")[0])


def _array(values: object) -> npt.NDArray[np.generic]:
    with foreign("examine arrays", "arrays of numbers or texts"):
        return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _of_arrays(name: str, arrays: Mapping[str, npt.NDArray[np.generic]]) -> PlainColumns:
    lengths = {key: array.shape[:1] for key, array in arrays.items()}
    if len(set(lengths.values())) != 1 or () in lengths.values():
        found = ", ".join(f"{key}: {array.shape}" for key, array in arrays.items()) or "no array"
        raise InvalidInput(f"examine {name}", expected="arrays of equal length", found=found)
    with foreign(f"examine {name}", "arrays that Arrow can hold"):
        table = pa.table({key: _column(array) for key, array in arrays.items()})
    return PlainColumns(name=name, rows=InMemoryDataset(table))


def _column(array: npt.NDArray[np.generic]) -> object:
    if array.ndim == 1:
        return pa.array(array)
    rows = np.ascontiguousarray(array).reshape(len(array), int(np.prod(array.shape[1:])))
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])


IDS = ("id", "ids", "key", "_id", "uuid", "uri")
SOURCES = ("source", "text", "content", "document", "body", "path", "image_path", "file", "image_uri", "url")


def usual_columns(location: Location, named: AppColumns, *, again: bool) -> tuple[AppColumns, int]:
    """Choose the columns that are not named: the only column of vectors, and ids and sources of a usual name.

    Read-only. The adoption itself takes a source that LanceDB's metadata name.

    Returns:
        The columns, and the length of the vectors.

    Raises:
        NotFound: There is no table.
        InvalidInput: It is a gallery already, or none or several columns could be meant.
    """
    store, operation = Store.open(location), f"adopt {location.name}"
    if not again:
        require_new(store, operation)
    schema = store.schema
    vector = named.vector or _only_vectors(schema, operation, location.name)
    id, source = named.id or _usual_id(schema, operation, location.name), named.source
    if source is None and function_of(schema, vector) is None:
        texts = [field.name for field in schema if id_type_of(field.type) == "string"]
        source = next((name for name in SOURCES if name in texts and name != id), None)
    # `adopt` refuses a column that is not there.
    dim = getattr(schema.field(vector).type, "list_size", 1) if vector in schema.names else 1
    return AppColumns(vector, id, source), dim


def _only_vectors(schema: ArrowSchema, operation: str, table: str) -> str:
    found = [str(f.name) for f in schema if pa.types.is_fixed_size_list(f.type) and is_vectors(f.type)]
    if len(found) == 1:
        return found[0]
    if not found:
        expected = "a column of fixed-size lists of float32 or float16"
        raise InvalidInput(operation, expected=expected, found=f"none of {', '.join(schema.names)}")
    fix = f"Name the one that the app searches: {next_step.call('adopt', at=table, vector=found[0])}"
    expected = f"one column of vectors, or {next_step.option('vector')}"
    raise InvalidInput(operation, expected=expected, found=", ".join(found), fix=fix)


def _usual_id(schema: ArrowSchema, operation: str, table: str) -> str:
    first = first_id(schema)
    if first in IDS:
        return first
    fix = f"Name it: {next_step.call('adopt', at=table, id=first or next_step.COLUMN)}"
    found = f"none of these in {', '.join(schema.names)}"
    expected = f"ids in a column {', '.join(IDS)}, or {next_step.option('id')}"
    raise InvalidInput(operation, expected=expected, found=found, fix=fix)


def first_id(schema: ArrowSchema) -> str | None:
    """The column of ids of a usual name, else the first of texts or whole numbers; None if there is none."""
    fits = [str(field.name) for kind in ("string", "int64") for field in schema if id_type_of(field.type) == kind]
    return min(fits, key=lambda name: IDS.index(name) if name in IDS else len(IDS), default=None)


def is_vectors(kind: ArrowType) -> bool:
    """True for lists of floating-point numbers."""
    return bool(is_list(kind) and pa.types.is_floating(kind.value_type))
