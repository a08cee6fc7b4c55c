"""What files named on a command line hold: one array, or items to add (images, folders, vectors) in batches."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet

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
    """
    file, asked = Path(path), f"read {path}"
    if file.suffix not in ARRAYS:
        raise InvalidInput(asked, expected=f"a file of {', '.join(ARRAYS)}", found=file.suffix or "no suffix")
    if not is_file(file):
        raise NotFound(asked, expected="a file", found="nothing", fix="Check the path.")
    try:
        array = _read_array(file, names)
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInput(asked, expected="a readable array", found=str(error)) from error
    if array is None:
        raise NotFound(asked, expected=f"an array called {' or '.join(names)}", found="several, none of that name")
    if not array.size:
        raise InvalidInput(asked, expected="at least one value", found=f"shape {array.shape}")
    return array


def _read_array(file: Path, names: tuple[str, ...]) -> npt.NDArray[Any] | None:
    if file.suffix == ".json":
        return np.asarray(json.loads(file.read_text(encoding="utf-8")), np.float32)
    loaded = np.load(file, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return loaded
    with loaded:
        chosen = next((name for name in names if name in loaded.files), None)
        if chosen is None and len(loaded.files) == 1:
            chosen = loaded.files[0]
        return None if chosen is None else np.asarray(loaded[chosen])


@dataclass(frozen=True, kw_only=True)
class Feed:
    """Items that wait to be added.

    Args:
        rows: How many.
        batch_size: Rows of a batch, by default: what is written in one commit.
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
    asked = f"add {path}"
    if is_folder(path):
        return _folder_feed(path)
    if not exists(path):
        raise NotFound(asked, expected="a file or a folder", found="nothing", fix="Check the path.")
    if path.suffix not in VECTORS:
        expected = f"a folder, or a file of {', '.join((*sorted(IMAGES), *VECTORS))}"
        raise InvalidInput(asked, expected=expected, found=path.suffix or "no suffix")
    with _readable(asked):
        if path.suffix == ".parquet":
            return _parquet_feed(path)
        if path.suffix in (".arrow", ".feather"):
            table = feather.read_table(path, memory_map=False)
            return Feed(rows=table.num_rows, batch_size=VECTOR_BATCH, read=lambda size: _slices(table, size))
        return _array_feed(path, id_type)


def _folder_feed(folder: Path) -> Feed:
    """Images below a folder: the relative path is the id, the first folder on it the label."""
    found = [(path.relative_to(folder), path) for path in find_images(folder)]
    return _image_feed(
        [
            (relative.as_posix(), path, relative.parts[0] if len(relative.parts) > 1 else None)
            for relative, path in found
        ]
    )


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
    return Feed(rows=len(images), batch_size=IMAGE_BATCH, read=lambda size: _slices(table, size))


def _parquet_feed(path: Path) -> Feed:
    with parquet.ParquetFile(path) as file:
        rows = file.metadata.num_rows

    def read(size: int) -> Iterator[Any]:
        with _readable(f"add {path}"), parquet.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=size)

    return Feed(rows=rows, batch_size=VECTOR_BATCH, read=read)


def _array_feed(path: Path, id_type: str) -> Feed:
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        rows = np.arange(len(loaded))
        columns = {"id": rows.astype(str) if id_type == "string" else rows, "vector": loaded}
    else:
        with loaded:
            columns = {_SINGULAR.get(name, name): loaded[name] for name in loaded.files}
    lengths = {name: values.shape[:1] for name, values in columns.items()}
    if len(set(lengths.values())) != 1 or () in lengths.values():
        found = ", ".join(f"{name}: {values.shape}" for name, values in columns.items()) or "no array"
        raise InvalidInput(f"add {path}", expected="arrays of equal length", found=found)
    rows_in_all = len(next(iter(columns.values())))
    return Feed(rows=rows_in_all, batch_size=VECTOR_BATCH, read=lambda size: _columns(columns, rows_in_all, size))


def _slices(table: Any, size: int) -> Iterator[Any]:
    for start in range(0, table.num_rows, size):
        yield table.slice(start, size)


def _columns(columns: Mapping[str, Any], rows: int, size: int) -> Iterator[dict[str, Any]]:
    for start in range(0, rows, size):
        yield {name: values[start : start + size] for name, values in columns.items()}


@contextmanager
def _readable(asked: str) -> Iterator[None]:
    """Say of a damaged file what is wrong with it, whichever library found out."""
    try:
        yield
    except InvalidInput:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInput(asked, expected="a readable file", found=str(error)) from error
