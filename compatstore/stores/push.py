"""Push the vectors that an upgrade made to the place of its target in the store.

A vector is announced in the ledger before it is written to the store, so that a kill is harmless: a later push looks at
what is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowTable, BoolArray, Id
from compatstore.storage.memory import give_back
from compatstore.storage.snapshot import READ_AHEAD
from compatstore.stores.both_sides import HELD, WRITTEN, BothSides, digests_as_written, one_ahead, sorted_out
from compatstore.stores.ledger import UNKNOWN, Known
from compatstore.stores.store import BATCH, ID, KNOWN, MADE_FROM, VECTOR, digests, vector_column


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


class Push(BothSides):
    """The half of a sync that writes to the store."""

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


def _vector_of(known: Known | None) -> bytes | None:
    return None if known is None else known.vector or None
