"""Exports in columns: Parquet files and folders of them, Arrow files, and the arrays of an npz."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet

from compatstore.arrays import ArrowArray, ArrowBatch, ArrowTable, ArrowType
from compatstore.boundary import shown
from compatstore.conversion.exports import BATCH, Export, Leaf, NewVectors, Places, Write, to_lists
from compatstore.data_files import is_list, read_columns, readable
from compatstore.errors import InvalidInput
from compatstore.paths import is_folder

PARQUET, IPC, ARRAYS = (".parquet",), (".arrow", ".feather"), (".npz",)


class ArrowExport(Export[ArrowBatch]):
    """Records in columns."""

    def batches(self) -> Iterator[ArrowBatch]:
        """Record batches; of a folder those of its Parquet files in the order of their names."""
        with readable(self.path, self.operation):
            yield from (batch for batch in self._batches() if batch.num_rows)

    def _batches(self) -> Iterator[ArrowBatch]:
        """A row group or a record batch of the file is in memory at a time, which a scan of a dataset is not."""
        kind = self.path.suffix.lower()
        if kind in ARRAYS:
            yield from self._arrays.to_batches(BATCH)
        elif kind in IPC:
            with pa.memory_map(str(self.path)) as file, pa.ipc.open_file(file) as opened:
                for number in range(opened.num_record_batches):
                    yield from pa.Table.from_batches([opened.get_batch(number)]).to_batches(BATCH)
        else:
            for file in sorted(self.path.rglob("*.parquet")) if is_folder(self.path) else [self.path]:
                with parquet.ParquetFile(file, pre_buffer=False) as opened:
                    yield from opened.iter_batches(BATCH)

    @cached_property
    def _arrays(self) -> ArrowTable:
        return _table_of(self.path, self.operation)

    def column(self, batch: ArrowBatch, path: str) -> ArrowArray:
        """Values at a path; a text above it is read as JSON, as Pinecone's `metadata` is one."""
        name, rest = _outermost(batch.schema.names, path)
        array = batch[name]
        while rest and pa.types.is_struct(array.type):
            name, rest = _outermost([field.name for field in array.type], rest)
            array = pc.struct_field(array, name)
        if not rest:
            return array
        with readable(self.path, self.operation):
            objects = (json.loads(text or "{}") for text in array.to_pylist())
            return pa.array([record.get(rest) for record in objects])

    def leaves(self, batch: ArrowBatch) -> Iterable[Leaf]:
        """Leaves of the columns, and of JSON texts the fields of the first one."""
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            yield from _leaves(array, name)

    @contextmanager
    def writing(self, out: Path, places: Places) -> Iterator[Write[ArrowBatch]]:
        """Write Parquet, Arrow or npz, by the suffix of the file."""
        kind, kept, open_writers = out.suffix.lower(), list[ArrowBatch](), list[Any]()

        def write(batch: ArrowBatch, new: NewVectors) -> None:
            changed = _with_vectors(batch, places.vector, new)
            if kind in ARRAYS:
                kept.append(changed)
                return
            if not open_writers:
                make = pa.ipc.new_file if kind in IPC else parquet.ParquetWriter
                open_writers.append(make(str(out), changed.schema))
            open_writers[0].write_batch(changed)

        try:
            yield write
        finally:
            for writer in open_writers:
                writer.close()
        if kind in ARRAYS:
            _save_arrays(out, pa.Table.from_batches(kept), self.operation)


def _outermost(names: Iterable[str], path: str) -> tuple[str, str]:
    """The longest of the names that a path begins with, since names may hold dots, and the rest of the path."""
    name = max((name for name in names if path == name or path.startswith(f"{name}.")), key=len)
    return name, path[len(name) + 1 :]


def _leaves(array: ArrowArray, path: str) -> Iterator[Leaf]:
    kind = array.type
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(pc.struct_field(array, field.name), f"{path}.{field.name}")
    elif is_list(kind):
        if pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type):
            lengths = pc.list_value_length(array).drop_null()
            if len(lengths):
                yield Leaf(path, "vector", lengths[0].as_py())
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        yield Leaf(path, "number")
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        yield Leaf(path, "text")
        yield from _fields_of_text(array, path)


def _fields_of_text(array: ArrowArray, path: str) -> Iterator[Leaf]:
    """Fields of a column of JSON objects, as far as they are texts."""
    first = next((text.as_py() for text in array if text.is_valid), "")
    if first.startswith("{"):
        try:
            record = json.loads(first)
        except ValueError:
            return
        yield from (Leaf(f"{path}.{name}", "text") for name, value in record.items() if isinstance(value, str))


def _with_vectors(batch: ArrowBatch, path: str, new: NewVectors) -> ArrowBatch:
    """A batch with new vectors at a path, and their origins and uncertainties beside it."""
    fields = dict(zip(batch.schema.names, batch.columns, strict=True))
    changed = _changed(fields, path, new)
    return pa.RecordBatch.from_arrays(list(changed.values()), names=list(changed))


def _changed(fields: dict[str, ArrowArray], path: str, new: NewVectors) -> dict[str, ArrowArray]:
    name, rest = _outermost(fields, path)
    array, changed = fields[name], dict(fields)
    if rest:
        inner = {field.name: pc.struct_field(array, field.name) for field in array.type}
        made = _changed(inner, rest, new)
        changed[name] = pa.StructArray.from_arrays(list(made.values()), names=list(made), mask=array.is_null())
        return changed
    changed[name] = to_lists(new, array.type)
    return changed | {f"{name}_origin": new.origin, f"{name}_uncertainty": new.uncertainty}


def _table_of(path: Path, operation: str) -> ArrowTable:
    arrays, _ = read_columns(path, operation)
    shapes = {name: array.shape for name, array in arrays.items()}
    if len({shape[:1] for shape in shapes.values()}) != 1 or any(len(shape) not in (1, 2) for shape in shapes.values()):
        raise InvalidInput(operation, expected="arrays of one or two dimensions and one length", found=shown(shapes))
    return pa.table({name: _arrow_of(array) for name, array in arrays.items()})


def _arrow_of(array: np.ndarray[Any, Any]) -> ArrowArray:
    if array.ndim == 1:
        return pa.array(array)
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(array).reshape(-1)), array.shape[1])


def _save_arrays(out: Path, table: ArrowTable, operation: str) -> None:
    """Write an npz: a record without a vector has NaN and the origin "".

    Raises:
        InvalidInput: A column holds neither numbers nor texts nor vectors.
    """
    arrays = {name: _array_of(table[name].combine_chunks(), name, operation) for name in table.column_names}
    with out.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _array_of(column: ArrowArray, name: str, operation: str) -> np.ndarray[Any, Any]:
    kind: ArrowType = column.type
    if pa.types.is_fixed_size_list(kind):
        filled: np.ndarray[Any, Any] = column.values.to_numpy(zero_copy_only=False).reshape(len(column), -1).copy()
        if column.null_count:
            filled[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
        return filled
    if pa.types.is_string(kind):
        return np.array(column.fill_null("").to_pylist(), dtype=str)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    raise InvalidInput(
        operation, expected="numbers, texts or vectors of one length for an npz", found=f"{name}: {kind}"
    )
