"""An encoder that looks up given vectors by id: for batch APIs, tests and measurements."""

from __future__ import annotations

import hashlib
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from compatstore.arrays import FloatArray, Id
from compatstore.boundary import checked, foreign, shown
from compatstore.errors import CompatStoreError, CorruptArtifact, InvalidInput, NotFound, SourceError, first_offenders
from compatstore.paths import is_file, refused


@checked
class Precomputed:
    """Vectors that exist already, by id.

    Args:
        vectors: A mapping id -> (dim,) vector, or a file: .parquet, .arrow or .feather with the columns `id` and
            `vector`, .npz with the arrays `id` and `vector`, or .npy of (n, dim) whose ids are 0 to n - 1.
        id: Name of the id column or array of a file.
        vector: Name of the vector column or array of a file.

    Raises:
        NotFound: The file or a column does not exist.
        CorruptArtifact: The file cannot be read.
        InvalidInput: An id occurs twice. Vectors have different lengths, or there are not as many ids as vectors.
            Vectors hold NaN or infinite values. There are no vectors, or the file type is unknown.

    Examples:
        >>> encoder = cs.encoders.Precomputed({"a": [0.0, 1.0], "b": [1.0, 0.0]})
        >>> encoder.dim, encoder.encode(["b"]).tolist()
        (2, [[1.0, 0.0]])
    """

    reads: Literal["source", "id"] = "id"

    def __init__(
        self, vectors: Mapping[Any, npt.ArrayLike] | str | Path, *, id: str = "id", vector: str = "vector"
    ) -> None:
        if isinstance(vectors, Mapping):
            self.spec = ""
            ids, matrix = list(vectors), _matrix(list(vectors.values()))
        else:
            path = Path(vectors)
            # A spec remembers no column names, so it is given only where the defaults find the vectors again.
            self.spec = f"precomputed:{path.absolute()}" if (id, vector) == ("id", "vector") else ""
            ids, matrix = _read(path, id, vector)
        self._vectors = _checked(ids, matrix)
        self._rows = {key: row for row, key in enumerate(ids)}
        self.dim = int(self._vectors.shape[1])
        self.fingerprint = _content_hash(ids, self._vectors)

    def __len__(self) -> int:
        return len(self._rows)

    def encode(self, sources: Sequence[Any]) -> FloatArray:
        """Look a batch of ids up: (n, dim) float32.

        Raises:
            SourceError: Some ids are unknown.
        """
        rows = [self._rows.get(key, -1) if isinstance(key, str | int | np.integer) else -1 for key in sources]
        failures = {i: f"no vector for id {shown(sources[i])}" for i, row in enumerate(rows) if row < 0}
        if failures:
            raise SourceError(f"look {len(sources)} vectors up", failures, fix="Compute the vectors of these ids.")
        return self._vectors[np.array(rows, np.int64)]

    def knows(self, ids: Sequence[Any]) -> npt.NDArray[np.bool_]:
        """Which of n ids have a vector: (n,) bool."""
        return np.array([key in self._rows for key in ids], bool)


def _read(path: Path, id: str, vector: str) -> tuple[list[Id], npt.NDArray[Any]]:
    readers = {
        ".parquet": _read_table, ".arrow": _read_table, ".feather": _read_table, ".npz": _read_npz, ".npy": _read_npy
    }  # fmt: skip
    asked = f"read vectors from {path}"
    if path.suffix not in readers:
        raise InvalidInput(asked, expected=f"a file of {', '.join(readers)}", found=path.suffix or "no suffix")
    if not is_file(path):
        raise NotFound(asked, expected="a file", found="nothing", fix="Check the path.")
    try:
        return readers[path.suffix](path, id, vector)
    except KeyError as error:
        raise NotFound(asked, expected=f"{id!r} and {vector!r}", found=str(error.args[0])) from error
    except CompatStoreError:
        raise
    except PermissionError as error:
        raise refused(asked, path, error) from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise CorruptArtifact(asked, expected="a readable file", found=str(error)) from error


def _read_table(path: Path, id: str, vector: str) -> tuple[list[Id], npt.NDArray[Any]]:
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    read = pa.parquet.read_table if path.suffix == ".parquet" else pa.feather.read_table
    table = read(path)
    missing = {id, vector} - set(table.column_names)
    if missing:
        raise KeyError(f"columns {table.column_names}")
    column = table[vector].combine_chunks()
    if column.null_count or table[id].null_count:
        raise InvalidInput(f"read vectors from {path}", expected="no nulls", found="null ids or vectors")
    lengths = set(column.value_lengths().to_pylist()) if not pa.types.is_fixed_size_list(column.type) else set()
    if len(lengths) > 1:
        raise _ragged(lengths)
    return table[id].to_pylist(), column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)


def _read_npz(path: Path, id: str, vector: str) -> tuple[list[Id], npt.NDArray[Any]]:
    with np.load(path, allow_pickle=False) as arrays:
        if not {id, vector} <= set(arrays.files):
            raise KeyError(f"arrays {arrays.files}")
        return arrays[id].tolist(), arrays[vector]


def _read_npy(path: Path, id: str, vector: str) -> tuple[list[Id], npt.NDArray[Any]]:
    array = np.load(path, allow_pickle=False)
    return list(range(len(array))), array


def _matrix(rows: list[npt.ArrayLike]) -> npt.NDArray[Any]:
    with foreign("use precomputed vectors", "vectors of numbers"):
        arrays = [np.asarray(row, np.float32) for row in rows]
    if len({array.shape for array in arrays}) > 1:
        raise _ragged({array.size for array in arrays})
    return np.stack(arrays) if arrays else np.empty((0, 0), np.float32)


def _ragged(lengths: set[int]) -> InvalidInput:
    return InvalidInput("use vectors", expected="one length", found=first_offenders(sorted(lengths)))


def _checked(ids: list[Id], vectors: npt.NDArray[Any]) -> FloatArray:
    if not ids or vectors.ndim != 2 or not vectors.shape[1]:
        raise InvalidInput("use precomputed vectors", expected="(n, dim) vectors", found=f"{vectors.shape}")
    if len(ids) != len(vectors):
        raise InvalidInput("use vectors", expected=f"{len(ids)} vectors", found=f"{len(vectors)}")
    odd = [key for key in ids if isinstance(key, bool) or not isinstance(key, str | int | np.integer)]
    if odd:
        found = first_offenders([shown(key) for key in odd])
        raise InvalidInput("use precomputed vectors", expected="ids that are text or whole numbers", found=found)
    if len(set(ids)) < len(ids):
        twice = [key for key, count in Counter(ids).items() if count > 1]
        found = first_offenders(twice)
        raise InvalidInput("use precomputed vectors", expected="each id once", found=found, duplicates=twice)
    vectors = np.ascontiguousarray(vectors, np.float32)
    broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(broken):
        found = first_offenders([ids[row] for row in broken])
        raise InvalidInput("use precomputed vectors", expected="finite values", found=f"NaN or infinity in {found}")
    return vectors


def _content_hash(ids: list[Id], vectors: FloatArray) -> str:
    """Digest of id-vector pairs, whatever their order and whatever kind of file they came from."""
    digest = hashlib.sha256(str(vectors.shape).encode())
    for row in sorted(range(len(ids)), key=lambda row: (type(ids[row]).__name__, ids[row])):
        digest.update(repr(ids[row]).encode())
        digest.update(vectors[row].tobytes())
    return digest.hexdigest()[:32]
