"""Pairs out of a gallery: each side is a version's native vectors, a column of the table, or a file joined by id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from compatstore import next_step
from compatstore.arrays import ArrowTable, FloatArray, Id
from compatstore.errors import InvalidInput, NotFound, first_offenders
from compatstore.paths import is_file
from compatstore.trainers.pairs.pairs import Pairs, require_unique
from compatstore.trainers.pairs.vector_files import as_array, is_list, read_vectors
from compatstore.versions import EmbeddingVersion

IdArray = npt.NDArray[np.generic]
COLUMNS = ("vector", "id", "label", "side")


class GalleryOfPairs(Protocol):
    """What is read of a gallery: `Gallery` is one."""

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
    """Ids of the items with native vectors in all of some versions; of all items where none is named."""
    key = gallery.columns.id
    return list(gallery.scan([key], native=versions).to_arrow()[key].to_pylist())


@dataclass(frozen=True, kw_only=True, eq=False)
class Matched:
    """Pairs, and how many items each side had.

    Args:
        pairs: The items that both sides have.
        source: Name of the source's vectors, for messages: "v1 (native)".
        target: The same for the target's vectors.
        source_items: Items with a source vector.
        target_items: Items with a target vector.
    """

    pairs: Pairs
    source: str
    target: str
    source_items: int
    target_items: int

    def __str__(self) -> str:
        return (
            f"{len(self.pairs)} pairs, joined by id: {self.source_items} items of {self.source}, "
            f"{self.target_items} of {self.target}"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Side:
    """Vectors of one side, read when the ids of the pairs are known.

    Args:
        what: Name for messages.
        ids: (n,) of the items that have one.
        vectors: Reads the vectors of some of the items: (m, d).
        side: The same of side-information, or None.
        labels: The same of labels, or None.
        version: The version of the vectors, or None where that is not known.
    """

    what: str
    ids: IdArray
    vectors: Callable[[IdArray], FloatArray]
    side: Callable[[IdArray], Any] | None = None
    labels: Callable[[IdArray], Any] | None = None
    version: EmbeddingVersion | None = None


def _elsewhere() -> str:
    sides, versions = next_step.either(
        shell="Of --pairs SOURCE TARGET;--from and --to",
        python="Of source and target;source_version and target_version",
    ).split(";")
    return (
        f"{sides} name for one a file with ids, or a column of the gallery, with vectors of the other's items; "
        f"{versions} say which versions they are of."
    )


def match_pairs(
    gallery: GalleryOfPairs,
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    labels: str | None = None,
    side: str | PathLike[str] | None = None,
    target_side: str | PathLike[str] | None = None,
    head: FloatArray | None = None,
    source_version: str | None = None,
    target_version: str | None = None,
) -> Matched:
    """Join by id the vectors of a gallery, or of a gallery and a file; read-only.

    Args:
        gallery: The gallery.
        source: A version of it (its native vectors), a column of lists of numbers, or a file with `id` and `vector`
            (Parquet, Arrow, Feather or npz; perhaps `label` and `side`). A name that is several of these is the first.
        target: The same for the target.
        labels: Column of classes; by default the `label` of a file, where one has it.
        side: File of side-information of the source, with `id` and `vector`; by default that of the version or file.
        target_side: The same for the target.
        head: As in `Pairs`.
        source_version: Version that the source vectors are of, where `source` is a column or a file.
        target_version: The same for the target.

    Raises:
        NotFound: A name is neither a version, nor a column, nor a file. A version has no vectors in the gallery.
        InvalidInput: No item is on both sides, a file has no ids, or a column holds no vectors or lacks labels.
    """
    left = _read(gallery, source, source_version)
    right = _read(gallery, target, target_version)
    if len(left.ids) and len(right.ids) and left.ids.dtype.kind != right.ids.dtype.kind:
        raise InvalidInput(
            f"pair {left.what} with {right.what}",
            expected=f"ids of one type, as {first_offenders(left.ids.tolist(), 2)}",
            found=f"{first_offenders(right.ids.tolist(), 2)}",
        )
    ids = left.ids[np.isin(left.ids, right.ids)]
    if not len(ids):
        raise InvalidInput(
            f"pair {left.what} with {right.what}",
            expected="items that have both",
            found=f"none among {len(left.ids)} and {len(right.ids)}",
            fix=_elsewhere(),
        )
    given = left.labels or right.labels
    return Matched(
        pairs=Pairs(
            left.vectors(ids),
            right.vectors(ids),
            side=_side(left, side, ids),
            target_side=_side(right, target_side, ids),
            labels=_labels(gallery, labels, ids) if labels else None if given is None else given(ids),
            head=head,
            ids=ids,
            source_version=left.version,
            target_version=right.version,
        ),
        source=left.what,
        target=right.what,
        source_items=len(left.ids),
        target_items=len(right.ids),
    )


def names_a_file(gallery: GalleryOfPairs, name: str) -> bool:
    """Whether a name is that of a file, and of no version or column."""
    return name not in gallery.versions() and name not in gallery.get([]).column_names and is_file(name)


def _read(gallery: GalleryOfPairs, name: str | PathLike[str], version: str | None) -> _Side:
    text, columns = fspath(name), gallery.get([]).column_names
    known = None if version is None else gallery.version(version)
    if text in gallery.versions():
        if version not in (None, text):
            raise InvalidInput(f"train on {text}", expected=f"vectors of {version}", found=f"the version {text} itself")
        return _of_version(gallery, text)
    if text in columns:
        return _of_column(gallery, text, known)
    if is_file(text):
        return _of_file(text, known)
    schema = gallery.get([]).schema
    vectors = ", ".join(field.name for field in schema if is_list(field.type) and field.name not in gallery.versions())
    raise NotFound(
        f"train on {text}",
        expected=f"a version ({', '.join(gallery.versions())}), a column of vectors ({vectors}) or a file",
        found="none of that name",
    )


def _of_version(gallery: GalleryOfPairs, name: str) -> _Side:
    version = gallery.version(name)
    try:
        ids = native_ids(gallery, name)
    except NotFound as error:
        if error.kind != "version":
            raise
        expected = "a version with vectors in the gallery"
        raise NotFound(f"train on {name}", expected=expected, found="none", fix=_elsewhere(), kind="version") from error

    def side(ids: IdArray) -> Any:
        values = gallery.vectors(ids.tolist(), name, side=True)
        return None if np.isnan(values).any() else values

    return _Side(
        what=f"{name} (native)",
        ids=np.asarray(ids),
        vectors=lambda ids: gallery.vectors(ids.tolist(), name),
        side=None if version.side_dim is None else side,
        version=version,
    )


def _of_column(gallery: GalleryOfPairs, name: str, version: EmbeddingVersion | None) -> _Side:
    all_ids = native_ids(gallery)
    column = gallery.get(all_ids, [name]).column(name)
    return _Side(
        what=f"column {name}",
        ids=np.asarray(all_ids)[column.is_valid().to_numpy()],
        vectors=lambda ids: _matrix(name, gallery.get(ids.tolist(), [name]).column(name)),
        version=version,
    )


def _of_file(path: str, version: EmbeddingVersion | None) -> _Side:
    file = read_vectors(path, *COLUMNS)
    ids = _ids_of(path, file.ids)
    rows = {item: row for row, item in enumerate(ids.tolist())}

    def of(values: Any) -> Callable[[IdArray], Any]:
        return lambda wanted: values[[rows[item] for item in wanted.tolist()]]

    return _Side(
        what=path,
        ids=ids,
        vectors=of(file.vectors),
        side=None if file.side is None else of(file.side),
        labels=None if file.labels is None else of(file.labels),
        version=version,
    )


def _side(found: _Side, path: str | PathLike[str] | None, ids: IdArray) -> Any:
    """Side-information: of the file that is named, or else what the side itself has."""
    if path is None:
        return None if found.side is None else found.side(ids)
    beside = _of_file(fspath(path), None)
    missing = ids[~np.isin(ids, beside.ids)].tolist()
    if missing:
        asked = f"read side-information from {fspath(path)}"
        raise InvalidInput(asked, expected="all ids of the pairs", found=f"no {first_offenders(missing)}")
    return beside.vectors(ids)


def _labels(gallery: GalleryOfPairs, column: str, ids: IdArray) -> IdArray:
    values = gallery.get(ids.tolist(), [column]).column(column)
    if values.null_count:
        asked = f"train with labels {column}"
        raise InvalidInput(asked, expected="one for every pair", found=f"{values.null_count} nulls")
    return np.asarray(values.to_pylist())


def _matrix(name: str, column: Any) -> FloatArray:
    asked = f"train on column {name}"
    try:
        values = as_array(name, column.combine_chunks())
    except ValueError as error:
        raise InvalidInput(asked, expected="vectors of one length", found=str(error)) from error
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise InvalidInput(asked, expected="a column of lists of numbers", found=str(column.type))
    return np.asarray(values, np.float32)


def _ids_of(path: str, ids: IdArray | None) -> IdArray:
    if ids is None:
        raise InvalidInput(f"join {path} with a gallery", expected="a column or array `id`", found="none")
    require_unique(f"join {path} with a gallery", ids)
    return ids
