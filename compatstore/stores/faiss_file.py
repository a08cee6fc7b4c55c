"""A FAISS index in a file, as a store: `faiss:docs.faiss`, with the ids in a file beside it (`faiss_index.py`).

Target vectors of v2 are staged in `docs_v2.faiss.staged`, whatever ends the process, and folded into `docs_v2.faiss`
and its own file of ids when the store is closed, searched or switched. A switch puts these two in the place of the
app's, which are kept as `docs_before_v2.faiss` (`file_switch.py`). Vectors that are written after it go into the index
that the app reads, as a whole new file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowTable, ArrowType, FloatArray, Id, RowNumbers
from compatstore.errors import InvalidInput, NotFound, StorageError, UpgradeError
from compatstore.in_memory.nearest import as_compared, as_distances
from compatstore.paths import refused
from compatstore.stores.address import Address
from compatstore.stores.faiss_fold import fold, replace_vectors
from compatstore.stores.faiss_index import EXACT, IndexFile, Stamp, stamp
from compatstore.stores.file_switch import FileSwitch
from compatstore.stores.staged import Staged
from compatstore.stores.store import (
    BATCH,
    ID,
    MADE_FROM,
    SOURCE,
    VECTOR,
    Description,
    Parts,
    digests,
    matrix,
    vector_column,
)
from compatstore.versions import Metric

UNNAMED = Parts()


class FaissFile:
    """An index file and its ids; see `VectorStore`.

    Args:
        address: With the path of the index.
    """

    scheme: ClassVar[str] = "faiss"

    def __init__(self, address: Address) -> None:
        self._address, self._path = address, Path(address.place)
        self._read: dict[Path, IndexFile] = {}
        self._targets: dict[str, Staged] = {}
        self._parts = address.parts

    def describe(self, wanted: Parts = UNNAMED) -> Description:
        """Describe the index; see `VectorStore.describe`."""
        app = self._app()
        if wanted.id not in ("", ID) or wanted.vector:
            expected = f"ids in a column {ID}, and vectors without a name"
            raise NotFound(f"describe {self._address}", expected=expected, found=f"{wanted.id} {wanted.vector}".strip())
        self._parts = wanted
        app.vectors(np.arange(min(len(app), 1)))  # an index that does not give vectors back is refused
        return Description(
            address=f"{self._address}",
            parts=Parts(metadata=tuple(name for name, kind in app.column_types.items() if _is_plain(kind))),
            id_type="int64" if pa.types.is_int64(app.ids.type) else "string",
            dim=app.dim,
            metric=app.metric,
            rows=len(app),
            columns={ID: f"{app.ids.type}", VECTOR: app.kind, **{n: f"{kind}" for n, kind in app.column_types.items()}},
            beside="file",
            switch="file",
            is_atomic=app.named is None,
            is_conditional=False,
            notes=tuple(_notes(app)),
        )

    def scan(self, parts: Parts, target: str | None = None) -> Iterator[ArrowTable]:
        """Stream the rows of the files as they were when it began; see `VectorStore.scan`."""
        app = self._app()
        names = self._columns(app, parts)
        for positions, beside in app.batches(tuple(names.values())):
            yield _with(_rows(app, positions), beside, names)

    def read(self, ids: Sequence[Id], parts: Parts) -> ArrowTable:
        """Read some rows; see `VectorStore.read`."""
        app = self._app()
        names, positions = self._columns(app, parts), np.unique(app.positions(pa.array(ids)))
        found = list[ArrowTable]()
        for block, beside in app.batches(tuple(names.values())):
            inside = positions[(positions >= block[0]) & (positions <= block[-1])]
            if len(inside) or not found:
                some = None if beside is None else beside.take(pa.array(inside - block[0]))
                found.append(_with(_rows(app, inside), some, names))
        return pa.concat_tables(found) if found else _rows(app, positions)

    def has(self, target: str) -> bool:
        """True if a file of the target's is there."""
        places = [self._staged_path(target), self._place(target), self._place(f"before_{target}")]
        return any(stamp(path) is not None for path in places)

    def prepare(self, target: str, dim: int, metric: Metric) -> None:
        """Make the file of staged vectors; see `VectorStore.prepare`."""
        if not self._is_prepared(target) or not self._staged(target).fact("dim"):
            self._targets[target] = Staged(self._staged_path(target))
            self._targets[target].note(dim=f"{dim}", metric=metric)

    def write(self, target: str, rows: ArrowTable) -> Sequence[Id]:
        """Stage target vectors of rows that the app still has as they were; see `VectorStore.write`.

        After a switch they replace those of all rows that the app has, whose vectors are the target's by then.
        """
        staged, app, is_switched = self._staged(target), self._app(), self.is_switched(target)
        positions = app.find(rows[ID])
        there = np.flatnonzero(positions >= 0)
        if not is_switched:
            now = digests(vector_column(app.vectors(positions[there]), app.dim))
            made_from = digests(rows[MADE_FROM])
            there = there[[made_from[at] == digest for at, digest in zip(there, now, strict=True)]]
        kept: list[Id] = rows[ID].take(pa.array(there)).to_pylist()
        vectors = as_compared(matrix(rows[VECTOR])[there], staged.metric)
        if is_switched:
            with self._files(f"write {self._path}"):
                replace_vectors(app, positions[there], vectors, staged.metric)
        else:
            staged.put(kept, vectors, folded="")
        return kept

    def read_target(self, target: str, ids: Sequence[Id] | None = None) -> Iterator[ArrowTable]:
        """Stream target vectors: those that are staged, after a switch those that the app reads."""
        staged, app = self._staged(target), self._app()
        if not self.is_switched(target):
            yield from staged.tables(app.ids.type, int(staged.fact("dim")), ids)
            return
        positions = np.arange(len(app)) if ids is None else app.positions(pa.array(ids))
        for start in range(0, len(positions), BATCH):
            yield _rows(app, positions[start : start + BATCH])

    def remove(self, target: str, ids: Sequence[Id]) -> None:
        """Remove staged vectors; see `VectorStore.remove`.

        Raises:
            UpgradeError: The app reads the target: its rows are the app's to delete.
        """
        staged = self._staged(target)
        if self.is_switched(target):
            operation, expected = f"remove vectors of {target}", "an app that does not read them"
            raise UpgradeError(operation, expected=expected, found="a switch to them", fix="Switch back first.")
        staged.remove(ids, folded="")

    def switch(self, target: str) -> None:
        """Put the target's files in the place of the app's, which are kept; see `VectorStore.switch`.

        Raises:
            UpgradeError: Ids are positions, and a target vector is missing.
            StorageError: The app wrote its files meanwhile.
        """
        with self._files(f"switch {self._path.name} to {target}"):
            self._switch(target).forward(lambda: self._fold(target))

    def switch_back(self, target: str) -> None:
        """Put the app's own files back in their place; see `VectorStore.switch_back`.

        Raises:
            UpgradeError: They were dropped.
        """
        with self._files(f"switch {self._path.name} back from {target}"):
            if self._switch(target).state == "switched":
                for table in self.read_target(target):  # with what the app wrote since
                    self._staged(target).put(table[ID].to_pylist(), matrix(table[VECTOR]))
                self._keep_added_rows(target)
            self._switch(target).back()

    def is_switched(self, target: str) -> bool:
        """True if the target's files are in the place of the app's."""
        return self._is_prepared(target) and self._switch(target).is_made

    def app_change(self, target: str) -> str:
        """The file that an app would read instead."""
        return f"Read {self._place(target)} in place of {self._path}."

    def place(self, target: str) -> tuple[str, Parts]:
        """Address and parts of the target after a switch: those of the app."""
        return f"{self._address}", self._parts

    def before(self, target: str) -> str | None:
        """None: the app's own vectors are not in the rows of the target; see `VectorStore.before`."""
        return None

    def drop(self, target: str) -> None:
        """Remove the target's files; see `VectorStore.drop`.

        Raises:
            UpgradeError: The app reads the target.
        """
        if not self._is_prepared(target):
            return
        operation, switch = f"drop {target} of {self._path.name}", self._switch(target)
        if switch.state not in ("", "final"):
            expected, fix = "an app that does not read it", "Switch back first."
            raise UpgradeError(operation, expected=expected, found=switch.state, fix=fix)
        with self._files(operation):
            if not switch.state:  # else they are the app's by now
                switch.remove(switch.place)
                switch.remove(switch.before)
            self._targets.pop(target).close()
            switch.staged.path.unlink(missing_ok=True)

    def drop_source(self, target: str) -> None:
        """Remove the app's files of before the switch; see `VectorStore.drop_source`.

        Raises:
            UpgradeError: There was no switch.
        """
        with self._files(f"drop what {self._path.name} was"):
            self._switch(target).finish()

    def search(
        self, target: str | None, query: FloatArray, k: int, where: str | None = None
    ) -> tuple[Sequence[Id], FloatArray]:
        """Nearest rows by the index; of a target that the app does not read, by its folded index."""
        operation = f"search {self._path.name}"
        if where is not None:
            raise InvalidInput(operation, expected="no condition: an index of FAISS has none", found=where)
        if target is None or self.is_switched(target):
            searched = self._app()
            metric = searched.metric
        else:
            self._fold(target)
            searched, metric = self._index(self._place(target)), self._staged(target).metric
        queries = as_compared(np.asarray(query, np.float32).reshape(1, -1), metric)
        if queries.shape[1] != searched.dim:
            raise InvalidInput(operation, expected=f"a query of {searched.dim} values", found=f"{queries.shape[1]}")
        found, labels = searched.index.search(queries, max(min(k, len(searched)), 1))
        there = labels[0] >= 0
        labels = labels[0][there]
        ids = labels.tolist() if searched.has_own else searched.ids.take(pa.array(labels)).to_pylist()
        return ids, as_distances(found[0][there], metric)

    def close(self) -> None:
        """Fold what was staged, and let go of the files."""
        try:
            for target, staged in self._targets.items():
                if not staged.fact("state") and not staged.fact("folded") and len(staged):
                    self._fold_if_possible(target)
        finally:
            for staged in self._targets.values():
                staged.close()
            self._targets.clear()
            self._read.clear()

    def _app(self) -> IndexFile:
        """The app's files as they are now."""
        return self._index(self._path)

    def _index(self, path: Path) -> IndexFile:
        known = self._read.get(path)
        if known is None or not known.is_current:
            self._read.pop(path, None)  # before the other is read into memory
            known = IndexFile.read(path)
            known.refuse_duplicates()
            self._read[path] = known
        return known

    def _columns(self, app: IndexFile, parts: Parts) -> dict[str, str]:
        """Name in a scan -> column of the file of ids."""
        names = {name: name for name in parts.metadata}
        if parts.source is not None:
            names = {SOURCE: parts.source, **names}
        unknown = [name for name in names.values() if not _is_plain(app.column_types.get(name))]
        if unknown:
            beside = f"columns of {app.named}: {', '.join(app.column_types)}" if app.column_types else "ids alone"
            raise InvalidInput(f"read {self._path}", expected=beside, found=", ".join(unknown))
        return names

    def _place(self, target: str) -> Path:
        return self._path.with_name(f"{self._path.stem}_{target}{self._path.suffix}")

    def _staged_path(self, target: str) -> Path:
        return self._place(target).with_name(f"{self._place(target).name}.staged")

    def _is_prepared(self, target: str) -> bool:
        return stamp(self._staged_path(target)) is not None

    def _staged(self, target: str) -> Staged:
        """Staged vectors of a target; refused if there are none."""
        path = self._staged_path(target)
        if stamp(path) is None:
            operation, fix = f"open {target} beside {self._path}", "Push the target's vectors first."
            raise UpgradeError(operation, expected=f"{path.name}", found="no such file", fix=fix)
        if target not in self._targets:
            self._targets[target] = Staged(path)
        return self._targets[target]

    def _switch(self, target: str) -> FileSwitch:
        return FileSwitch(self._staged(target), self._path, self._place(target), self._place(f"before_{target}"))

    def _keep_added_rows(self, target: str) -> None:
        """Keep the files that the app reads, if it added rows to them since a switch, as they are not in its others."""
        switch, app = self._switch(target), self._app()
        before = self._index(switch.before)
        if (before.find(app.ids) < 0).any():
            switch.keep(self._place(f"after_{target}"))

    def _fold(self, target: str) -> tuple[Stamp | None, ...]:
        """Make the target's files if they are not of now; return the stamps of the app's."""
        staged, app, place = self._staged(target), self._app(), self._place(target)
        done = json.dumps(app.stamps)
        if staged.fact("folded") != done or stamp(place) is None:
            with self._files(f"write {place}"):
                fold(staged, app, place)
            staged.note(folded=done)
        return app.stamps

    def _fold_if_possible(self, target: str) -> None:
        """Make the target's files, unless a vector is missing for some position, or the app writes its own now."""
        try:
            with suppress(UpgradeError):
                self._fold(target)
        except StorageError:
            app = self._read.get(self._path)
            if app is not None and app.is_current:
                raise

    @contextmanager
    def _files(self, operation: str) -> Iterator[None]:
        """Re-raise errors of the system with the operation."""
        try:
            yield
        except OSError as error:
            raise refused(operation, self._path.parent, error) from error


def _notes(app: IndexFile) -> Iterator[str]:
    """What is not as a user would expect it."""
    size = app.stamps[0][2] if app.stamps[0] else 0
    yield f"The whole index is read into memory: {size / 1e6:,.0f} MB."
    if app.kind not in EXACT:
        yield f"{app.kind} keeps approximations of vectors, and these are mirrored; the target's index will be exact."
    if app.metric == "cosine":
        yield "All vectors have unit length: their inner product is read as cosine."
    for name, kind in app.column_types.items():
        if not _is_plain(kind):
            yield f"Column {name} of {kind} is left out."
    if app.ids_are == "positions":
        yield "Ids are positions in the index: a switch needs a target vector at each."
    elif app.named is not None:
        yield f"Ids are those of {app.named.name}: a switch replaces two files, one after the other."
    yield "An app that holds the index in memory reads it again after a switch, and does not write it during one."


def _rows(app: IndexFile, positions: RowNumbers) -> ArrowTable:
    """Ids and vectors at positions."""
    return pa.table({ID: app.ids.take(pa.array(positions)), VECTOR: vector_column(app.vectors(positions), app.dim)})


def _with(table: ArrowTable, beside: ArrowTable | None, names: dict[str, str]) -> ArrowTable:
    """Append columns of a file of ids, under the names of a scan."""
    if beside is None:
        return table
    for name, column in names.items():
        table = table.append_column(name, beside[column].cast(pa.string()) if name == SOURCE else beside[column])
    return table


def _is_plain(kind: ArrowType | None) -> bool:
    """True for a type of single values: texts, numbers, times."""
    return kind is not None and not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_null(kind))
