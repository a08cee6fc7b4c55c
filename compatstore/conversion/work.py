"""The gallery that converts a file: opened where a killed conversion left it, filled, and written out in order."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowArray, ArrowTable
from compatstore.conversion.exports import Export, NewVectors, Places
from compatstore.documents import parse
from compatstore.errors import InvalidInput, NotFound
from compatstore.gallery import Gallery
from compatstore.paths import exists, is_folder, refused
from compatstore.storage.columns import NATIVE, VersionColumns
from compatstore.upgrade.progress import Monitor, OnProgress
from compatstore.upgrade.requests.backfill import Backfill
from compatstore.upgrade.requests.gates import Gates
from compatstore.versions import EmbeddingVersion

ROW, LABEL, ORDER = "row", "label", "order"  # metadata of the gallery
BYTES = 16 << 20  # of vectors that one commit adds
IN_ORDER = "column:"


@dataclass(frozen=True)
class Extra:
    """Paths of values that an upgrade reads beside vector and text, in a record.

    Attributes:
        label: Of the labels of gates, or None.
        order: Of the numbers that order the backfill, or None.
    """

    label: str | None
    order: str | None

    @classmethod
    def of(cls, gates: Gates | None, backfill: float | Backfill | None) -> Extra:
        """What gates and backfill name."""
        labels = None if gates is None else gates.labels
        order = backfill.order if isinstance(backfill, Backfill) else None
        named = order.removeprefix(IN_ORDER) if order is not None and order.startswith(IN_ORDER) else None
        return cls(labels if isinstance(labels, str) else None, named)

    def gates(self, gates: Gates | None) -> Gates | None:
        """Gates as of the gallery."""
        return gates if gates is None or self.label is None else replace(gates, labels=LABEL)

    def backfill(self, backfill: float | Backfill | None) -> float | Backfill | None:
        """The backfill as of the gallery."""
        if self.order is None or not isinstance(backfill, Backfill):
            return backfill
        return replace(backfill, order=f"{IN_ORDER}{ORDER}")


def work_folder(out: Path) -> Path:
    """The folder beside an output in which it is made."""
    return out.with_name(f"{out.name}.conversion")


@dataclass(frozen=True)
class Conversion:
    """A conversion under way.

    Args:
        folder: Beside the output; it goes when that is there.
        export: The input.
        places: Of the parts of an item.
        extra: Of values that gates and backfill name.
    """

    folder: Path
    export: Export[Any]
    places: Places
    extra: Extra

    def open(self, source: EmbeddingVersion) -> Gallery:
        """Open the gallery that an earlier call left, or make it.

        Raises:
            InvalidInput: An earlier call converted another file, or read other parts of it.
            StorageError: The folder cannot be written.
        """
        note, said = self.folder / "conversion.json", self._described(source)
        if exists(note):
            if parse(note.read_bytes()) != said:
                found = "one of another file, or of other columns or versions"
                fix = f"Go on with these, or remove it: rm -r {self.folder}"
                expected = f"the conversion that {self.folder} has begun"
                raise InvalidInput(self.export.operation, expected=expected, found=found, fix=fix)
        else:
            try:
                self.folder.mkdir(parents=False, exist_ok=True)
                begun = note.with_suffix(".part")
                begun.write_text(json.dumps(said))
                begun.replace(note)
            except OSError as error:
                raise refused(self.export.operation, self.folder, error) from error
        at = self.folder / "gallery.lance"
        try:
            return Gallery.open(at)
        except NotFound:
            return Gallery.create(at, source, id_type=self._id_type())

    def _described(self, source: EmbeddingVersion) -> dict[str, Any]:
        path = self.export.path
        files = sorted(path.rglob("*")) if is_folder(path) else [path]
        sizes = [[str(file.relative_to(path)), *file.stat()[6:9:2]] for file in files]
        read = {"places": asdict(self.places), "extra": asdict(self.extra), "source": source.fingerprint}
        return {"path": str(path.absolute()), "files": sizes} | read

    def _id_type(self) -> str:
        if self.places.id is None:
            return "int64"
        ids = self.export.column(next(self.export.batches()), self.places.id)
        return "int64" if pa.types.is_integer(ids.type) else "string"

    def fill(
        self,
        gallery: Gallery,
        progress: OnProgress,
        should_stop: Callable[[], bool] | None,
    ) -> None:
        """Add the records that are not in the gallery yet."""
        done = len(gallery.scan([gallery.columns.id]))
        monitor = Monitor("add", 0, progress, should_stop)
        monitor.advance(done)
        id_type = pa.int64() if gallery.columns.id_type == "int64" else pa.string()
        for start, table in self._groups(id_type):
            if start + table.num_rows <= done:
                continue
            monitor.check()
            new = table.slice(max(done - start, 0))
            gallery.add(new, unembedded="keep")
            pa.default_memory_pool().release_unused()
            monitor.advance(new.num_rows)

    def _groups(self, id_type: pa.DataType) -> Iterator[tuple[int, ArrowTable]]:
        """(first row, rows) of commits."""
        rows, start, waiting = max(BYTES // (4 * self.places.dim), 1), 0, list[ArrowTable]()
        for batch in self.export.batches():
            first = start + sum(table.num_rows for table in waiting)
            waiting.append(self._items(batch, first, id_type))
            if sum(table.num_rows for table in waiting) >= rows:
                yield start, pa.concat_tables(waiting)
                start, waiting = start + sum(table.num_rows for table in waiting), []
        if waiting:
            yield start, pa.concat_tables(waiting)

    def _items(self, batch: Any, first: int, id_type: pa.DataType) -> ArrowTable:
        places, column = self.places, self.export.column
        vectors = self._vectors(column(batch, places.vector), first)
        numbers = pa.array(np.arange(first, first + len(vectors)), pa.int64())
        columns = {
            "id": numbers if places.id is None else self._cast(column(batch, places.id), id_type, places.id),
            "vector": vectors,
            ROW: numbers,
        }
        if places.text is not None:
            columns["source"] = self._cast(column(batch, places.text), pa.string(), places.text)
        if self.extra.label is not None:
            columns[LABEL] = self._cast(column(batch, self.extra.label), pa.string(), self.extra.label)
        if self.extra.order is not None:
            columns[ORDER] = self._cast(column(batch, self.extra.order), pa.float64(), self.extra.order)
        return pa.table(columns)

    def _vectors(self, lists: ArrowArray, first: int) -> ArrowArray:
        """Lists as vectors of one length.

        Raises:
            InvalidInput: A list has another length.
        """
        lengths = pc.list_value_length(lists)
        other = pc.indices_nonzero(pc.fill_null(pc.not_equal(lengths, self.places.dim), False))
        if len(other):
            row = other[0].as_py()
            found = f"{lengths[row].as_py()} in record {first + row + 1}"
            raise InvalidInput(self.export.operation, expected=f"{self.places.dim} values in each vector", found=found)
        return self._cast(lists, pa.list_(pa.float32(), self.places.dim), self.places.vector)

    def _cast(self, values: ArrowArray, kind: pa.DataType, path: str) -> ArrowArray:
        try:
            return values.cast(kind)
        except pa.ArrowException as error:
            expected = f"{kind} at {path}"
            raise InvalidInput(self.export.operation, expected=expected, found=f"{values.type}: {error}") from error

    def has_begun(self, gallery: Gallery, target: str) -> bool:
        """True if the upgrade to the target has begun."""
        return target in gallery.columns.vectors

    def write(self, gallery: Gallery, target: str, out: Path) -> dict[str, int]:
        """Write the records with the target's vectors, in their order.

        Returns:
            Numbers of `rows`, and of `native`, `transformed` and `missing` vectors.
        """
        catalog = gallery._catalog
        snapshot, columns = catalog.store.snapshot(), catalog.recorded().columns(target)
        rows = snapshot.to_table(columns=[ROW])[ROW].to_numpy()
        offsets = np.empty(len(rows), np.int64)
        offsets[rows] = np.arange(len(rows))
        counts, start = {"rows": len(rows), "native": 0, "transformed": 0, "missing": 0}, 0
        made = self.folder / f"output{out.suffix}"
        try:
            with self.export.writing(made, self.places) as write:
                for batch in self.export.batches():
                    new = _new_vectors(snapshot, columns, offsets[start : start + len(batch)])
                    write(batch, new)
                    start += len(batch)
                    _count(counts, new)
            os.replace(made, out)
        except OSError as error:
            raise refused(self.export.operation, out, error) from error
        return counts


def _new_vectors(snapshot: Any, columns: VersionColumns, offsets: np.ndarray[Any, Any]) -> NewVectors:
    values = columns.decode(snapshot.take(offsets, columns=columns.names))
    return NewVectors(
        vectors=values.vectors,
        valid=values.valid,
        origin=pa.array(values.origin, pa.string(), mask=~values.valid),
        uncertainty=pa.array(values.uncertainty, pa.float32(), mask=~values.valid | np.isnan(values.uncertainty)),
    )


def _count(counts: dict[str, int], new: NewVectors) -> None:
    natives = sum(origin == NATIVE for origin in new.origin.to_pylist())
    counts["native"] += natives
    counts["transformed"] += int(new.valid.sum()) - natives
    counts["missing"] += int((~new.valid).sum())
