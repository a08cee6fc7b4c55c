"""Sync a gallery with the store that it mirrors: pull what changed there, push what the upgrade made.

The store is the master: rows that it adds, changes or deletes are added, changed or deleted in the gallery, and never
the other way round. All that is written there is vectors of an upgrade's target, in the target's own place, each made
of the source vector that the row has.

Order makes a kill harmless: a row is announced in the ledger before it is written to the gallery, so a later sync pulls
it again, or deletes it if the app has; a vector is announced before it is written to the store, so a later sync looks
at what is there.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowTable, BoolArray, Id
from compatstore.errors import InvalidInput, first_offenders
from compatstore.ingest import write
from compatstore.shown import Shown, view
from compatstore.storage.catalog import Catalog
from compatstore.storage.ids import find
from compatstore.storage.snapshot import READ_AHEAD
from compatstore.stores import tracking
from compatstore.stores.ledger import SWITCHED, UNKNOWN, Known, Link, MirrorLedger
from compatstore.stores.memory import give_back
from compatstore.stores.store import (
    BATCH,
    ID,
    IN_TARGET,
    KNOWN,
    MADE_FROM,
    SOURCE,
    VECTOR,
    Description,
    Parts,
    VectorStore,
    digests,
    matrix,
    vector_column,
)
from compatstore.upgrade.progress import Monitor, Observer

BYTES, ROWS = 16 << 20, 50_000  # of what one commit adds to the gallery
WRITTEN = 10_000  # rows of one write to the store
Item = TypeVar("Item")
SWITCHING = "switching"  # note of a target: rows that the app changed just before its switch are not pulled yet
HELD = "@store"  # behind the name of a switched version: digests of what the app's place holds, not of what was pushed


class Pulled(NamedTuple):
    """Rows on their way to the gallery.

    Attributes:
        rows: With their digests.
        announced: Numbers of their announcements in the ledger.
    """

    rows: ArrowTable
    announced: list[int]


class Pushed(NamedTuple):
    """Vectors on their way to the store.

    Attributes:
        rows: With their digests, and the numbers of their items.
        announced: Numbers of their announcements in the ledger.
        done: Ids that the store has written.
    """

    rows: ArrowTable
    announced: list[int]
    done: Future[Sequence[Id]]


@dataclass
class Synced(Shown):
    """The result of a sync.

    Attributes:
        store: Address of the collection.
        added: Rows that were new in the store.
        changed: Rows whose vector, source or metadata was another one.
        deleted: Rows that the store no longer has.
        written: Vectors written to the store.
        removed: Vectors removed from targets' places.
        left_out: Ids of rows that the gallery cannot hold: vectors that are not finite. They have no vector here.
        gap: Why all rows were compared although changes are tracked, a clause; "" if they were not.
        seconds: Time taken.

    Examples:
        >>> print(cs.Synced("faiss:letters.faiss", added=2))
        faiss:letters.faiss: 2 rows added, 0 changed, 0 deleted; 0 vectors written, 0 removed, 0.0 s
    """

    store: str
    added: int = 0
    changed: int = 0
    deleted: int = 0
    written: int = 0
    removed: int = 0
    left_out: list[Id] = field(default_factory=list)
    gap: str = ""
    seconds: float = 0.0


@view.register
def _(result: Synced) -> Iterator[str]:
    """What was pulled and pushed, in a few lines."""
    yield (
        f"{result.store}: {result.added} rows added, {result.changed} changed, {result.deleted} deleted; "
        f"{result.written} vectors written, {result.removed} removed, {result.seconds:.1f} s"
    )
    if result.left_out:
        yield f"without a vector here, since it is not finite: {first_offenders(result.left_out)}"
    if result.gap:
        yield f"all rows were compared, as changes may be unrecorded: {result.gap}"


class Sync:
    """One sync, or the syncs of one verb.

    Args:
        catalog: The gallery.
        store: The store, connected.
        ledger: Its ledger, held alone by this process.
        link: The collection.
        caller: Progress and stop.
    """

    def __init__(
        self, catalog: Catalog, store: VectorStore, ledger: MirrorLedger, link: Link, caller: Observer
    ) -> None:
        self.catalog, self.store, self.ledger, self.link = catalog, store, ledger, link
        self._caller = caller
        self._about: Description = store.describe(link.parts)
        self.result = Synced(link.store)

    @property
    def switched(self) -> str | None:
        """The target that the app reads by the name that it knows; None before a switch."""
        return next((name for name, state in self.ledger.targets().items() if state == SWITCHED), None)

    def run(self) -> Synced:
        """Pull, then push to the place of each target.

        Raises:
            StorageError: The store or the table cannot be read or written; the same call goes on.
            Interrupted: A stop was requested.
        """
        began = time.monotonic()
        self.pull()
        for target in self.ledger.targets():
            self.push(target)
        self.result.seconds += time.monotonic() - began
        return self.result

    # Pull

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

    def _finite(self, table: ArrowTable) -> ArrowTable:
        """The rows, without vectors that a gallery refuses."""
        values = matrix(table[VECTOR])
        good = np.asarray(np.isfinite(values).all(axis=1))
        if good.all():
            return table
        bad = table[ID].filter(pa.array(~good))
        self.result.left_out += bad.to_pylist()
        present = good & ~np.asarray(table[VECTOR].combine_chunks().is_null())
        column = vector_column(np.where(good[:, None], values, 0), values.shape[1], present)
        return table.set_column(table.column_names.index(VECTOR), VECTOR, column)

    def _compare_places(self, known: Mapping[Id, Known], there: Mapping[Id, bool], target: str) -> None:
        """Note target vectors that the store has lost, or has and the ledger does not know."""
        differing = {name: there[name] for name, row in known.items() if there[name] != (row.beside is not None)}
        self._correct(target, {name: UNKNOWN if one else None for name, one in differing.items()})

    def _correct(self, target: str, held: Mapping[Id, bytes | None]) -> None:
        """Record what the place of a target was found to hold; the next push compares it with the gallery."""
        if held:
            with self.ledger.changes():
                self.ledger.set_vectors(target, held)
                self.ledger.note(f"pushed {target}", "")

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

    # Push

    def push(self, target: str) -> None:
        """Bring the place of a target to the vectors that the gallery holds."""
        self.ledger.expand()
        self._look_again(target)
        snapshot = self.catalog.store.snapshot()
        registry = self.catalog.registry(snapshot)
        record = registry.record(target)
        if record.columns is None or registry.record(self.link.source).columns is None:
            return
        mark, state = f"pushed {target}", str(snapshot.version)
        if self.ledger.noted(mark) == state and not self.result.changed + self.result.added:
            return
        made, source = registry.columns(target), registry.columns(self.link.source)
        rows, monitor = int(snapshot.count_rows(made.present)), self._monitor("push", 0)
        monitor.reach(0, rows)
        seen, complete = np.zeros(self.ledger.last_item() + 1, bool), True
        names = list(dict.fromkeys([registry.id_column, *made.item_names, *source.item_names]))
        waiting = list[ArrowTable]()

        def read() -> Iterator[tuple[ArrowTable, list[bytes | None]]]:
            for batch in snapshot.to_batches(columns=names, filter=made.present, batch_size=BATCH, **READ_AHEAD):
                new, of = made.read_items(batch), source.read_items(batch)
                vectors = vector_column(new.vectors, record.dim)
                made_from = vector_column(of.vectors, of.vectors.shape[1], of.valid)
                yield pa.table({ID: batch[registry.id_column], VECTOR: vectors, MADE_FROM: made_from}), digests(vectors)

        pushed: Pushed | None = None
        with ThreadPoolExecutor(1, "compatstore-sync") as thread:  # the store writes while the next rows are compared
            for table, wanted in one_ahead(read()):
                waiting.append(self._differing(target, table, wanted, seen))
                if sum(each.num_rows for each in waiting) >= WRITTEN:
                    complete &= self._confirm(target, pushed)
                    pushed, waiting = self._begin(target, pa.concat_tables(waiting), thread), []
                monitor.advance(table.num_rows)
                monitor.check()
            complete &= self._confirm(target, pushed)
            if waiting:
                complete &= self._confirm(target, self._begin(target, pa.concat_tables(waiting), thread))
        if target != self.switched:
            self._remove_stale(target, seen)
        if complete:
            self.ledger.note(mark, state)
        monitor.finish()

    def _look_again(self, target: str) -> None:
        """Read vectors that a killed sync may have written; what the app has written since stays unconfirmed."""
        for batch in self.ledger.holding(target, unknown=True):
            ids = [name for _, name, _ in batch]
            held: dict[Id, bytes | None] = dict.fromkeys(ids)
            for table in self.store.read_target(target, ids):
                held |= dict(zip(table[ID].to_pylist(), digests(table[VECTOR]), strict=True))
            if target == self.switched:  # the app writes there too: the next pull reads what differs from the last one
                pulled = self.ledger.known(ids, f"{target}{HELD}")
                held = {name: digest for name, digest in held.items() if _vector_of(pulled.get(name)) == digest}
            self._correct(target, held)

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

    def _differing(self, target: str, table: ArrowTable, wanted: Sequence[bytes | None], seen: BoolArray) -> ArrowTable:
        """Rows whose vector in the store is another one, with what a write needs; all are marked as seen."""
        ids = table[ID].to_pylist()
        known = self.ledger.known(ids, target)
        found = [known.get(name) for name in ids]
        items = np.array([0 if one is None else one.item for one in found], np.int64)
        seen[items[items < len(seen)]] = True  # item 0 is none
        differs = [one is not None and one.vector != new for one, new in zip(found, wanted, strict=True)]
        held = [None if one is None else one.vector or None for one in found]
        for name, column in ((KNOWN, pa.array(held, pa.binary())), ("_digest", pa.array(wanted, pa.binary()))):
            table = table.append_column(name, column)
        table = table.append_column("_item", pa.array(items))
        return table if all(differs) else table.filter(pa.array(differs, pa.bool_()))

    def _begin(self, target: str, rows: ArrowTable, thread: ThreadPoolExecutor) -> Pushed | None:
        """Announce vectors and begin to write them to the store; nothing else asks the store until `_confirm`."""
        if not rows.num_rows:
            return None
        sent = rows
        if target == self.switched and not self._about.is_conditional:
            sent = self._unchanged_by_the_app(target, rows)
        announced = self.ledger.announce_vectors(target, rows["_item"].to_pylist())
        return Pushed(rows, announced, thread.submit(self._write, target, sent.drop_columns(["_digest", "_item"])))

    def _write(self, target: str, rows: ArrowTable) -> Sequence[Id]:
        return list(self.store.write(target, rows)) if rows.num_rows else []

    def _confirm(self, target: str, pushed: Pushed | None) -> bool:
        """Record vectors that the store has written; True if these are all."""
        if pushed is None:
            return True
        done, is_switched = pushed.done.result(), target == self.switched
        if not self._about.is_conditional and not is_switched:
            stale = self._stale(done)
            if stale:
                self.store.remove(target, stale)
                done = sorted_out(done, stale)
        ids, written = pushed.rows[ID].to_pylist(), set(done)
        digested = zip(ids, pushed.rows["_digest"].to_pylist(), strict=True)
        held = [digest if name in written else UNKNOWN for name, digest in digested]
        with self.ledger.changes():
            self.ledger.set_items(target, zip(pushed.rows["_item"].to_pylist(), held, strict=True))
            if is_switched:
                for table in self.store.read_target(target, done):
                    self.ledger.set_vectors(f"{target}{HELD}", digests_as_written(pushed.rows, table))
            self.ledger.confirm(pushed.announced)
        give_back()
        self.result.written += len(done)
        return len(done) == len(ids)

    def _stale(self, ids: Sequence[Id]) -> list[Id]:
        """Rows whose source vector is another one than the ledger's, or that are gone."""
        there = self.store.read(ids, self.link.parts)
        now = dict(zip(there[ID].to_pylist(), digests(self._finite(there)[VECTOR]), strict=True))
        known = self.ledger.known(ids, self.link.source)
        return [name for name in ids if name not in now or name not in known or now[name] != known[name].vector]

    def _unchanged_by_the_app(self, target: str, rows: ArrowTable) -> ArrowTable:
        ids = rows[ID].to_pylist()
        there, known = self.store.read(ids, self.link.parts), self.ledger.known(ids, f"{target}{HELD}")
        now = dict(zip(there[ID].to_pylist(), digests(there[VECTOR]), strict=True))
        keep = [name in now and name in known and now[name] == known[name].vector for name in ids]
        return rows.filter(pa.array(keep, pa.bool_()))

    def _remove_stale(self, target: str, seen: BoolArray) -> None:
        """Remove vectors of the store that the gallery has no longer, as of a row whose source changed."""
        for batch in self.ledger.holding(target):
            stale = [name for item, name, _ in batch if item < len(seen) and not seen[item]]
            if stale:
                self.store.remove(target, stale)
                with self.ledger.changes():
                    self.ledger.set_vectors(target, dict.fromkeys(stale))
                self.result.removed += len(stale)

    def hold(self, target: str) -> None:
        """Record what the store holds of a target, before the app reads it: a store may round or scale vectors."""
        with self.ledger.changes():
            self.ledger.forget_vectors(f"{target}{HELD}")
            for table in self.store.read_target(target):
                held = dict(zip(table[ID].to_pylist(), digests(table[VECTOR]), strict=True))
                self.ledger.set_vectors(f"{target}{HELD}", held)

    def _monitor(self, step: str, total: int) -> Monitor:
        return Monitor(step, total, self._caller.progress, self._caller.should_stop)


def one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Items of an iterator that a thread advances, by one at most: the next is made while the last one is used."""
    with ThreadPoolExecutor(1, "compatstore-sync") as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item


def sorted_out(ids: Sequence[Id], others: Sequence[Id]) -> list[Id]:
    """Ids that are not among others, in order."""
    apart = set(others)
    return [name for name in ids if name not in apart]


def _vector_of(known: Known | None) -> bytes | None:
    return None if known is None else known.vector or None


def digests_as_written(rows: ArrowTable, there: ArrowTable) -> dict[Id, bytes | None]:
    """Digests of what a store holds of vectors that were just written; it may round or scale them.

    Those that the app has replaced since are left out.
    """
    at = {name: row for row, name in enumerate(rows[ID].to_pylist())}
    ids, digested, found = there[ID].to_pylist(), digests(there[VECTOR]), matrix(there[VECTOR])
    wrote = matrix(rows[VECTOR])[[at[name] for name in ids]]
    lengths = [np.maximum(np.linalg.norm(one, axis=1, keepdims=True), 1e-12) for one in (wrote, found)]
    same = np.isclose(wrote / lengths[0], found / lengths[1], rtol=0.01, atol=0.01).all(axis=1)
    return {name: digest for name, digest, ours in zip(ids, digested, same, strict=True) if ours}


def _sources(table: ArrowTable) -> list[bytes | None]:
    if SOURCE not in table.column_names:
        return [None] * table.num_rows
    return [None if text is None else _digest(text) for text in table[SOURCE].to_pylist()]


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
