"""Vectors, ids, labels and side-information from npy, npz, Parquet, Arrow and Feather files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compatstore.arrays import ArrowArray, ArrowTable, ArrowType
from compatstore.errors import InvalidInput

Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class VectorFile:
    """Contents of a file.

    Args:
        path: Of the file.
        vectors: (n, dim).
        ids: (n,), or None.
        labels: (n,), or None.
        side: (n, side dim), or None.
    """

    path: Path
    vectors: npt.NDArray[Any]
    ids: npt.NDArray[np.generic] | None = None
    labels: npt.NDArray[np.generic] | None = None
    side: npt.NDArray[Any] | None = None

    def take(self, rows: npt.NDArray[np.int64]) -> VectorFile:
        """Return some rows, in the given order."""
        arrays: dict[str, Any] = {"vectors": self.vectors, "ids": self.ids, "labels": self.labels, "side": self.side}
        return replace(self, **{name: a[rows] for name, a in arrays.items() if a is not None})


def read_vectors(path: str | PathLike[str], vector: str, ids: str, label: str, side: str) -> VectorFile:
    """Read one file.

    Args:
        path: An .npy of one matrix; an .npz, .parquet, .arrow, .ipc or .feather with named columns.
        vector: Column of the vectors, required.
        ids: Column of the ids, optional.
        label: Column of the labels, optional.
        side: Column of the side-information, optional.

    Raises:
        InvalidInput: The file is missing, of an unknown type, damaged, or has no such column of vectors.
    """
    file = Path(path)
    reader = _READERS.get(file.suffix)
    if reader is None:
        raise InvalidInput(f"read vectors from {file}", expected=f"one of {sorted(_READERS)}", found=repr(file.suffix))
    try:
        columns = reader(file, vector, (vector, ids, label, side))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"read vectors from {file}", expected="a readable file", found=str(error)) from error
    if vector not in columns:
        raise InvalidInput(f"read vectors from {file}", expected=f"a column {vector!r}", found=f"{sorted(columns)}")
    return VectorFile(
        path=file,
        vectors=columns[vector],
        ids=columns.get(ids),
        labels=columns.get(label),
        side=columns.get(side),
    )


def _read_npy(path: Path, vector: str, names: tuple[str, ...]) -> Columns:
    return {vector: np.load(path, allow_pickle=False)}


def _read_npz(path: Path, vector: str, names: tuple[str, ...]) -> Columns:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in names if name in arrays}


def _read_parquet(path: Path, vector: str, names: tuple[str, ...]) -> Columns:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        present = [name for name in names if name in file.schema_arrow.names]
        return _columns(file.read(columns=present))


def _read_arrow(path: Path, vector: str, names: tuple[str, ...]) -> Columns:
    from pyarrow import feather

    table = feather.read_table(path, memory_map=False)
    return _columns(table.select([name for name in names if name in table.column_names]))


def _columns(table: ArrowTable) -> Columns:
    return {name: as_array(name, table[name].combine_chunks()) for name in table.column_names}


def as_array(name: str, column: ArrowArray) -> npt.NDArray[np.generic]:
    """An Arrow array as NumPy's: (n,), or (n, d) of lists of one length.

    Raises:
        ValueError: It has nulls, or lists of several lengths.
    """
    import pyarrow.compute as pc

    if column.null_count:
        raise ValueError(f"column {name!r} has {column.null_count} nulls")
    if not is_list(column.type):
        # Arrow's strings come as objects; NumPy's own string type sorts and compares without surprises.
        array = column.to_numpy(zero_copy_only=False)
        return np.asarray(array.tolist()) if array.dtype == object else np.asarray(array)
    lengths = pc.unique(pc.list_value_length(column)).to_pylist()
    if len(lengths) != 1:
        raise ValueError(f"column {name!r} holds {len(lengths)} lengths of lists")
    return np.asarray(column.flatten().to_numpy(zero_copy_only=False)).reshape(-1, lengths[0])


def is_list(kind: ArrowType) -> bool:
    """Whether an Arrow type is one of lists."""
    import pyarrow as pa

    return any(is_kind(kind) for is_kind in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


_READERS: dict[str, Callable[[Path, str, tuple[str, ...]], Columns]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
    ".ipc": _read_arrow,
    ".feather": _read_arrow,
}
