"""Keeps a lease: renews it in a thread of its own, carries progress in it, and hears of stops that are asked for."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace

from compatstore.errors import LeaseLost, StorageError
from compatstore.storage.history import now
from compatstore.storage.lease_table import LeaseTable
from compatstore.upgrade.leases.lease import BEATS_PER_TERM, FAILED, Lease, Pulse, end_unwritten, key_of, lease_in
from compatstore.upgrade.leases.rate import RecentRate
from compatstore.upgrade.leases.stop_request import StopRequest, request_in
from compatstore.upgrade.progress import Progress

COMMITS_BETWEEN_TIDYING = 50


class Keeper:
    """Holds a lease until it is given back or lost. A long encoder call does not delay the renewals.

    Args:
        table: Where leases are.
        lease: One that this process has just taken.

    Attributes:
        asked: The stop that somebody asked for, or None.
        lost: Whether a renewal found that somebody took the lease over.
    """

    def __init__(self, table: LeaseTable, lease: Lease) -> None:
        self.asked: StopRequest | None = None
        self.lost = False
        self._table, self._lease = table, lease
        self._rate = RecentRate()
        self._pulse = Pulse()
        self._over = False
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_over, name=f"lease of {lease.target}", daemon=True)
        self._thread.start()

    @property
    def lease(self) -> Lease:
        """The lease as it was last written, with the progress made since."""
        return replace(self._lease, pulse=self._pulse)

    def observe(self, progress: Progress) -> None:
        """Note how far the work is; the next renewal tells it to others, at once where a step begins."""
        begins = progress.step != self._pulse.step
        rate = self._rate.observe(progress.step, progress.done, progress.seconds)
        self._pulse = Pulse(progress.step, progress.done, progress.total, round(rate, 3))
        if begins:
            self._news.set()

    def require_held(self) -> None:
        """Look whether the lease is still ours.

        Raises:
            LeaseLost: Somebody took it over; nothing more may be written.
        """
        found = lease_in(self._table.read(), self._lease.target)
        if found is None or found.token != self._lease.token:
            raise LeaseLost(
                f"{self._lease.verb} {self._lease.target}",
                expected=f"the lease taken at {self._lease.since}",
                found="none" if found is None else f"that of {found.holder}, since {found.since}",
                fix="Nothing was written since; all finished batches are kept. "
                "Follow the other one: compatstore status GALLERY --watch",
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
        kept = self.lease if outcome != "done" else replace(self.lease, error="", error_at="")
        ended = replace(kept, outcome=outcome, error=error, error_at=now()) if outcome == FAILED else kept
        ended = replace(ended, outcome=outcome)
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
        if not self._table.swap(records.version, key_of(lease.target), renewed.dumps()):
            return False
        self._lease = renewed
        self.asked = self.asked or request_in(records, lease)
        if records.version % COMMITS_BETWEEN_TIDYING == 0:
            self._table.tidy()
        return True
