"""An index file of FAISS with the file of ids beside it: what it holds, and another one of the same kind.

The ids of `docs.faiss` are in `docs.faiss.ids.npy`, `.ids.json`, `.ids.txt` or `.ids.parquet`, in the order of the
vectors; a Parquet file has a column `id` and may have others. Without such a file they are the ids of an IndexIDMap or
of an IVF index, and otherwise positions.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from compatstore.arrays import ArrowArray, ArrowTable, ArrowType, FloatArray, RowNumbers
from compatstore.data_files import readable
from compatstore.errors import CompatStoreError, InvalidInput, NotFound, StorageError, first_offenders
from compatstore.in_memory.nearest import load_faiss
from compatstore.paths import is_file, refused
from compatstore.stores.store import BATCH, ID
from compatstore.versions import Metric

IDS = (".ids.npy", ".ids.json", ".ids.txt", ".ids.parquet")
EXACT = ("IndexFlat", "IndexFlatL2", "IndexFlatIP", "IndexIVFFlat", "IndexHNSWFlat", "IndexRefineFlat")
UNIT = 1e-3  # by which the length of a vector may differ from 1
_TRIES, _WAIT = 5, 0.2  # readings of files that an app writes meanwhile, and seconds between them

Stamp = tuple[int, int, int]  # inode, time of the last change in ns, size


def stamp(path: Path) -> Stamp | None:
    """Identity of the content of a file; None without a file.

    Raises:
        StorageError: This process may not look there.
    """
    try:
        known = path.stat()
    except PermissionError as error:
        raise refused(f"look at {path}", path, error) from error
    except (OSError, ValueError):
        return None
    return known.st_ino, known.st_mtime_ns, known.st_size


def ids_file(path: Path) -> Path | None:
    """The file of ids beside an index; None if there is none.

    Raises:
        InvalidInput: There are several.
    """
    files = [file for file in (path.with_name(path.name + suffix) for suffix in IDS) if is_file(file)]
    if len(files) > 1:
        found = ", ".join(file.name for file in files)
        raise InvalidInput(
            f"read the ids of {path}", expected="one file of ids", found=found, fix="Remove all but one."
        )
    return files[0] if files else None


@dataclass(frozen=True, eq=False)
class IndexFile:
    """An index that was read as a whole, and its ids.

    Attributes:
        path: Of the index.
        index: Of FAISS.
        ids: (n,) string or int64, in the order of the vectors.
        named: File of the ids; None if they are those of the index, or positions.
        has_own: True if the index itself has ids, which are not positions.
        stamps: Of both files as they were read.
    """

    path: Path
    index: Any
    ids: ArrowArray
    named: Path | None
    has_own: bool
    stamps: tuple[Stamp | None, Stamp | None]

    @classmethod
    def read(cls, path: Path) -> IndexFile:
        """Read an index and its ids, again if an app writes them meanwhile.

        Raises:
            NotFound: There is no such file.
            StorageError: It cannot be read.
            InvalidInput: It is none, or its ids are not one for each vector.
        """
        for tries in range(_TRIES):
            before = _stamps(path)
            try:
                read = cls._read(path, before)
            except (CompatStoreError, OSError):
                if tries == _TRIES - 1 or before[0] is None:
                    raise
            else:
                if _stamps(path) == before:
                    return read
            time.sleep(_WAIT)
        expected = "files that do not change while they are read"
        raise StorageError(f"read {path}", expected=expected, fix="Try again when the app has written them.")

    @classmethod
    def _read(cls, path: Path, stamps: tuple[Stamp | None, Stamp | None]) -> IndexFile:
        operation = f"read {path}"
        if stamps[0] is None or not is_file(path):
            raise NotFound(operation, expected="an index of FAISS", found="no such file", fix="Check the path.")
        try:
            with path.open("rb"):
                index = load_faiss().read_index(str(path))
        except PermissionError as error:
            raise refused(operation, path, error) from error
        except RuntimeError as error:
            reason = str(error).rpartition("Error: ")[2] or str(error)
            raise StorageError(operation, expected="an index of FAISS", found=reason) from error
        named = ids_file(path)
        own = _own_ids(index)
        has_own = hasattr(index, "id_map") or not np.array_equal(own, np.arange(index.ntotal))
        if named is None:
            return cls(path, index, pa.array(own, pa.int64()), None, has_own, stamps)
        with readable(named, f"read {named}"):
            ids = _read_ids(named)
        if len(ids) != index.ntotal:
            found = f"{len(ids):,} ids of {index.ntotal:,} vectors"
            raise InvalidInput(f"read {named}", expected="an id for each vector", found=found)
        if has_own and (not pa.types.is_int64(ids.type) or not np.array_equal(ids.to_numpy(), own)):
            expected = "the ids of the index, in its order, since it has ids of its own"
            raise InvalidInput(f"read {named}", expected=expected, found="others", fix="Remove one of the two.")
        return cls(path, index, ids, named, has_own, stamps)

    @property
    def is_current(self) -> bool:
        """True if the files are still those that were read."""
        return _stamps(self.path) == self.stamps

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self.index.d)

    def __len__(self) -> int:
        return int(self.index.ntotal)

    @cached_property
    def kind(self) -> str:
        """Class of the index of FAISS that keeps the vectors."""
        return type(self._inner).__name__

    @cached_property
    def ids_are(self) -> Literal["file", "index", "positions"]:
        """Where ids come from."""
        if self.named is not None:
            return "file"
        return "index" if self.has_own else "positions"

    def refuse_duplicates(self) -> None:
        """Refuse ids that occur twice.

        Raises:
            InvalidInput: Some do.
        """
        counts = pc.value_counts(self.ids)
        repeated = counts.field(0).filter(pc.greater(counts.field(1), 1)).to_pylist()
        if repeated:
            operation, found = f"read the ids of {self.path}", f"{len(repeated):,} twice: {first_offenders(repeated)}"
            raise InvalidInput(operation, expected="one vector an id", found=found, duplicates=repeated)

    @cached_property
    def metric(self) -> Metric:
        """Distance of the index: an inner product of vectors that all have unit length is a cosine."""
        faiss = load_faiss()
        if self.index.metric_type == faiss.METRIC_L2:
            return "l2"
        if self.index.metric_type != faiss.METRIC_INNER_PRODUCT:
            found = f"metric {self.index.metric_type} of FAISS"
            raise InvalidInput(f"read {self.path}", expected="METRIC_L2 or METRIC_INNER_PRODUCT", found=found)
        spread = np.linspace(0, len(self) - 1, min(len(self), BATCH)).astype(np.int64)
        lengths = np.linalg.norm(self.vectors(spread), axis=1)
        return "cosine" if len(self) and bool(np.all(np.abs(lengths - 1) < UNIT)) else "dot"

    def find(self, ids: ArrowArray) -> RowNumbers:
        """Positions of ids, -1 for one that is not there."""
        try:
            found: RowNumbers = np.asarray(pc.index_in(ids.cast(self.ids.type), self.ids).fill_null(-1))
        except pa.ArrowInvalid:  # texts where ids are integers
            found = np.full(len(ids), -1)
        return found

    def positions(self, ids: ArrowArray) -> RowNumbers:
        """Positions of those ids that are there."""
        found = self.find(ids)
        return found[found >= 0]

    def vectors(self, positions: RowNumbers) -> FloatArray:
        """Vectors at positions, (n, dim) float32, as the index keeps them.

        Raises:
            InvalidInput: The index does not keep them.
        """
        if not len(positions):
            return np.empty((0, self.dim), np.float32)
        try:
            found: FloatArray = self._inner.reconstruct_batch(self._keys[positions])
        except RuntimeError as error:
            fix = "Mirror an export of the vectors: compatstore convert"
            expected = "an index that gives its vectors back"
            raise InvalidInput(
                f"read the vectors of {self.path}", expected=expected, found=self.kind, fix=fix
            ) from error
        return found

    def batches(self, names: Sequence[str]) -> Iterator[tuple[RowNumbers, ArrowTable]]:
        """Stream positions and columns of a Parquet file of ids, in batches of at most `BATCH` rows.

        Raises:
            StorageError: The app replaced that file after the index was read.
        """
        if not names:
            for start in range(0, len(self), BATCH):
                yield np.arange(start, min(start + BATCH, len(self))), None
            return
        with readable(self.path, f"read {self.named}"), pq.ParquetFile(self.named) as parquet:
            if not self.is_current:
                raise StorageError(
                    f"read {self.named}", expected="the file of the index that was read", fix="Try again."
                )
            start = 0
            for batch in parquet.iter_batches(BATCH, columns=list(dict.fromkeys(names))):
                yield np.arange(start, start + len(batch)), pa.Table.from_batches([batch])
                start += len(batch)

    @cached_property
    def column_types(self) -> dict[str, ArrowType]:
        """Name to Arrow type of the columns of a Parquet file of ids, without the ids."""
        if self.named is None or self.named.suffix != ".parquet":
            return {}
        return {field.name: field.type for field in pq.read_schema(self.named) if field.name != ID}

    @cached_property
    def _inner(self) -> Any:
        return keeper(self.index)

    @cached_property
    def _keys(self) -> RowNumbers:
        """By which the inner index finds the vector at each position."""
        inner = self._inner
        if not hasattr(inner, "invlists"):
            return np.arange(len(self))
        inner.set_direct_map_type(load_faiss().DirectMap.Hashtable)
        return _listed(inner)


def sync_folder(path: Path) -> None:
    """Make names in the folder of a file durable."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def keeper(index: Any) -> Any:
    """The index that keeps the vectors of one that keeps their ids."""
    return load_faiss().downcast_index(index.index) if hasattr(index, "id_map") else index


def _stamps(path: Path) -> tuple[Stamp | None, Stamp | None]:
    named = ids_file(path)
    return stamp(path), None if named is None else stamp(named)


def _own_ids(index: Any) -> RowNumbers:
    """Ids that an index itself has, in its order; positions if it has none."""
    if hasattr(index, "id_map"):
        kept: RowNumbers = load_faiss().vector_to_array(index.id_map)
        return kept
    return _listed(index) if hasattr(index, "invlists") else np.arange(index.ntotal)


def _listed(inner: Any) -> RowNumbers:
    """Ids in the lists of an IVF index, ascending."""
    faiss, lists = load_faiss(), inner.invlists
    sizes = ((at, lists.list_size(at)) for at in range(lists.nlist))
    parts = [faiss.rev_swig_ptr(lists.get_ids(at), size).copy() for at, size in sizes if size]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def _read_ids(file: Path) -> ArrowArray:
    """Ids of a file: (n,) string or int64."""
    if file.suffix == ".npy":
        values: Any = np.load(file, allow_pickle=False).reshape(-1)
        column = pa.array(values.tolist() if values.dtype.kind == "U" else values)
    elif file.suffix == ".json":
        column = pa.array(json.loads(file.read_text("utf-8")))
    elif file.suffix == ".txt":
        lines = file.read_bytes().decode().removesuffix("\n").split("\n")
        column = pa.array([line.removesuffix("\r") for line in lines] if file.stat().st_size else [])
    else:
        column = pq.read_table(file, columns=[ID])[ID].combine_chunks()
    kind = pa.int64() if pa.types.is_integer(column.type) else pa.string()
    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or not len(column)
    if column.null_count or not (text or pa.types.is_integer(column.type)):
        found = f"{column.null_count} nulls" if column.null_count else str(column.type)
        raise InvalidInput(f"read {file}", expected="ids that are all texts or all integers", found=found)
    return column.cast(kind)
