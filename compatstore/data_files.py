"""Files of data that users name: arrays (`.npz`, `.safetensors`, one in `.npy`), columns of Arrow and Parquet."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowArray, ArrowType
from compatstore.errors import CompatStoreError, CorruptArtifact, InvalidInput, NotFound, first_offenders
from compatstore.paths import is_file, refused


def require_file(file: Path, operation: str, suffixes: Sequence[str]) -> None:
    """Refuse a path without a file, or a file of another type.

    Raises:
        NotFound: There is no such file.
        InvalidInput: Its suffix is another one.
    """
    if suffixes and file.suffix.lower() not in suffixes:
        raise InvalidInput(operation, expected=f"a file of {', '.join(suffixes)}", found=file.suffix or "no suffix")
    if not is_file(file):
        raise NotFound(operation, expected="a file", found="nothing", fix="Check the path.")


@contextmanager
def readable(
    file: Path, operation: str, damaged: type[InvalidInput] | type[CorruptArtifact] = InvalidInput
) -> Iterator[None]:
    """Re-raise errors of any library that reads a file as one error about the damaged file.

    Raises:
        StorageError: This process may not read it.
        InvalidInput: It cannot be read; or `damaged`.
    """
    try:
        yield
    except CompatStoreError:
        raise
    except PermissionError as error:
        raise refused(operation, file, error) from error
    except UnicodeDecodeError as error:
        raise damaged(operation, expected="text in UTF-8", found=f"byte {error.start} is none") from error
    except (OSError, ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile, csv.Error) as error:
        raise damaged(operation, expected="a readable file", found=str(error)) from error


def read_columns(file: Path, operation: str, wanted: Container[str] | None = None) -> tuple[dict[str, Any], list[str]]:
    """Read columns of a file, within `readable`.

    Args:
        file: Of a kind that its suffix names; an .npy holds `vector` alone.
        operation: The caller's operation, for messages.
        wanted: Names to read; by default all.

    Returns:
        Name -> array, or list of the values of an Arrow column that holds no lists; and the names of all columns.

    Raises:
        InvalidInput: Vectors are missing, or of several lengths.
    """
    kind = file.suffix.lower()
    if kind == ".npy":
        return {"vector": np.load(file, allow_pickle=False)}, ["vector"]
    if kind == ".npz":
        with np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files if wanted is None or name in wanted}, arrays.files
    if kind == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            tensors = load_file(file)
        except SafetensorError as error:
            raise ValueError(str(error)) from error
        return tensors, list(tensors)
    if kind == ".parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(file) as parquet:
            names = parquet.schema_arrow.names
            table = parquet.read([name for name in names if wanted is None or name in wanted])
    else:
        from pyarrow import feather

        table = feather.read_table(file, memory_map=False)
        names = table.column_names
    read = {name: table[name].combine_chunks() for name in names if wanted is None or name in wanted}
    columns = {
        name: matrix_of(column, name, operation) if is_list(column.type) else column.to_pylist()
        for name, column in read.items()
    }
    return columns, names


def matrix_of(column: ArrowArray, name: str, operation: str) -> npt.NDArray[np.generic]:
    """An Arrow array of n lists as (n, dim) numbers.

    Raises:
        InvalidInput: It has nulls, or lists of several lengths.
    """
    values = column.flatten()
    nulls = column.null_count + values.null_count
    if nulls:
        raise InvalidInput(operation, expected=f"a vector of {name} in each row", found=f"{nulls} nulls")
    lengths = pc.unique(pc.list_value_length(column)).to_pylist()
    if len(lengths) > 1:
        found = f"{len(lengths)} lengths: {first_offenders(sorted(lengths))}"
        raise InvalidInput(operation, expected=f"vectors of {name} of one length", found=found)
    matrix: npt.NDArray[np.generic] = values.to_numpy(zero_copy_only=False).reshape(len(column), sum(lengths))
    return matrix


def is_list(kind: ArrowType) -> bool:
    """True for an Arrow type of lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
