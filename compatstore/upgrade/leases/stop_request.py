"""Ask the manager of an upgrade, in whatever process it runs, to finish its batch and stop; and wait until it has."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass

from compatstore.storage.catalog import Catalog
from compatstore.storage.history import now
from compatstore.storage.lease_table import LeaseTable, Records
from compatstore.upgrade.leases.lease import Holder, Lease, lease_in

ATTEMPTS = 20
LOOK_EVERY_SECONDS = 0.2


@dataclass(frozen=True)
class StopRequest:
    """What was asked for. It names one lease, so it never stops a manager that came later.

    Attributes:
        token: The lease whose holder is asked.
        verb: Why: pause, abort, rollback.
        who: Who asks.
        at: ISO 8601, UTC.
    """

    token: str
    verb: str
    who: str
    at: str


def request_in(records: Records, lease: Lease) -> StopRequest | None:
    """The stop that was asked of a lease's holder, or None."""
    found = records.read(_key(lease.target), StopRequest)
    return found if found is not None and found.token == lease.token else None


def ask_to_stop(table: LeaseTable, target: str, verb: str) -> Lease | None:
    """Ask whoever works on an upgrade to stop.

    Returns:
        The lease of the one who was asked, or None where nobody works.
    """
    for _ in range(ATTEMPTS):
        records = table.read()
        lease = lease_in(records, target)
        if lease is None or not lease.held or lease.holder.is_gone():
            return None
        request = StopRequest(lease.token, verb, str(Holder.here()), now())
        if table.swap(records.version, _key(target), json.dumps(dataclasses.asdict(request))):
            return lease
    return lease


def wait_until_stopped(table: LeaseTable, lease: Lease, seconds: float) -> bool:
    """Wait until a lease is given back, or its holder is gone or has not renewed it for a term.

    Returns:
        Whether that was so in time.
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
    """All stops that were ever asked for.

    Raises:
        StorageError: A record is damaged.
    """
    found = [records.read(key, StopRequest) for key in records.values if key.startswith(_key(""))]
    return [request for request in found if request is not None]


def _key(target: str) -> str:
    return f"stop.{target}"


WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Paused:
    """What a pause did.

    Attributes:
        target: The upgrade's target.
        holder: Who was asked to stop, "" where nobody worked on it.
        stopped: Whether nobody works on it now.
    """

    target: str
    holder: str
    stopped: bool


def pause(catalog: Catalog, target: str, *, wait: float = WAIT_SECONDS) -> Paused:
    """Stop an upgrade where it is; the next `upgrade` goes on from there.

    Args:
        catalog: The gallery.
        target: The upgrade's target.
        wait: Seconds to wait for the manager to finish its batch; what was asked for stands after that too.

    Raises:
        NotFound: There is no such version.
    """
    catalog.registry().record(target)
    table = LeaseTable(catalog.store.location)
    asked = ask_to_stop(table, target, "pause")
    if asked is None:
        return Paused(target, "", True)
    return Paused(target, str(asked.holder), wait_until_stopped(table, asked, wait))
