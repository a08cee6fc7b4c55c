"""Sources of pairs: files, versions of a gallery and columns of its table; two of them are joined by id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from compatstore import next_step
from compatstore.arrays import ArrowTable, FloatArray, Id, Positions
from compatstore.data_files import is_list, matrix_of, read_columns, readable
from compatstore.errors import InvalidInput, NotFound, first_offenders
from compatstore.paths import is_file
from compatstore.trainers.pairs.pairs import Pairs, require_unique
from compatstore.versions import EmbeddingVersion

AnyArray = npt.NDArray[np.generic]
FilePath = str | PathLike[str]
VECTOR, ID, LABEL, SIDE = COLUMNS = ("vector", "id", "label", "side")


class GalleryOfPairs(Protocol):
    """Interface of a gallery as a source of pairs; `Gallery` has it."""

    def versions(self) -> tuple[str, ...]:
        """Names of its versions."""

    def version(self, name: str | None = None) -> EmbeddingVersion:
        """A version."""

    @property
    def columns(self) -> Any:
        """Columns of the table; of it the name of the ids' is read."""

    def scan(self, columns: Sequence[str], *, native: Sequence[str]) -> Any:
        """Rows with native vectors in all of some versions."""

    def get(self, ids: Sequence[Id], columns: Sequence[str] | None = None) -> ArrowTable:
        """Columns of some items, as an Arrow table."""

    def vectors(self, ids: Sequence[Id], version: str | None = None, *, side: bool = False) -> FloatArray:
        """(n, dim) float32, of some items, or their side-information."""


def native_ids(gallery: GalleryOfPairs, *versions: str) -> list[Id]:
    """Ids of the items with native vectors in all of some versions; of all items if none is named."""
    key = gallery.columns.id
    return list(gallery.scan([key], native=versions).to_arrow()[key].to_pylist())


@dataclass(frozen=True, kw_only=True, eq=False)
class PairSource:
    """Vectors of one side, read when the rows of the pairs are known.

    Args:
        what: Name for messages: "v1 (native)".
        rows: Number of its rows.
        ids: (n,) of its rows; None of a file that has none.
        vectors: Reads the vectors of some rows: (m, d).
        side: Reads their side-information; gives None if there is none.
        labels: Reads their labels; gives None if there are none.
        version: The version of the vectors, or None if that is not known.
        in_gallery: True if it is read from a gallery.
    """

    what: str
    rows: int
    ids: AnyArray | None
    vectors: Callable[[Positions], AnyArray]
    side: Callable[[Positions], AnyArray | None] = lambda rows: None
    labels: Callable[[Positions], AnyArray | None] = lambda rows: None
    version: EmbeddingVersion | None = None
    in_gallery: bool = False


def match_pairs(
    left: PairSource,
    right: PairSource,
    *,
    labels: Callable[[AnyArray], AnyArray] | None = None,
    side: FilePath | None = None,
    target_side: FilePath | None = None,
    head: FloatArray | None = None,
    missing: Literal["refuse", "drop"] = "refuse",
) -> tuple[Pairs, str]:
    """Join two sources by id, or two files without ids by position.

    Args:
        left: Source vectors.
        right: Target vectors.
        labels: Reads the classes of some items; by default those of either source are taken.
        side: File of side-information of the source, with `vector` and perhaps `id`; by default that of `left`.
        target_side: The same for the target.
        head: As in `Pairs`.
        missing: Handling of ids that only one of two files has.

    Returns:
        The pairs, and a sentence on how many were matched.

    Raises:
        InvalidInput: No item is on both sides, or ids are missing, of two types or not unique.
    """
    rows, others = _join(left, right, missing)
    ids = None if left.ids is None or right.ids is None else left.ids[rows]
    classes = labels(ids) if labels is not None and ids is not None else left.labels(rows)
    if classes is None:
        classes = right.labels(others)
    pairs = Pairs(
        left.vectors(rows),
        right.vectors(others),
        side=_side(left, side, rows),
        target_side=_side(right, target_side, others),
        labels=classes,
        head=head,
        ids=ids,
        source_version=left.version,
        target_version=right.version,
    )
    counts = f"{left.rows} items of {left.what}, {right.rows} of {right.what}"
    return pairs, f"{len(pairs)} pairs, joined by {'position' if ids is None else 'id'}: {counts}"


def _join(left: PairSource, right: PairSource, missing: str) -> tuple[Positions, Positions]:
    """Rows of both sides that belong together, in the order of the left one."""
    operation, in_gallery = f"pair {left.what} with {right.what}", left.in_gallery or right.in_gallery
    for one in (left, right):
        if one.ids is not None:
            require_unique(f"pair the vectors of {one.what}", one.ids)
        elif in_gallery:
            raise InvalidInput(f"join {one.what} with a gallery", expected="a column or array `id`", found="none")
    if left.ids is None or right.ids is None:
        if left.rows != right.rows:
            expected, fix = f"{left.rows} rows", "Give both files ids."
            raise InvalidInput("pair rows by position", expected=expected, found=f"{right.rows}", fix=fix)
        return np.arange(left.rows), np.arange(left.rows)
    if left.rows and right.rows and left.ids.dtype.kind != right.ids.dtype.kind:
        some, others = (first_offenders(ids.tolist(), 2) for ids in (left.ids, right.ids))
        raise InvalidInput(operation, expected=f"ids of one type, as {some}", found=others)
    if missing == "refuse" and not in_gallery:
        for one, known, needed in ((left, left.ids, right.ids), (right, right.ids, left.ids)):
            lacking = needed[~np.isin(needed, known)].tolist()
            if lacking:
                fix = next_step.either(shell="--drop-missing", python='missing="drop"')
                operation, found = f"pair rows by id with {one.what}", f"missing: {first_offenders(lacking)}"
                expected, fix = "every id of the other file", f"Pair the others: {fix}."
                raise InvalidInput(operation, expected=expected, found=found, fix=fix)
    _, rows, matches = np.intersect1d(left.ids, right.ids, assume_unique=True, return_indices=True)
    if not len(rows):
        found, fix = f"none among {left.rows} and {right.rows}", _elsewhere() if in_gallery else ""
        raise InvalidInput(operation, expected="items that have both", found=found, fix=fix)
    order = np.argsort(rows)
    return rows[order], matches[order]


def _side(found: PairSource, path: FilePath | None, rows: Positions) -> AnyArray | None:
    """Side-information of the named file, or else of the source itself."""
    if path is None:
        return found.side(rows)
    beside, operation = from_file(path), f"read side-information from {fspath(path)}"
    if beside.ids is None or found.ids is None:
        if beside.rows != found.rows or found.in_gallery:
            expected = f"ids, or {found.rows} rows as in {found.what}"
            raise InvalidInput(operation, expected=expected, found=f"{beside.rows} rows without ids")
        return beside.vectors(rows)
    require_unique(operation, beside.ids)
    places, wanted = {item: row for row, item in enumerate(beside.ids.tolist())}, found.ids[rows].tolist()
    missing = [item for item in wanted if item not in places]
    if missing:
        raise InvalidInput(operation, expected="all ids of the pairs", found=f"no {first_offenders(missing)}")
    return beside.vectors(np.array([places[item] for item in wanted]))


def _elsewhere() -> str:
    sides = next_step.either(shell="--pairs SOURCE TARGET", python="source and target")
    versions = next_step.either(shell="--from and --to", python="source_version and target_version")
    given = "a file with ids, or a column of the gallery, with vectors of the other's items"
    return f"For one of {sides} name {given}; {versions} name their versions."


def from_gallery(gallery: GalleryOfPairs, name: FilePath, version: str | None = None) -> PairSource:
    """A version of a gallery (its native vectors), a column of lists of numbers, or a file: the first of that name.

    Args:
        gallery: The gallery.
        name: Of the version or column, or a path.
        version: Version of the vectors, if `name` is a column or a file.

    Raises:
        NotFound: There is none of these, or the version has no vectors in the gallery.
        InvalidInput: The file cannot be read, or the version is not `version`.
    """
    text, empty = fspath(name), gallery.get([])
    known = None if version is None else gallery.version(version)
    if text in gallery.versions():
        if version not in (None, text):
            raise InvalidInput(f"train on {text}", expected=f"vectors of {version}", found=f"the version {text} itself")
        return _of_version(gallery, text)
    if text in empty.column_names:
        return _of_column(gallery, text, known)
    if is_file(text):
        return from_file(text, known)
    vectors = [field.name for field in empty.schema if is_list(field.type) and field.name not in gallery.versions()]
    expected = f"a version ({', '.join(gallery.versions())}), a column of vectors ({', '.join(vectors)}) or a file"
    raise NotFound(f"train on {text}", expected=expected, found="none of that name")


def labels_of(gallery: GalleryOfPairs, column: str) -> Callable[[AnyArray], AnyArray]:
    """Reads the classes of items from a column."""

    def read(ids: AnyArray) -> AnyArray:
        values = gallery.get(ids.tolist(), [column]).column(column)
        if values.null_count:
            operation = f"train with labels {column}"
            raise InvalidInput(operation, expected="one for every pair", found=f"{values.null_count} nulls")
        return np.asarray(values.to_pylist())

    return read


def _of_version(gallery: GalleryOfPairs, name: str) -> PairSource:
    version = gallery.version(name)
    try:
        ids = np.asarray(native_ids(gallery, name))
    except NotFound as error:
        if error.kind != "version":
            raise
        expected = "a version with vectors in the gallery"
        raise NotFound(f"train on {name}", expected=expected, found="none", fix=_elsewhere(), kind="version") from error

    def side(rows: Positions) -> AnyArray | None:
        values = None if version.side_dim is None else gallery.vectors(ids[rows].tolist(), name, side=True)
        return None if values is None or np.isnan(values).any() else values

    return PairSource(
        what=f"{name} (native)",
        rows=len(ids),
        ids=ids,
        vectors=lambda rows: gallery.vectors(ids[rows].tolist(), name),
        side=side,
        version=version,
        in_gallery=True,
    )


def _of_column(gallery: GalleryOfPairs, name: str, version: EmbeddingVersion | None) -> PairSource:
    every = native_ids(gallery)
    ids = np.asarray(every)[gallery.get(every, [name]).column(name).is_valid().to_numpy()]

    def vectors(rows: Positions) -> FloatArray:
        column, operation = gallery.get(ids[rows].tolist(), [name]).column(name), f"train on column {name}"
        values = matrix_of(column.combine_chunks(), name, operation) if is_list(column.type) else None
        if values is None or values.dtype.kind not in "fiu":
            raise InvalidInput(operation, expected="a column of lists of numbers", found=str(column.type))
        return np.asarray(values, np.float32)

    return PairSource(what=f"column {name}", rows=len(ids), ids=ids, vectors=vectors, version=version, in_gallery=True)


def from_file(path: FilePath, version: EmbeddingVersion | None = None) -> PairSource:
    """A file of vectors, perhaps with ids, labels and side-information; errors as of `read_vectors`."""
    arrays = read_vectors(path)
    return PairSource(
        what=fspath(path),
        rows=len(arrays[VECTOR]),
        ids=arrays.get(ID),
        vectors=lambda rows: arrays[VECTOR][rows],
        side=lambda rows: arrays[SIDE][rows] if SIDE in arrays else None,
        labels=lambda rows: arrays[LABEL][rows] if LABEL in arrays else None,
        version=version,
    )


def read_vectors(path: FilePath) -> dict[str, AnyArray]:
    """Read `vector`, and if present `id`, `label` and `side`, from a file.

    Args:
        path: An .npy of one matrix; an .npz, .parquet, .arrow, .ipc or .feather with named columns.

    Raises:
        InvalidInput: The file is missing, of an unknown type, damaged, or has no column of vectors.
    """
    file, operation = Path(path), f"read vectors from {path}"
    if file.suffix not in SUFFIXES:
        raise InvalidInput(operation, expected=f"one of {sorted(SUFFIXES)}", found=repr(file.suffix))
    with readable(file, operation):
        columns, names = read_columns(file, operation, COLUMNS)
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    for name, values in columns.items():
        if isinstance(values, list) and None in values:
            raise InvalidInput(
                operation, expected=f"a value of {name!r} in each row", found=f"{values.count(None)} nulls"
            )
    if VECTOR not in arrays:
        raise InvalidInput(operation, expected=f"a column {VECTOR!r}", found=f"{names}")
    return arrays


SUFFIXES = (".npy", ".npz", ".parquet", ".arrow", ".ipc", ".feather")
