"""Work on an upgrade: under its lease, with commits that fail once it is lost, and an ending that is recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from compatstore.errors import Interrupted, LeaseLost, StorageError
from compatstore.storage.catalog import Catalog
from compatstore.storage.fence import Fence
from compatstore.storage.history import HistoryEntry
from compatstore.storage.lease_files import last_number
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.registry import edit, touch
from compatstore.upgrade.leases.keeper import Keeper
from compatstore.upgrade.leases.lease import DONE, FAILED, PAUSED, Lease, claim
from compatstore.upgrade.progress import Progress
from compatstore.upgrade.states import CUTOVER, READY, run_of

UPGRADE = "upgrade"
LONGEST_NOTE = 300


@dataclass(frozen=True)
class Work:
    """What a holder of a lease works with.

    Attributes:
        catalog: The gallery; its commits are refused once the lease is lost.
        progress: To be called after each batch.
        should_stop: To be asked before each batch; raises `LeaseLost` where the lease was taken over.
    """

    catalog: Catalog
    progress: Callable[[Progress], None]
    should_stop: Callable[[], bool]


@contextmanager
def at_work(
    catalog: Catalog,
    target: str,
    verb: str,
    progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Iterator[Work]:
    """Hold the lease of an upgrade for a block, and record how the block ended.

    Args:
        catalog: The gallery.
        target: The upgrade's target.
        verb: What is done: upgrade, cutover, retire, abort.
        progress: The caller's own, called too.
        should_stop: The caller's own, asked too.

    Raises:
        LeaseHeld: Somebody else works on it.
        LeaseLost: Somebody else took it over meanwhile.
        StorageError: The lease cannot be written.
    """
    table = LeaseTable(catalog.store.location)
    above = last_number(catalog.store.location, target)
    lease, before = claim(table, target, verb, term=catalog.lease_term, above=above)
    keeper = Keeper(table, lease)
    catalog = catalog.fenced(Fence(target, lease.number, keeper.require_held))
    outcome, error = FAILED, ""
    try:
        if before is not None and before.held:
            if not before.holder.is_gone():
                touch(catalog.store)  # it may be about to commit an edit
            _record(catalog, before, "interrupted", f"{before.holder} gave no sign of life")
        yield _work(catalog, keeper, progress, should_stop)
        outcome = DONE
    except LeaseLost:
        raise
    except (Interrupted, KeyboardInterrupt):
        outcome = PAUSED
        _record(catalog, keeper.lease, "pause", _why(keeper))
        raise
    except BaseException as failure:
        with contextlib.suppress(StorageError):
            keeper.require_held()  # a successor may have removed what this one was reading
        error = f"{type(failure).__name__}: {failure}"
        _record(catalog, keeper.lease, "failed", error)
        raise
    finally:
        with contextlib.suppress(StorageError):  # never hides how the block ended
            keeper.give_back(outcome, error)


def _work(
    catalog: Catalog,
    keeper: Keeper,
    progress: Callable[[Progress], None] | None,
    should_stop: Callable[[], bool] | None,
) -> Work:
    def observe(at: Progress) -> None:
        keeper.observe(at)
        if progress is not None:
            progress(at)

    def stop() -> bool:
        if keeper.lost:
            keeper.require_held()
        return keeper.asked is not None or (should_stop is not None and should_stop())

    return Work(catalog, observe, stop)


def _why(keeper: Keeper) -> str:
    return f"{keeper.asked.verb} asked for by {keeper.asked.who}" if keeper.asked else "stopped by its own process"


def _record(catalog: Catalog, lease: Lease, step: str, why: str) -> None:
    """Tell the history how an upgrade ended before it was ready; what never began has no history."""
    run = run_of(catalog.registry(), lease.target)
    if lease.verb != UPGRADE or run is None or (step == "interrupted" and run.state in (READY, CUTOVER)):
        return
    pulse = lease.pulse
    where = f"in {pulse.step} at {pulse.done} of {pulse.total}: " if pulse.step else ""
    entry = HistoryEntry(step, lease.target, rows=pulse.done, note=f"{where}{why}"[:LONGEST_NOTE])
    with contextlib.suppress(StorageError, LeaseLost):
        edit(catalog.store, lambda registry: registry, entry)
