"""Contents of files that a command line names: one array, or items to add (images, folders, vectors) in batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet

from compatstore.data_files import read_columns, readable, require_file
from compatstore.encoders.images import SUFFIXES as IMAGES
from compatstore.encoders.images import find_images
from compatstore.errors import InvalidInput, NotFound
from compatstore.paths import exists, is_file, is_folder

ARRAYS = (".json", ".npy", ".npz")
IMAGE_BATCH = 1_024
VECTOR_BATCH = 32_768
VECTORS = (".parquet", ".arrow", ".feather", ".npz", ".npy")
_SINGULAR = {"ids": "id", "vectors": "vector", "sources": "source", "sides": "side", "labels": "label"}


def read_array(path: str, *names: str) -> npt.NDArray[Any]:
    """Read an array.

    Args:
        path: An .npy, an .npz, or a .json of (nested) lists of numbers.
        names: Keys of an .npz, the first that is there counts; an .npz of one array needs none of them.

    Returns:
        The array, at least one value. Numbers of JSON are float32.

    Raises:
        NotFound: There is no such file, or no such key.
        InvalidInput: The file is of another type, damaged or empty.
        StorageError: This process may not read the file.
    """
    file, operation = Path(path), f"read {path}"
    require_file(file, operation, ARRAYS)
    with readable(file, operation):
        if file.suffix.lower() == ".json":
            arrays = {"": np.asarray(json.loads(file.read_text(encoding="utf-8")), np.float32)}
        else:
            arrays, _ = read_columns(file, operation)
    array = next((arrays[name] for name in names if name in arrays), None)
    if array is None and len(arrays) == 1:
        (array,) = arrays.values()
    if array is None:
        expected = f"an array called {' or '.join(names)}"
        raise NotFound(operation, expected=expected, found="several, none of that name")
    if not array.size:
        raise InvalidInput(operation, expected="at least one value", found=f"shape {array.shape}")
    return array


@dataclass(frozen=True, kw_only=True)
class Feed:
    """Items that wait to be added.

    Args:
        rows: Number of rows.
        batch_size: Rows of a batch, by default as many as one commit writes.
        read: Batch size -> batches, as `Gallery.add` takes them.
    """

    rows: int
    batch_size: int
    read: Callable[[int], Iterator[Any]]


def open_feeds(paths: Sequence[str], id_type: str) -> list[Feed]:
    """Open all that was named, before anything is written.

    Args:
        paths: Images, folders of images, Parquet, Arrow or Feather files with the columns `id`, `vector` and/or
            `source`, `side` and any other, .npz with arrays of these names, or .npy of (n, dim) vectors whose ids are
            0 to n - 1. All images named one by one are one feed.
        id_type: Of the gallery, "string" or "int64".

    Raises:
        NotFound: A path does not exist, or a folder holds no image.
        InvalidInput: A file is of another type or damaged.
    """
    files = [Path(path) for path in paths]
    images = [path for path in files if path.suffix.lower() in IMAGES and is_file(path)]
    feeds = [_open(path, id_type) for path in files if path not in images]
    return [*feeds, *([_image_feed([(path.name, path, None) for path in images])] if images else [])]


def _open(path: Path, id_type: str) -> Feed:
    operation = f"add {path}"
    if is_folder(path):
        found = [(file.relative_to(path), file) for file in find_images(path)]
        return _image_feed([(name.as_posix(), file, name.parts[0] if name.parts[1:] else None) for name, file in found])
    if not exists(path):
        raise NotFound(operation, expected="a file or a folder", found="nothing", fix="Check the path.")
    require_file(path, operation, (*sorted(IMAGES), *VECTORS))
    kind = path.suffix.lower()
    with readable(path, operation):
        if kind == ".parquet":
            return _parquet_feed(path)
        if kind in (".arrow", ".feather"):
            table = feather.read_table(path, memory_map=False)
            return _sliced(table.num_rows, VECTOR_BATCH, table.slice)
        return _array_feed(path, id_type)


def _image_feed(images: Sequence[tuple[str, Path, str | None]]) -> Feed:
    """Make columns of (id, path, label or None)."""
    labels = [label for _, _, label in images]
    columns: dict[str, list[Any]] = {
        "id": [name for name, _, _ in images],
        "source": [str(path.absolute()) for _, path, _ in images],
        **({"label": labels} if any(labels) else {}),
    }
    # Arrow, so that a batch without any label has the same type.
    table = pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
    return _sliced(len(images), IMAGE_BATCH, table.slice)


def _parquet_feed(path: Path) -> Feed:
    with parquet.ParquetFile(path) as file:
        rows = file.metadata.num_rows

    def read(size: int) -> Iterator[Any]:
        with readable(path, f"add {path}"), parquet.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=size)

    return Feed(rows=rows, batch_size=VECTOR_BATCH, read=read)


def _array_feed(path: Path, id_type: str) -> Feed:
    """Arrays of an .npz by their names, or the vectors of an .npy with their numbers as ids."""
    arrays, _ = read_columns(path, f"add {path}")
    columns = {_SINGULAR.get(name, name): array for name, array in arrays.items()}
    if path.suffix.lower() == ".npy":
        rows = np.arange(len(columns["vector"]))
        columns["id"] = rows.astype(str) if id_type == "string" else rows
    lengths = {name: values.shape[:1] for name, values in columns.items()}
    if len(set(lengths.values())) != 1 or () in lengths.values():
        found = ", ".join(f"{name}: {values.shape}" for name, values in columns.items()) or "no array"
        raise InvalidInput(f"add {path}", expected="arrays of equal length", found=found)
    in_all = len(next(iter(columns.values())))
    return _sliced(
        in_all,
        VECTOR_BATCH,
        lambda start, size: {name: values[start : start + size] for name, values in columns.items()},
    )


def _sliced(rows: int, batch_size: int, take: Callable[[int, int], Any]) -> Feed:
    """A feed of rows in memory, of which `take` gives those from a start, as many as a batch has."""
    return Feed(
        rows=rows, batch_size=batch_size, read=lambda size: (take(start, size) for start in range(0, rows, size))
    )
