"""Sync a gallery with the store that it mirrors: pull what changed there, push what the upgrade made.

The store is the master: rows that it adds, changes or deletes are added, changed or deleted in the gallery, and never
the other way round. All that is written there is vectors of an upgrade's target, in the target's own place, each made
of the source vector that the row has.

Order makes a kill harmless: a row is announced in the ledger before it is written to the gallery, so a later sync pulls
it again, or deletes it if the app has; a vector is announced before it is written to the store, so a later sync looks
at what is there.
"""

from __future__ import annotations

import time

from compatstore.stores.both_sides import HELD, Synced
from compatstore.stores.pull import Pull
from compatstore.stores.push import Push
from compatstore.stores.store import ID, VECTOR, digests


class Sync(Pull, Push):
    """One sync, or the syncs of one verb."""

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

    def hold(self, target: str) -> None:
        """Record what the store holds of a target, before the app reads it: a store may round or scale vectors."""
        with self.ledger.changes():
            self.ledger.forget_vectors(f"{target}{HELD}")
            for table in self.store.read_target(target):
                held = dict(zip(table[ID].to_pylist(), digests(table[VECTOR]), strict=True))
                self.ledger.set_vectors(f"{target}{HELD}", held)
