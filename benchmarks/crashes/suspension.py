"""A manager that is suspended past its lease, and wakes up while its successor works."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.crashes.place import Place
from benchmarks.crashes.process import Victim
from benchmarks.crashes.script import LEASE_TERM, Aim
from benchmarks.crashes.victim import succeed
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.location import locate
from compatstore.upgrade.leases.lease import Lease, lease_in

LOOK_SECONDS = 0.02
LONGEST_SLEEP = 1.0  # seconds that it sleeps on after its successor has taken over
TAKE_OVER_SECONDS = 20 * LEASE_TERM
END_SECONDS = 60.0
EXPECTED = ("LeaseLost", "LeaseHeld", "Interrupted")  # how one that lost its lease may end


def lease_of(path: Place) -> Lease | None:
    """The lease of the upgrade, as of now."""
    return lease_in(LeaseTable(locate(str(path))).read(), "v2")


def holds_the_lease(victim: Victim, path: Place) -> bool:
    """Whether a victim is at work now."""
    lease = lease_of(path)
    return lease is not None and lease.held and lease.holder.pid == victim.pid


class Suspension:
    """One suspension, from the moment at which the victim was stopped.

    Args:
        victim: The one that was stopped; it holds the lease.
        landed: Command and step at which it was.
        path: The gallery.
        share: Of the longest sleep, in [0, 1): when it wakes up after its successor has taken over.
    """

    def __init__(self, victim: Victim, landed: Aim, path: Place, share: float) -> None:
        self.landed = landed
        self._victim, self._path, self._sleep = victim, path, share * LONGEST_SLEEP
        self._token = lease.token if (lease := lease_of(path)) is not None else ""
        self._failure = ""
        self._successor: Victim | None = None
        self._thread = threading.Thread(target=self._wake_late, daemon=True)
        succeed(victim.pid, path)

    def follow_up(self, successor: Victim) -> None:
        """Name the one that goes on with the script; from here on the suspended one may wake up."""
        if self._successor is None:
            self._successor = successor
            self._thread.start()

    @property
    def taken_over(self) -> bool:
        """Whether its successor holds the lease, or another after it."""
        lease = lease_of(self._path)
        return self._successor is not None and (lease is None or lease.token != self._token)

    @property
    def over(self) -> bool:
        """Whether the suspended one has woken up and ended."""
        return self._successor is not None and not self._thread.is_alive()

    @contextmanager
    def ended(self) -> Iterator[str]:
        """Wait for the suspended one's end and hold its successor still for a block; gives what was wrong, or ""."""
        if self._successor is None:
            self._victim.kill()
            yield ""
            return
        self._thread.join()
        self._successor.hold()
        try:
            yield self._failure
        finally:
            self._successor.wake()

    def _wake_late(self) -> None:
        ends = time.monotonic() + TAKE_OVER_SECONDS
        while not self.taken_over:
            if time.monotonic() > ends:
                self._failure = "nobody took the lease over"
                break
            time.sleep(LOOK_SECONDS)
        time.sleep(self._sleep)
        self._victim.wake()
        failure = self._victim.failure(END_SECONDS)
        if failure and not any(f"errors.{name}" in failure for name in EXPECTED):
            self._failure = f"the suspended one did not end as one that lost its lease:\n{failure}"
