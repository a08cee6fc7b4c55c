"""A gallery and the store that it mirrors, as pull and push use them, and what a sync has done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowTable, Id
from compatstore.errors import first_offenders
from compatstore.shown import Shown, view
from compatstore.storage.catalog import Catalog
from compatstore.stores.ledger import SWITCHED, Link, MirrorLedger
from compatstore.stores.store import ID, VECTOR, Description, VectorStore, digests, matrix, vector_column
from compatstore.upgrade.progress import Monitor, Observer

WRITTEN = 10_000  # rows of one write to the store
HELD = "@store"  # behind the name of a switched version: digests of what the app's place holds, not of what was pushed
Item = TypeVar("Item")


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


class BothSides:
    """A gallery and its store, connected, of one sync or the syncs of one verb.

    Args:
        catalog: The gallery.
        store: The store.
        ledger: Its ledger, held alone by this process.
        link: The collection.
        caller: Progress and stop.
    """

    def __init__(
        self, catalog: Catalog, store: VectorStore, ledger: MirrorLedger, link: Link, caller: Observer
    ) -> None:
        self.catalog, self.store, self.ledger, self.link = catalog, store, ledger, link
        self._about: Description = store.describe(link.parts)
        self.result = Synced(link.store)
        self._caller = caller

    @property
    def switched(self) -> str | None:
        """The target that the app reads by the name that it knows; None before a switch."""
        return next((name for name, state in self.ledger.targets().items() if state == SWITCHED), None)

    def _monitor(self, step: str, total: int) -> Monitor:
        return Monitor(step, total, self._caller.progress, self._caller.should_stop)

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

    def _correct(self, target: str, held: Mapping[Id, bytes | None]) -> None:
        """Record what the place of a target was found to hold; the next push compares it with the gallery."""
        if held:
            with self.ledger.changes():
                self.ledger.set_vectors(target, held)
                self.ledger.note(f"pushed {target}", "")


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
