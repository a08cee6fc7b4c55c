"""Pause: ask the manager of an upgrade, in whatever process, to finish its batch and stop."""

from __future__ import annotations

from dataclasses import dataclass

from compatstore.storage.catalog import Catalog
from compatstore.storage.lease_table import LeaseTable
from compatstore.upgrade.leases.stop_request import ask_to_stop, wait_until_stopped

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
        UnknownVersion: There is no such version.
    """
    catalog.registry().record(target)
    table = LeaseTable(catalog.store.location)
    asked = ask_to_stop(table, target, "pause")
    if asked is None:
        return Paused(target, "", True)
    return Paused(target, str(asked.holder), wait_until_stopped(table, asked, wait))
