"""The lease of an upgrade: one manager works, nobody waits for the dead, and no clock decides who works."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

import compatstore as cs
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.location import locate
from compatstore.upgrade.leases.holding import LeaseRenewer
from compatstore.upgrade.leases.lease import BEATS_PER_TERM, Holder, Lease, claim, key_of, lease_in
from compatstore.upgrade.progress import Progress

ELSEWHERE = Holder("ann", "another-host", 12, place="another boot", born="1")
DAY = 86_400.0


@pytest.fixture
def table(gallery):
    return LeaseTable(locate(gallery.status().gallery))


def held_elsewhere(table, renewed, term=30.0, beat=7):
    """Write the lease of a manager on another machine."""
    lease = Lease(
        target="v2",
        token="theirs",
        verb="upgrade",
        holder=ELSEWHERE,
        since="2026-01-01T00:00:00+00:00",
        term=term,
        renewed=renewed,
        beat=beat,
    )
    write(table, lease)
    return lease


def write(table, lease):
    while not table.swap(table.read().version, key_of(lease.target), lease):
        pass  # a renewal came first


def test_a_lease_survives_a_round_trip(table):
    mine, before = claim(table, "v2", "upgrade")
    assert before is None
    assert mine == lease_in(table.read(), "v2")


def test_of_many_claims_at_once_one_wins(table):
    results, ready = [], threading.Barrier(8)

    def work():
        mine = LeaseTable(table._location)
        ready.wait()
        try:
            results.append(claim(mine, "v2", "upgrade")[0].token)
        except cs.errors.LeaseHeld as error:
            results.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [result for result in results if isinstance(result, str)]
    assert winners == [lease_in(table.read(), "v2").token]


def test_leases_of_two_targets_do_not_meet(table):
    claim(table, "v2", "upgrade")
    claim(table, "v3", "upgrade")


def test_a_lease_in_force_is_refused_at_once_and_says_whose_it_is(table):
    lease = held_elsewhere(table, time.time())
    with pytest.raises(cs.errors.LeaseHeld) as refusal:
        claim(table, "v2", "cutover")
    assert "ann on another-host, process 12" in refusal.value.found
    assert (refusal.value.since, refusal.value.expires) == (lease.since, lease.expires)
    assert "gallery.status()" in refusal.value.fix
    assert {"holder", "since", "expires"} <= refusal.value.to_dict().keys()


@pytest.mark.parametrize("clock", [-DAY, 0.5, DAY], ids=["expired", "just expired", "in the future"])
def test_a_dead_holder_elsewhere_is_taken_over_when_its_counter_stands_still(table, clock):
    """Whatever the clocks say: a lease that carries a time in the future is not eternal."""
    held_elsewhere(table, time.time() + clock if abs(clock) == DAY else time.time() - clock, term=0.3)
    mine, before = claim(table, "v2", "upgrade")
    assert before.token == "theirs"
    assert lease_in(table.read(), "v2").token == mine.token


@pytest.mark.parametrize("clock", [-DAY, DAY], ids=["behind", "ahead"])
def test_a_living_holder_with_a_wrong_clock_keeps_its_lease(table, clock):
    lease = held_elsewhere(table, time.time() + clock, term=0.3)

    class Renewed(LeaseTable):
        """However fast anybody looks, the holder was faster."""

        def read(self):
            write(table, replace(lease, beat=lease_in(table.read(), "v2").beat + 1))
            return super().read()

    with pytest.raises(cs.errors.LeaseHeld):
        claim(Renewed(table._location), "v2", "upgrade")


def test_a_process_that_is_gone_is_known_to_be():
    here = Holder.here()
    assert not here.is_gone()
    assert replace(here, born="0").is_gone(), "its number was given to another process"
    assert replace(here, pid=2**22 + 1).is_gone()
    assert not replace(here, pid=2**22 + 1, host="another").is_gone(), "that cannot be known from here"
    assert not replace(here, pid=2**22 + 1, place="").is_gone()


def test_a_holder_that_is_gone_is_taken_over_without_waiting(table):
    held_elsewhere(table, time.time(), term=DAY)
    gone = replace(Holder.here(), pid=2**22 + 1)
    write(table, replace(lease_in(table.read(), "v2"), holder=gone))
    assert claim(table, "v2", "upgrade")[1].holder == gone


@pytest.fixture
def renewer(table):
    """One that renews every 20 ms."""
    lease, _ = claim(table, "v2", "upgrade")
    renewer = LeaseRenewer(table, replace(lease, term=0.02 * BEATS_PER_TERM))
    yield renewer
    renewer.give_back("done")


def until(condition):
    while not condition():
        time.sleep(0.01)


def test_a_renewer_renews_and_tells_how_far_the_work_is(table, renewer):
    renewer.observe(Progress("backfill", 0, 400, 0.0))
    renewer.observe(Progress("backfill", 100, 400, 2.0))
    until(lambda: lease_in(table.read(), "v2").pulse.done == 100)
    lease = lease_in(table.read(), "v2")
    assert (lease.pulse.step, lease.pulse.total, lease.pulse.rate, lease.pulse.eta) == ("backfill", 400, 50.0, 6.0)
    until(lambda: lease_in(table.read(), "v2").beat > lease.beat)
    renewer.require_held()


@pytest.mark.full
def test_the_table_of_leases_stays_small(table, renewer):
    until(lambda: lease_in(table.read(), "v2").beat > 120)
    versions = list(Path(table._uri, "_versions").glob("*.manifest"))
    assert len(versions) < 100


def test_a_lost_lease_is_noticed_and_never_written_again(table, renewer):
    theirs = replace(lease_in(table.read(), "v2"), token="theirs", holder=ELSEWHERE)
    write(table, theirs)
    with pytest.raises(cs.errors.LeaseLost, match="ann on another-host"):
        renewer.require_held()
    renewer.give_back("done")
    assert lease_in(table.read(), "v2") == theirs
