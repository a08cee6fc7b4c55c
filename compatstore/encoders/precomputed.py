"""An encoder that looks up given vectors by id: for batch APIs, tests and measurements."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from compatstore.arrays import FloatArray, Id
from compatstore.boundary import checked, foreign, shown
from compatstore.data_files import read_columns, readable, require_file
from compatstore.errors import CorruptArtifact, InvalidInput, NotFound, SourceError, first_offenders


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
            # A spec remembers no column names, so it is given only if the defaults find the vectors again.
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
        """Mask of the ids that have a vector: (n,) bool."""
        return np.array([key in self._rows for key in ids], bool)


SUFFIXES = (".parquet", ".arrow", ".feather", ".npz", ".npy")


def _read(path: Path, id: str, vector: str) -> tuple[list[Id], npt.NDArray[Any]]:
    operation = f"read vectors from {path}"
    require_file(path, operation, SUFFIXES)
    with readable(path, operation, CorruptArtifact):
        columns, names = read_columns(path, operation, (id, vector))
    if path.suffix.lower() == ".npy":
        return list(range(len(columns["vector"]))), columns["vector"]
    if not {id, vector} <= columns.keys():
        raise NotFound(operation, expected=f"{id!r} and {vector!r}", found=f"columns {names}")
    ids = columns[id]
    return ids.tolist() if isinstance(ids, np.ndarray) else ids, np.asarray(columns[vector])


def _matrix(rows: list[npt.ArrayLike]) -> npt.NDArray[Any]:
    with foreign("use precomputed vectors", "vectors of numbers"):
        arrays = [np.asarray(row, np.float32) for row in rows]
    if len({array.shape for array in arrays}) > 1:
        raise _unusable("one length", first_offenders(sorted({array.size for array in arrays})))
    return np.stack(arrays) if arrays else np.empty((0, 0), np.float32)


def _checked(ids: list[Id], vectors: npt.NDArray[Any]) -> FloatArray:
    if not ids or vectors.ndim != 2 or not vectors.shape[1]:
        raise _unusable("(n, dim) vectors", f"{vectors.shape}")
    if len(ids) != len(vectors):
        raise _unusable(f"{len(ids)} vectors", f"{len(vectors)}")
    odd = [shown(key) for key in ids if isinstance(key, bool) or not isinstance(key, str | int | np.integer)]
    if odd:
        raise _unusable("ids that are text or whole numbers", first_offenders(odd))
    twice = [key for key, count in Counter(ids).items() if count > 1]
    if twice:
        raise _unusable("each id once", first_offenders(twice), duplicates=twice)
    vectors = np.ascontiguousarray(vectors, np.float32)
    broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(broken):
        raise _unusable("finite values", f"NaN or infinity in {first_offenders([ids[row] for row in broken])}")
    return vectors


def _unusable(expected: str, found: str, **details: Any) -> InvalidInput:
    return InvalidInput("use precomputed vectors", expected=expected, found=found, **details)


def _content_hash(ids: list[Id], vectors: FloatArray) -> str:
    """Digest of id-vector pairs, independent of their order and kind of file."""
    digest = hashlib.sha256(str(vectors.shape).encode())
    for row in sorted(range(len(ids)), key=lambda row: (type(ids[row]).__name__, ids[row])):
        digest.update(repr(ids[row]).encode())
        digest.update(vectors[row].tobytes())
    return digest.hexdigest()[:32]
