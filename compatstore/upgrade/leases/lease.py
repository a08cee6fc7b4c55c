"""The lease of an upgrade: of two managers that start at the same time, one works and the other gets an error.

A lease is a record beside the table (`storage/lease_table.py`), taken and renewed by compare-and-swap. Its holder, a
process on some machine, raises a counter every few seconds. A lease ends when it is given back, when its process is
known to be gone, or when the counter has not moved for one term *by the clock of the process that watches*. The time
that a record carries is only ever used to refuse at once, never to take over. So no clock that goes backwards or ahead
makes a lease eternal or lets two managers work at the same time.

The gallery is correct without a lease, because every commit to the table is atomic and checked. The lease saves paying
twice for the same embeddings.

Another process can request that the holder of a lease finishes its batch and stops, and wait for it.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from compatstore.errors import LeaseHeld, StorageError
from compatstore.paths import user_name
from compatstore.storage.catalog import LEASE_TERM, Catalog
from compatstore.storage.history import now
from compatstore.storage.lease_table import LeaseTable, Records


@dataclass(frozen=True)
class Holder:
    """A process.

    Attributes:
        user: User that runs it.
        host: Name of the machine.
        pid: Its number there.
        place: Scope in which that number is valid: the boot of the machine and the name space of
            process numbers (two containers may have one host name). "" if unknown.
        born: When it began, as the system counts; a number that was given to another process has another one.
    """

    user: str
    host: str
    pid: int
    place: str = ""
    born: str = ""

    @classmethod
    def here(cls) -> Holder:
        """This process."""
        pid = os.getpid()
        return cls(user_name(), socket.gethostname(), pid, _place(), _born(pid))

    def __str__(self) -> str:
        return f"{self.user} on {self.host}, process {self.pid}"

    def is_gone(self) -> bool:
        """True if it is known to have ended; False if that is unknown here."""
        if not self.place or (self.host, self.place) != (socket.gethostname(), _place()):
            return False
        return _born(self.pid) != self.born


def _place() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _born(pid: int) -> str:
    """The start of a process in clock ticks since boot; "" once it has ended, even as a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    state, started = fields[0], fields[19]
    return "" if state in "ZX" else started


BEATS_PER_TERM = 15
RUNNING, DONE, PAUSED, FAILED = "running", "done", "paused", "failed"

# Tokens of this process' leases that are over although the record could not be written, as when the disk was full.
_OVER: set[str] = set()


@dataclass(frozen=True)
class Heartbeat:
    """Progress of the work, as published by each renewal.

    Attributes:
        step: expand, hop, backfill, ...; "" before the first batch.
        done: Rows that the step has done in this call.
        total: Rows that it has to do in this call, as far as known.
        rate: Rows per second since the step began.
    """

    step: str = ""
    done: int = 0
    total: int = 0
    rate: float = 0.0

    @property
    def eta(self) -> float | None:
        """Seconds that are left at this rate; None if unknown."""
        return max(self.total - self.done, 0) / self.rate if self.rate > 0 and self.total else None


@dataclass(frozen=True, kw_only=True)
class Lease:
    """One record: the current or last worker of an upgrade.

    Attributes:
        target: The upgrade's target.
        token: Names this lease and no other.
        verb: Operation of the holder: upgrade, cutover, retire, abort.
        holder: The process that holds it.
        since: ISO 8601, UTC.
        term: Seconds without a renewal after which it may be taken over.
        number: Higher than those of all earlier leases of this upgrade; files beside the table carry it.
        renewed: Time of the last renewal by the holder's clock, in seconds since 1970.
        beat: Counts renewals.
        outcome: running while it is held; then done, paused or failed.
        pulse: Progress of the work.
        error: The last error, "" without one.
        error_at: ISO 8601, UTC.
    """

    target: str
    token: str
    verb: str
    holder: Holder
    since: str
    term: float
    renewed: float
    number: int = 0
    beat: int = 0
    outcome: str = RUNNING
    pulse: Heartbeat = field(default_factory=Heartbeat)
    error: str = ""
    error_at: str = ""

    @property
    def held(self) -> bool:
        """True until it is given back; its holder may be gone for all that."""
        return self.outcome == RUNNING and self.token not in _OVER

    @property
    def expires(self) -> str:
        """When it ends unless it is renewed, by the holder's clock: ISO 8601, UTC."""
        return datetime.fromtimestamp(self.renewed + self.term, UTC).isoformat(timespec="seconds")

    @property
    def abandoned(self) -> bool:
        """True if the holder is gone, or seems to be by the clocks of both machines; a claim looks closer."""
        return self.held and (self.holder.is_gone() or abs(time.time() - self.renewed) > self.term)

    @property
    def works(self) -> bool:
        """True if its holder works, as far as the clocks of both machines tell."""
        return self.held and not self.abandoned

    def refusal(self, operation: str) -> LeaseHeld:
        """The error of work that waits for the holder of this lease."""
        holder, since, expires = str(self.holder), self.since, self.expires
        return LeaseHeld(operation, target=self.target, holder=holder, verb=self.verb, since=since, expires=expires)


def key_of(target: str) -> str:
    """Name of the record of an upgrade's lease."""
    return f"lease.{target}"


def lease_in(records: Records, target: str) -> Lease | None:
    """The lease of an upgrade, held or given back; None if no process worked on it yet.

    Raises:
        StorageError: The record is damaged.
    """
    return records.read(key_of(target), Lease)


def leases_in(records: Records) -> list[Lease]:
    """All leases, held or given back.

    Raises:
        StorageError: A record is damaged.
    """
    found = [records.read(key, Lease) for key in records.values if key.startswith(key_of(""))]
    return [lease for lease in found if lease is not None]


def end_unwritten(lease: Lease) -> None:
    """Remember that a lease of this process is over although its record says otherwise."""
    _OVER.add(lease.token)


def claim(
    table: LeaseTable, target: str, verb: str, *, term: float = LEASE_TERM, above: int = 0
) -> tuple[Lease, Lease | None]:
    """Take the lease of an upgrade.

    Args:
        table: Table of the leases.
        target: The upgrade's target.
        verb: Operation.
        term: Seconds without a renewal after which it may be taken over.
        above: A number that the lease's is to be higher than, as it is higher than those of earlier leases.

    Returns:
        The new lease, and the previous one.

    Raises:
        LeaseHeld: Another process works on it.
        StorageError: The record cannot be written.
    """
    records = table.read()
    found = lease_in(records, target)
    if found is not None and found.held:
        records = _until_over(table, records, found, verb)
    mine = Lease(
        target=target,
        token=uuid.uuid4().hex,
        verb=verb,
        holder=Holder.here(),
        since=now(),
        term=term,
        renewed=time.time(),
        number=max(0 if found is None else found.number, above) + 1,
        error="" if found is None else found.error,
        error_at="" if found is None else found.error_at,
    )
    try:
        written = table.swap(records.version, key_of(target), mine)
    except StorageError:
        end_unwritten(mine)
        raise
    if not written:
        raise (lease_in(table.read(), target) or mine).refusal(f"{verb} {target}")
    return mine, found


def _until_over(table: LeaseTable, records: Records, found: Lease, verb: str) -> Records:
    """The records, once a lease that was not given back is over.

    Raises:
        LeaseHeld: It is not.
    """
    if found.holder.is_gone():
        return records
    if not found.abandoned:
        raise found.refusal(f"{verb} {found.target}")
    ends = time.monotonic() + found.term
    while time.monotonic() < ends:
        time.sleep(found.term / BEATS_PER_TERM)
        records = table.read()
        current = lease_in(records, found.target)
        if current is None or not current.held:
            return records
        if (current.token, current.beat) != (found.token, found.beat):
            raise current.refusal(f"{verb} {found.target}")
    return records


ATTEMPTS = 20
LOOK_EVERY_SECONDS = 0.2


@dataclass(frozen=True)
class StopRequest:
    """A request to stop. It names one lease, so it never stops a manager that came later.

    Attributes:
        token: The lease whose holder is to stop.
        verb: Why: pause, abort, rollback.
        who: Process that requests it.
        at: ISO 8601, UTC.
    """

    token: str
    verb: str
    who: str
    at: str


def request_in(records: Records, lease: Lease) -> StopRequest | None:
    """The stop that was requested of a lease's holder, or None."""
    found = records.read(_key(lease.target), StopRequest)
    return found if found is not None and found.token == lease.token else None


def ask_to_stop(table: LeaseTable, target: str, verb: str) -> Lease | None:
    """Request the process at work on an upgrade to stop.

    Returns:
        The lease of that process, or None if none works.
    """
    for _ in range(ATTEMPTS):
        records = table.read()
        lease = lease_in(records, target)
        if lease is None or not lease.held or lease.holder.is_gone():
            return None
        request = StopRequest(lease.token, verb, str(Holder.here()), now())
        if table.swap(records.version, _key(target), request):
            return lease
    return lease


def wait_until_stopped(table: LeaseTable, lease: Lease, seconds: float) -> bool:
    """Wait until a lease is given back, or its holder is gone or has not renewed it for a term.

    Returns:
        True if that was so in time.
    """
    started = moved = time.monotonic()
    beat = lease.beat
    while True:
        current = lease_in(table.read(), lease.target)
        if current is None or current.token != lease.token or not current.held or current.holder.is_gone():
            return True
        if current.beat != beat:
            beat, moved = current.beat, time.monotonic()
        if time.monotonic() - moved > lease.term:
            return True
        if time.monotonic() - started >= seconds:
            return False
        time.sleep(LOOK_EVERY_SECONDS)


def requests_in(records: Records) -> list[StopRequest]:
    """All stops that were ever requested.

    Raises:
        StorageError: A record is damaged.
    """
    found = [records.read(key, StopRequest) for key in records.values if key.startswith(_key(""))]
    return [request for request in found if request is not None]


def _key(target: str) -> str:
    return f"stop.{target}"


@dataclass(frozen=True)
class Paused:
    """Result of a pause.

    Attributes:
        target: The upgrade's target.
        holder: The process that was requested to stop, "" if none worked on it.
        stopped: True if no process works on it now.
    """

    target: str
    holder: str
    stopped: bool


def pause(catalog: Catalog, target: str, *, wait: float = 60.0) -> Paused:
    """Stop an upgrade where it is; the next `upgrade` goes on from there.

    Args:
        catalog: The gallery.
        target: The upgrade's target.
        wait: Seconds to wait for the manager to finish its batch; the request stands after that too.

    Raises:
        NotFound: There is no such version.
    """
    catalog.registry().record(target)
    table = LeaseTable(catalog.store.location)
    stop = ask_to_stop(table, target, "pause")
    if stop is None:
        return Paused(target, "", True)
    return Paused(target, str(stop.holder), wait_until_stopped(table, stop, wait))
