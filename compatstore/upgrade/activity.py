"""What goes on with an upgrade now, as its lease tells: who works, how fast, how long yet, and what went wrong last."""

from __future__ import annotations

from dataclasses import dataclass

from compatstore.storage.records import RunRecord
from compatstore.upgrade.leases.lease import FAILED, PAUSED, RUNNING, Lease
from compatstore.upgrade.states import BACKFILL, EXPAND, HOP

INTERRUPTED, WAITING = "interrupted", "waiting"
UPGRADE = "upgrade"


@dataclass(frozen=True)
class Activity:
    """One upgrade, now.

    Attributes:
        doing: running; or why nobody works: waiting (for a cutover or a retirement), paused (it was asked to stop),
            failed, or interrupted (whoever worked ended without a word).
        verb: What is or was done last: upgrade, cutover, ...; "" where nothing was.
        holder: Who works or worked last, "" where nobody did.
        since: Since when, ISO 8601, UTC.
        expires: When their lease ends unless they renew it, likewise; "" where nobody works.
        step: expand, hop, backfill, ...
        done: Rows that the step has done in this call.
        total: Rows that it has to do in this call, as far as known.
        rate: Rows per second over the last batches.
        eta: Seconds that the step takes yet at this rate; None where nobody works or knows.
        error: What went wrong last, "" where nothing did since work ended well.
        error_at: ISO 8601, UTC.
    """

    doing: str
    verb: str = ""
    holder: str = ""
    since: str = ""
    expires: str = ""
    step: str = ""
    done: int = 0
    total: int = 0
    rate: float = 0.0
    eta: float | None = None
    error: str = ""
    error_at: str = ""


def activity_of(run: RunRecord, lease: Lease | None) -> Activity:
    """What goes on with an upgrade whose lease was just read."""
    doing = _doing(run, lease)
    if lease is None:
        return Activity(doing)
    pulse = lease.pulse
    return Activity(
        doing=doing,
        verb=lease.verb,
        holder=str(lease.holder),
        since=lease.since,
        expires=lease.expires if doing == RUNNING else "",
        step=pulse.step,
        done=pulse.done,
        total=pulse.total,
        rate=pulse.rate,
        eta=pulse.eta if doing == RUNNING else None,
        error=lease.error,
        error_at=lease.error_at,
    )


def _doing(run: RunRecord, lease: Lease | None) -> str:
    unfinished = run.state in (EXPAND, HOP, BACKFILL)
    if lease is None:
        return INTERRUPTED if unfinished else WAITING
    if lease.held:
        return INTERRUPTED if lease.abandoned else RUNNING
    if lease.verb == UPGRADE and lease.outcome == FAILED and run.open:
        return FAILED
    return PAUSED if unfinished else WAITING
