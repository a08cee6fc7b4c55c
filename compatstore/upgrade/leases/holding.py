"""Hold the lease of an upgrade for a block of work.

A thread renews the lease, writes the progress into it and notices requests to stop. Commits fail once the lease is
lost, and how the work ended is recorded.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from compatstore import next_step
from compatstore.errors import Interrupted, LeaseLost, StorageError
from compatstore.storage.catalog import Catalog
from compatstore.storage.history import HistoryEntry, now
from compatstore.storage.lease_table import LeaseTable, last_number
from compatstore.storage.registry import edit
from compatstore.storage.store import Fence
from compatstore.upgrade.leases.lease import (
    BEATS_PER_TERM,
    DONE,
    FAILED,
    PAUSED,
    Heartbeat,
    Lease,
    StopRequest,
    claim,
    end_unwritten,
    key_of,
    lease_in,
    request_in,
)
from compatstore.upgrade.progress import UNOBSERVED, Observer, Progress
from compatstore.upgrade.states import CUTOVER, READY, run_of


class LeaseRenewer:
    """Holds a lease until it is given back or lost. A long encoder call does not delay the renewals.

    Args:
        table: Table of the leases.
        lease: One that this process has just taken.

    Attributes:
        asked: The stop that was requested, or None.
        lost: True if a renewal found that another process took the lease over.
    """

    def __init__(self, table: LeaseTable, lease: Lease) -> None:
        self.asked: StopRequest | None = None
        self.lost = False
        self._table, self._lease = table, lease
        self._pulse = Heartbeat()
        self._over = False
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_over, name=f"lease of {lease.target}", daemon=True)
        self._thread.start()

    @property
    def lease(self) -> Lease:
        """The lease as it was last written, with the progress made since."""
        return replace(self._lease, pulse=self._pulse)

    def observe(self, progress: Progress) -> None:
        """Note the progress; the next renewal publishes it, at once if a step begins."""
        begins = progress.step != self._pulse.step
        self._pulse = Heartbeat(progress.step, progress.done, progress.total, round(progress.rate, 3))
        if begins:
            self._news.set()

    def require_held(self) -> None:
        """Look whether the lease is still ours.

        Raises:
            LeaseLost: Another process took it over; nothing more may be written.
        """
        found = lease_in(self._table.read(), self._lease.target)
        if found is None or found.token != self._lease.token:
            raise LeaseLost(
                f"{self._lease.verb} {self._lease.target}",
                expected=f"the lease taken at {self._lease.since}",
                found="none" if found is None else f"that of {found.holder}, since {found.since}",
                fix="Nothing was written since; all finished batches are kept. "
                f"Follow the other one: {next_step.call('status', watch=next_step.IN_SHELL)}",
            )

    def give_back(self, outcome: str, error: str = "") -> None:
        """End the lease and say how the work ended; a no-op when it was lost.

        A failure stays on record until work ends well.

        Raises:
            StorageError: It cannot be written, as when the disk is full; to this process the lease is over.
        """
        self._over = True
        self._news.set()
        self._thread.join()
        ended = replace(self.lease, outcome=outcome)
        if outcome != PAUSED:
            ended = replace(ended, error=error, error_at=now() if error else "")
        try:
            # A stop request or another upgrade's renewal may come first, any number of times.
            while not self._write(ended):
                pass
        except StorageError:
            end_unwritten(ended)
            raise

    def _renew_until_over(self) -> None:
        while True:
            self._news.wait(self._lease.term / BEATS_PER_TERM)
            self._news.clear()
            if self._over:
                return
            # A store that cannot be reached for a moment is no reason to stop; the next commit will tell.
            with contextlib.suppress(StorageError):
                self._write(self.lease)

    def _write(self, lease: Lease) -> bool:
        """Write the record, unless the lease was lost; false where another record was written at that moment."""
        records = self._table.read()
        found = lease_in(records, lease.target)
        self.lost = found is None or found.token != lease.token
        if found is None or self.lost:
            return True
        renewed = replace(lease, beat=found.beat + 1, renewed=time.time())
        if not self._table.swap(records.version, key_of(lease.target), renewed):
            return False
        self._lease = renewed
        self.asked = self.asked or request_in(records, lease)
        return True


UPGRADE = "upgrade"
LONGEST_NOTE = 300


@dataclass(frozen=True, kw_only=True)
class Work(Observer):
    """Tools of the holder of a lease; `should_stop` raises `LeaseLost` if the lease was taken over.

    Attributes:
        catalog: The gallery; its commits are refused once the lease is lost.
    """

    catalog: Catalog


@contextmanager
def hold_lease(catalog: Catalog, target: str, verb: str, caller: Observer = UNOBSERVED) -> Iterator[Work]:
    """Hold the lease of an upgrade for a block, and record how the block ended.

    Args:
        catalog: The gallery.
        target: The upgrade's target.
        verb: Operation: upgrade, cutover, retire, abort.
        caller: Observes the block too.

    Raises:
        LeaseHeld: Another process works on it.
        LeaseLost: Another process took it over meanwhile.
        StorageError: The lease cannot be written.
    """
    table = LeaseTable(catalog.store.location)
    above = last_number(catalog.store.location, target)
    lease, before = claim(table, target, verb, term=catalog.lease_term, above=above)
    renewer = LeaseRenewer(table, lease)
    catalog = catalog.fenced(Fence(target, lease.number, renewer.require_held))

    def observe(at: Progress) -> None:
        renewer.observe(at)
        caller.report(at)

    def stop() -> bool:
        if renewer.lost:
            renewer.require_held()
        return renewer.asked is not None or caller.stops()

    outcome, error = FAILED, ""
    try:
        if before is not None and before.held:
            if not before.holder.is_gone():
                edit(catalog.store, lambda state: state, always=True)  # it may be about to commit an edit
            _record(catalog, before, "interrupted", f"{before.holder} gave no sign of life")
        yield Work(observe, stop, catalog=catalog)
        outcome = DONE
    except LeaseLost:
        raise
    except (Interrupted, KeyboardInterrupt):
        outcome = PAUSED
        request = renewer.asked
        why = f"{request.verb} requested by {request.who}" if request else "stopped by its own process"
        _record(catalog, renewer.lease, "pause", why)
        raise
    except BaseException as failure:
        with contextlib.suppress(StorageError):
            renewer.require_held()  # a successor may have removed files that this process was reading
        error = f"{type(failure).__name__}: {failure}"
        _record(catalog, renewer.lease, "failed", error)
        raise
    finally:
        with contextlib.suppress(StorageError):  # never hides how the block ended
            renewer.give_back(outcome, error)


def _record(catalog: Catalog, lease: Lease, step: str, why: str) -> None:
    """Record the end of an upgrade before it was ready; an upgrade that never began has no history."""
    run = run_of(catalog.registry(), lease.target)
    if lease.verb != UPGRADE or run is None or (step == "interrupted" and run.state in (READY, CUTOVER)):
        return
    pulse = lease.pulse
    where = f"in {pulse.step} at {pulse.done} of {pulse.total}: " if pulse.step else ""
    entry = HistoryEntry(step, lease.target, rows=pulse.done, note=f"{where}{why}"[:LONGEST_NOTE])
    with contextlib.suppress(StorageError, LeaseLost):
        edit(catalog.store, lambda registry: registry, entry)
