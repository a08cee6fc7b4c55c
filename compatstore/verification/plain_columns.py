"""Vectors that are no gallery yet, as columns that are read a batch at a time, and which of them an adoption takes."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as parquet

from compatstore import next_step
from compatstore.arrays import ArrowBatch, ArrowSchema, ArrowTable
from compatstore.boundary import foreign
from compatstore.errors import CompatStoreError, InvalidInput
from compatstore.paths import is_file
from compatstore.storage.create import require_new
from compatstore.storage.lancedb_functions import function_of
from compatstore.storage.location import Location, locate
from compatstore.storage.registry import KEY
from compatstore.storage.store import Store, storage_errors

BATCH_ROWS = 4096
FILES = (".parquet", ".arrow", ".feather", ".npz", ".npy")
MATRIX = "vector"  # what the column of a bare array is called


@dataclass(frozen=True, kw_only=True)
class PlainColumns:
    """What is looked at; nothing of it writes.

    Attributes:
        name: What the user calls it.
        schema: Arrow schema.
        rows: How many.
        read: Names of columns -> batches of a few thousand rows, in the order of the rows.
        store: The table, where it is one of Lance.
    """

    name: str
    schema: ArrowSchema
    rows: int
    read: Callable[[Sequence[str]], Iterator[ArrowBatch]]
    store: Store | None = None


def open_plain(gallery: object, storage_options: dict[str, str] | None) -> PlainColumns | None:
    """Open what is no gallery yet; None for a gallery, or where nothing can be opened.

    Raises:
        InvalidInput: A file is damaged, or arrays are of different lengths.
    """
    if isinstance(gallery, pa.Table):
        return _of_table("the table", gallery)
    if isinstance(gallery, Mapping):
        return _of_arrays("the arrays", {str(name): _array(values) for name, values in gallery.items()})
    if isinstance(gallery, np.ndarray) or hasattr(gallery, "detach"):
        return _of_arrays("the array", {MATRIX: _array(gallery)})
    if isinstance(gallery, str | os.PathLike) and Path(gallery).suffix in FILES and is_file(gallery):
        return _of_file(Path(gallery))
    try:
        store = Store.open(locate(gallery, storage_options))
        if KEY in store.snapshot().config():
            return None
    except CompatStoreError:  # whoever looks at the place says what is wrong
        return None
    return _of_store(store)


def _of_store(store: Store) -> PlainColumns:
    snapshot, name = store.snapshot(), store.location.name

    def read(columns: Sequence[str]) -> Iterator[ArrowBatch]:
        with storage_errors(f"read {', '.join(columns)} of {name}"):
            yield from snapshot.to_batches(
                columns=list(columns), batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1
            )

    return PlainColumns(name=name, schema=snapshot.schema, rows=int(snapshot.count_rows()), read=read, store=store)


def _of_file(path: Path) -> PlainColumns:
    asked = f"examine {path}"
    try:
        if path.suffix == ".parquet":
            return _of_parquet(path)
        if path.suffix in (".arrow", ".feather"):
            return _of_table(str(path), pa.ipc.open_file(pa.memory_map(str(path))).read_all())
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return _of_arrays(str(path), {MATRIX: loaded})
        with loaded:
            return _of_arrays(str(path), {name: loaded[name] for name in loaded.files})
    except (pa.ArrowInvalid, OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, CompatStoreError):
            raise
        raise InvalidInput(asked, expected="a readable file", found=f"{error!s:.200}") from error


def _of_parquet(path: Path) -> PlainColumns:
    with parquet.ParquetFile(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows

    def read(columns: Sequence[str]) -> Iterator[ArrowBatch]:
        try:
            with parquet.ParquetFile(path) as file:
                yield from file.iter_batches(BATCH_ROWS, columns=list(columns))
        except (pa.ArrowInvalid, OSError) as error:
            raise InvalidInput(f"examine {path}", expected="a readable file", found=f"{error!s:.200}") from error

    return PlainColumns(name=str(path), schema=schema, rows=rows, read=read)


def _of_table(name: str, table: ArrowTable) -> PlainColumns:
    def read(columns: Sequence[str]) -> Iterator[ArrowBatch]:
        yield from table.select(list(columns)).to_batches(max_chunksize=BATCH_ROWS)

    return PlainColumns(name=name, schema=table.schema, rows=table.num_rows, read=read)


def _array(values: object) -> npt.NDArray[np.generic]:
    with foreign("examine arrays", "arrays of numbers or texts"):
        return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _of_arrays(name: str, arrays: Mapping[str, npt.NDArray[np.generic]]) -> PlainColumns:
    lengths = {key: array.shape[:1] for key, array in arrays.items()}
    if len(set(lengths.values())) != 1 or () in lengths.values():
        found = ", ".join(f"{key}: {array.shape}" for key, array in arrays.items()) or "no array"
        raise InvalidInput(f"examine {name}", expected="arrays of equal length", found=found)
    with foreign(f"examine {name}", "arrays that Arrow can hold"):
        return _of_table(name, pa.table({key: _column(array) for key, array in arrays.items()}))


def _column(array: npt.NDArray[np.generic]) -> object:
    if array.ndim == 1:
        return pa.array(array)
    rows = np.ascontiguousarray(array).reshape(len(array), int(np.prod(array.shape[1:])))
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])


IDS = ("id", "ids", "key", "_id", "uuid", "uri")
SOURCES = ("source", "text", "content", "document", "body", "path", "image_path", "file", "image_uri", "url")


class UsualColumns(NamedTuple):
    """Columns for an adoption.

    Attributes:
        vector: Of the vectors.
        dim: Their length.
        id: Of the ids.
        source: To embed items from, or None.
    """

    vector: str
    dim: int
    id: str
    source: str | None


def usual_columns(
    location: Location,
    *,
    vector: str | None = None,
    id: str | None = None,
    source: str | None = None,
    again: bool = False,
) -> UsualColumns:
    """Choose what is not named: the only column of vectors, and ids and sources of a usual name; read-only.

    A source that LanceDB's metadata name is left to the adoption, which takes it.

    Raises:
        NotFound: There is no table.
        InvalidInput: It is a gallery already, or none or several columns could be meant.
    """
    store, asked = Store.open(location), f"adopt {location.name}"
    if not again:
        require_new(store, asked)
    schema, name = store.schema, location.name
    if vector is None:
        vector = _only_vectors(schema, asked, name)
    if id is None:
        id = _ids(schema, asked, name)
    if source is None and function_of(schema, vector) is None:
        source = next((name for name in SOURCES if name in _texts(schema) and name != id), None)
    # `adopt` says what is wrong with a column that is not there.
    dim = getattr(schema.field(vector).type, "list_size", 1) if vector in schema.names else 1
    return UsualColumns(vector, dim, id, source)


def _only_vectors(schema: ArrowSchema, asked: str, table: str) -> str:
    found = [str(field.name) for field in schema if pa.types.is_fixed_size_list(field.type)]
    found = [name for name in found if pa.types.is_floating(schema.field(name).type.value_type)]
    if len(found) == 1:
        return found[0]
    if not found:
        expected = "a column of fixed-size lists of float32 or float16"
        raise InvalidInput(asked, expected=expected, found=f"none of {', '.join(schema.names)}")
    fix = f"Name the one that the app searches: {next_step.call('adopt', at=table, vector=found[0])}"
    expected = f"one column of vectors, or {next_step.option('vector')}"
    raise InvalidInput(asked, expected=expected, found=", ".join(found), fix=fix)


def _ids(schema: ArrowSchema, asked: str, table: str) -> str:
    fits = [*_texts(schema), *(field.name for field in schema if pa.types.is_integer(field.type))]
    usual = next((name for name in IDS if name in fits), None)
    if usual is not None:
        return usual
    fix = f"Name it: {next_step.call('adopt', at=table, id=fits[0] if fits else next_step.COLUMN)}"
    found = f"none of these in {', '.join(schema.names)}"
    expected = f"ids in a column {', '.join(IDS)}, or {next_step.option('id')}"
    raise InvalidInput(asked, expected=expected, found=found, fix=fix)


def _texts(schema: ArrowSchema) -> list[str]:
    return [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]
