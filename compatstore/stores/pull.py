"""Pull what a store adds, changes and deletes into the gallery that mirrors it.

A row is announced in the ledger before it is written to the gallery, so that a kill is harmless: a later pull reads it
again, or deletes it if the app has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowTable, BoolArray, Id
from compatstore.errors import InvalidInput
from compatstore.ingest import write
from compatstore.storage.ids import find
from compatstore.storage.memory import give_back
from compatstore.stores import tracking
from compatstore.stores.both_sides import HELD, WRITTEN, BothSides, digests_as_written, one_ahead, sorted_out
from compatstore.stores.ledger import UNKNOWN, Known
from compatstore.stores.store import ID, IN_TARGET, SOURCE, VECTOR, Parts, digests, vector_column

BYTES, ROWS = 16 << 20, 50_000  # of what one commit adds to the gallery
SWITCHING = "switching"  # note of a target: rows that the app changed just before its switch are not pulled yet


class Pulled(NamedTuple):
    """Rows on their way to the gallery.

    Attributes:
        rows: With their digests.
        announced: Numbers of their announcements in the ledger.
    """

    rows: ArrowTable
    announced: list[int]


class Pull(BothSides):
    """The half of a sync that reads the store."""

    @property
    def pulled(self) -> int:
        """Rows that were pulled so far."""
        return self.result.added + self.result.changed + self.result.deleted

    def pull(self) -> None:
        """Bring the gallery to what the store holds."""
        self.ledger.expand()
        self._delete_gone()
        switched = self.switched
        if switched:
            self._confirm_written(switched)
        self.pull_changed_before_switch()
        version, key = switched or self.link.source, f"{switched}{HELD}" if switched else self.link.source
        capture = tracking.capture_of(self.ledger, self.store)
        if capture is None:
            self._pull(self.link.parts, version, key)
            return
        reader = self.catalog.store.location.name
        pull = tracking.TrackedPull(self.ledger, capture, reader, self.link.parts, key)
        gap = pull.run(
            lambda: self._pull(self.link.parts, version, key), lambda ids: self._pull_some(ids, version, key)
        )
        self.result.gap = gap or self.result.gap

    def _pull_some(self, ids: Sequence[Id], version: str, key: str) -> None:
        """Pull rows of some ids, one of which may be gone; see `_pull`."""
        self._monitor("pull", len(ids)).check()
        there = self.store.read(ids, self.link.parts)
        self._take([self._changed(there, key, None, np.zeros(self.ledger.last_item() + 1, bool))], version, key)
        self.ledger.mark_gone(sorted_out(ids, there[ID].to_pylist()))
        self._delete_gone()
        for target in self.ledger.targets():
            if target != self.switched:  # a row that was added again has lost its target vector, or brought one
                self._correct(target, dict.fromkeys(ids, UNKNOWN))

    def pull_changed_before_switch(self) -> bool:
        """Pull rows that the app changed between the last sync before a switch and the switch; True if there are any.

        Their target vectors are of what they were. Only a store that keeps both vectors in one row has them there.
        """
        before, switched = self.pulled, self.switched
        if switched is None or self.ledger.noted(SWITCHING) != switched:
            return False
        own = self.store.before(switched)
        if own is not None:
            self._pull(replace(self.link.parts, vector=own), self.link.source, self.link.source)
        self.ledger.note(SWITCHING, "")
        return self.pulled != before

    def _confirm_written(self, target: str) -> None:
        """Confirm vectors that a killed push has written where the app writes too: they are not the app's own."""
        registry, unknown = self.catalog.recorded(), self.ledger.holding(target, unknown=True)
        if registry.record(target).columns is None:
            return
        columns = registry.columns(target)
        for batch in unknown:
            ids = [name for _, name, _ in batch]
            found = find(self.catalog.store, registry.id_column, ids, [registry.id_column, *columns.item_names])
            here, named = columns.read_items(found), found[registry.id_column]
            wanted = pa.table({ID: named, VECTOR: vector_column(here.vectors, columns.dim, here.valid)})
            digested = dict(zip(wanted[ID].to_pylist(), digests(wanted[VECTOR]), strict=True))
            for table in self.store.read_target(target, list(digested)):
                ours = digests_as_written(wanted, table)
                with self.ledger.changes():
                    self.ledger.set_vectors(f"{target}{HELD}", ours)
                    self.ledger.set_vectors(target, {name: digested[name] for name in ours})

    def _pull(self, parts: Parts, version: str, key: str) -> None:
        """Pull what differs from the ledger.

        Args:
            parts: Columns to read.
            version: Version of the vectors.
            key: Key of their digests in the ledger.
        """
        switched = self.switched
        placed = [name for name in self.ledger.targets() if name != switched]
        column = placed[-1] if placed and self._about.beside == "column" else None
        seen, monitor = np.zeros(self.ledger.last_item() + 1, bool), self._monitor("pull", self._about.rows)
        waiting, rows = list[ArrowTable](), 0
        with ThreadPoolExecutor(1, "compatstore-sync") as thread:  # writes here while the next rows are read there
            written = thread.submit(self._keep, None, version)
            for table in one_ahead(self.store.scan(parts, column)):
                monitor.check()
                waiting.append(self._changed(table, key, column, seen))
                rows += waiting[-1].num_rows
                if rows >= ROWS or rows * self._about.dim * 4 >= BYTES:
                    self._record(written.result(), version, key)
                    written = thread.submit(self._keep, self._announced(waiting), version)
                    waiting, rows = [], 0
                monitor.advance(table.num_rows)
            self._record(written.result(), version, key)
        self._take(waiting, version, key)
        known = self.ledger.rows(key, self._keys_elsewhere(switched)) if len(seen) > 1 else ()
        for batch in known:
            unseen = [name for item, name in batch if item < len(seen) and not seen[item]]
            if unseen:
                there = self.store.read(unseen, parts)  # a page of the scan may have missed them
                self._take([self._changed(there, key, None, seen)], version, key)
                self.ledger.mark_gone(sorted_out(unseen, there[ID].to_pylist()))
        self._delete_gone()
        monitor.finish()

    def _keys_elsewhere(self, switched: str | None) -> list[str]:
        """Keys of places that the app read before a switch, or a rollback: rows that lie there alone are kept."""
        if self._about.beside == "column":
            return []
        return [self.link.source] if switched else [f"{target}{HELD}" for target in self.ledger.targets()]

    def _changed(self, table: ArrowTable, key: str, column: str | None, seen: BoolArray) -> ArrowTable:
        """Rows that the gallery does not hold as they are, with their digests; the others are marked as seen."""
        ids = table[ID].to_pylist()
        # In an empty ledger all rows are new: one that comes twice is found when it is recorded.
        known, table = self.ledger.known(ids, key, column) if len(seen) > 1 else {}, self._finite(table)
        vectors, sources, metadata = digests(table[VECTOR]), _sources(table), self._metadata(table)
        items, keep, alone = list[int | None](), list[bool](), list[bool]()
        for name, vector, source, values in zip(ids, vectors, sources, metadata, strict=True) if known else ():
            before = known.get(name)
            if before is not None and before.item < len(seen):
                seen[before.item] = True
            same = before is not None and (vector, source) == (before.vector, before.source)
            keep.append(before is None or not same or values != before.metadata)
            items.append(None if before is None else before.item)
            alone.append(same)
        if column is not None and IN_TARGET in table.column_names:
            self._compare_places(known, dict(zip(ids, table[IN_TARGET].to_pylist(), strict=True)), column)
        for name, hashed in (("_vector", vectors), ("_source", sources), ("_metadata", metadata)):
            table = table.append_column(name, pa.array(hashed, pa.binary()))
        table = table.append_column("_item", pa.array(items or [None] * len(ids), pa.int64()))
        table = table.append_column("_metadata_alone", pa.array(alone or [False] * len(ids), pa.bool_()))
        return table if all(keep) else table.filter(pa.array(keep, pa.bool_()))

    def _compare_places(self, known: Mapping[Id, Known], there: Mapping[Id, bool], target: str) -> None:
        """Note target vectors that the store has lost, or has and the ledger does not know."""
        differing = {name: there[name] for name, row in known.items() if there[name] != (row.beside is not None)}
        self._correct(target, {name: UNKNOWN if one else None for name, one in differing.items()})

    def _metadata(self, table: ArrowTable) -> list[bytes | None]:
        if not self.link.parts.metadata:
            return [None] * table.num_rows
        rows = table.select(list(self.link.parts.metadata)).to_pylist()
        return [_digest(json.dumps(row, default=str, sort_keys=True)) for row in rows]

    def _take(self, tables: list[ArrowTable], version: str, key: str) -> None:
        """Announce rows, write them to the gallery, then to the ledger."""
        self._record(self._keep(self._announced(tables), version), version, key)

    def _announced(self, tables: list[ArrowTable]) -> Pulled | None:
        """Announce rows in the ledger; None if there are none."""
        tables = [table for table in tables if table.num_rows]
        if not tables:
            return None
        rows = pa.concat_tables(tables, promote_options="permissive")
        alone = np.asarray(rows["_metadata_alone"].combine_chunks())
        named = (rows[ID].filter(pa.array(chosen)).to_pylist() for chosen in (~alone, alone))
        return Pulled(rows, self.ledger.announce(*named))

    def _keep(self, pulled: Pulled | None, version: str) -> Pulled | None:
        """Write rows to the gallery; the ledger is another thread's."""
        if pulled is None:
            return None
        rows = pulled.rows
        alone = np.asarray(rows["_metadata_alone"].combine_chunks())
        if alone.any():  # an `add` would clear the vectors of other versions
            write.update(self.catalog, rows.filter(pa.array(alone)).select([ID, *self.link.parts.metadata]))
        whole = rows.filter(pa.array(~alone)) if alone.any() else rows
        if whole.num_rows:
            self._add(whole, version)
        return Pulled(rows.drop_columns(VECTOR), pulled.announced)

    def _record(self, pulled: Pulled | None, version: str, key: str) -> None:
        """Record in the ledger what was written to the gallery."""
        if pulled is None:
            return
        names = ("_item", ID, "_source", "_metadata", "_vector", "_metadata_alone")
        known, ids, sources, metadata, vectors, alone = (pulled.rows[name].to_pylist() for name in names)
        with self.ledger.changes():
            items = self.ledger.put(list(zip(known, ids, sources, metadata, strict=True)))
            self.ledger.set_items(key, zip(items, vectors, strict=True))
            if key != version:  # the app's own vectors of a switched target are in the store already
                self.ledger.set_items(version, zip(items, vectors, strict=True))
                whole = [name for name, is_alone in zip(ids, alone, strict=True) if not is_alone]
                if whole:  # the gallery has their source vectors no more, and the store has them still
                    self.ledger.mark_unconfirmed(self.link.source, whole)
            self.ledger.confirm(pulled.announced)
        give_back()
        self.result.added += known.count(None)
        self.result.changed += len(ids) - known.count(None)

    def _add(self, rows: ArrowTable, version: str) -> None:
        columns = [ID, VECTOR, *([SOURCE] if self.link.parts.source else []), *self.link.parts.metadata]
        items, new = rows.select(columns), rows["_item"].null_count == rows.num_rows
        options: dict[str, Any] = {"repeated": "last", "unembedded": "keep"}
        if new:
            try:
                write.add(self.catalog, items, version, **options)
            except InvalidInput as error:
                if not error.duplicates:
                    raise
            else:
                return
        write.add(self.catalog, items, version, upsert=True, **options)

    def _delete_gone(self) -> None:
        """Delete rows that the store no longer has: here, and from places that are not of the row itself."""
        gone = self.ledger.gone()
        for start in range(0, len(gone), WRITTEN):
            ids = gone[start : start + WRITTEN]
            ids = sorted_out(ids, self.store.read(ids, self.link.parts)[ID].to_pylist())  # the app may have them again
            write.delete(self.catalog, ids)
            if self._about.beside != "column":
                for target in self.ledger.targets():
                    if target != self.switched:
                        self.store.remove(target, ids)
            self.ledger.forget(ids)
            self.result.deleted += len(ids)


def _sources(table: ArrowTable) -> list[bytes | None]:
    if SOURCE not in table.column_names:
        return [None] * table.num_rows
    return [None if text is None else _digest(text) for text in table[SOURCE].to_pylist()]


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
