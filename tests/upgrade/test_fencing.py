"""A manager that loses its lease at the worst moment: after it looked whether it holds it, and before it writes."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import compatstore as cs
from compatstore.encoders import Function
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.location import locate
from compatstore.upgrade.backfilling import natives
from compatstore.upgrade.leases.holding import LeaseRenewer
from compatstore.upgrade.leases.lease import key_of, lease_in
from compatstore.upgrade.requests.run_settings import RunSettings
from galleries import SOURCE, TARGET, artifact, items
from properties import examples
from tiers import few

ROWS, BUDGET, BATCH = 60, 40, 10
WAVES = "waves"  # move_rows, with the natives staged first as in a gallery of many fragments
MODES = ("move_rows", "rewrite_columns", WAVES)


def native_of(ids):
    """What the encoder makes of items: (n, dim) float32, a function of the id alone."""
    numbers = np.array([int(i.split("-")[1]) for i in ids])
    return np.cos(numbers[:, None] + np.arange(TARGET.dim)).astype(np.float32)


ENCODER = Function(native_of, dim=TARGET.dim, fingerprint="cosines", reads="id")
UPGRADED_TO = replace(TARGET, encoder=ENCODER)
BRIDGE = artifact(SOURCE, UPGRADED_TO)


def opened(path):
    return cs.Gallery.open(str(path), encoders={"v2": ENCODER})


def upgrade(gallery, mode):
    backfill = cs.Backfill(max_rows=BUDGET, write_mode="move_rows" if mode == WAVES else mode)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(natives, "MARKED", 0 if mode == WAVES else natives.MARKED)
        return gallery.upgrade("v2", backfill=backfill, run=RunSettings(batch_rows=BATCH))


VERBS = {
    "upgrade": upgrade,
    "cutover": lambda gallery, _: gallery.cutover("v2"),
    "abort": lambda gallery, _: gallery.abort("v2", wait=0),  # the one that is suspended stops for nobody
    "retire": lambda gallery, _: gallery.retire("v2"),
}
# By the verb of the one that is suspended: the state that it finds, and what its successor does.
STARTS = {
    "upgrade": ("upgradable", ("upgrade", "abort", "retire")),
    "cutover": ("ready", ("upgrade", "cutover", "abort")),
    "abort": ("ready", ("upgrade", "abort", "retire")),
    "retire": ("ready", ("upgrade", "retire")),
}


@pytest.fixture(scope="module")
def starts(tmp_path_factory):
    """By state and write mode, the folder of a gallery."""
    folder = tmp_path_factory.mktemp("fencing")
    made = {}
    for mode in MODES:
        path = folder / f"{mode}.lance"
        gallery = cs.Gallery.create(str(path), SOURCE)
        gallery.add(items(0, ROWS))
        gallery.add(items(ROWS, ROWS))
        gallery.register(UPGRADED_TO)
        gallery.artifacts.link(BRIDGE)
        made["upgradable", mode] = shutil.copytree(path, folder / f"upgradable-{mode}" / "g.lance")
        upgrade(opened(path), mode)
        made["ready", mode] = shutil.copytree(path, folder / f"ready-{mode}" / "g.lance")
    return made


def take_over(path, work):
    """Let another manager work, as if the one that holds the lease had not answered for a term."""
    table = LeaseTable(locate(str(path)))
    while True:
        records = table.read()
        held = lease_in(records, "v2")
        table.swap(records.version, key_of("v2"), replace(held, renewed=0.0, term=0.001))
        with contextlib.suppress(cs.errors.LeaseHeld):  # a renewal came first
            return work()


def suspended_after(monkeypatch, look, meanwhile):
    """Call `meanwhile` when the lease was looked at for the nth time and found held; what follows comes too late."""
    looks, real, over = itertools.count(1), LeaseRenewer.require_held, []

    def require_held(self):
        real(self)
        if not over and next(looks) == look:
            over.append(look)
            meanwhile()

    monkeypatch.setattr(LeaseRenewer, "require_held", require_held)
    return over


def require_sound(path, mode):
    """Whatever happened: vectors are what their origins say, and nothing was paid for or stored beyond the budget."""
    gallery = opened(path)
    table = lance.dataset(str(path)).to_table()
    assert table.num_rows == 2 * ROWS == len(set(table["id"].to_pylist()))
    # Natives that are staged too late, and empty columns that are added too late, count for nothing and stay.
    harmless = ("staged natives", "unused columns")
    found = [finding for finding in gallery.maintenance.verify().findings if finding.check not in harmless]
    assert [finding for finding in found if finding.severity != "note"] == []
    spent = [run.spent.rows for run in gallery.status().upgrades]
    report = upgrade(gallery, mode) if gallery.active == "v1" else None
    assert all(rows <= BUDGET for rows in spent)
    rows = {row["id"]: row for row in lance.dataset(str(path)).to_table().to_pylist()}
    natives = [key for key, row in rows.items() if row["v2__origin"] == "native"]
    assert len(natives) <= BUDGET
    assert len(natives) >= BUDGET - 2 * BATCH, "at most the batches at hand are lost"
    assert report is None or (report.state, report.missing, report.spent.rows) == ("ready", 0, BUDGET)
    np.testing.assert_array_equal([rows[key]["v2"] for key in natives], native_of(natives))
    others = sorted(rows.keys() - set(natives))
    made = BRIDGE.apply([rows[key]["v1"] for key in others], [rows[key]["v1__side"] for key in others]).vectors
    np.testing.assert_allclose([rows[key]["v2"] for key in others], made, rtol=1e-4, atol=1e-5)
    assert gallery.maintenance.verify().clean, gallery.maintenance.verify().findings


def play(starts, folder, monkeypatch, first, second, mode, look):
    """One manager is suspended after it looked at its lease; another takes over and comes to its end.

    Returns:
        Whether the first one ever looked at its lease that often.
    """
    path = shutil.copytree(starts[STARTS[first][0], mode], Path(folder) / "g.lance")

    def meanwhile():
        with contextlib.suppress(cs.errors.UpgradeError):  # nothing to abort yet, nothing ready yet
            take_over(path, lambda: VERBS[second](opened(path), mode))

    with monkeypatch.context() as patch:
        over = suspended_after(patch, look, meanwhile)
        with contextlib.suppress(cs.errors.LeaseLost, cs.errors.Interrupted):
            VERBS[first](opened(path), mode)
    require_sound(path, mode)
    shutil.rmtree(path)
    return bool(over)


# Each pair in one mode, and each first one in each where it has as many successors; an upgrade's own in all of them.
PAIRS = [(first, second) for first, (_, others) in STARTS.items() for second in others]
LIVES = [(*pair, MODES[place % len(MODES)]) for place, pair in enumerate(PAIRS)]
LIVES += [("upgrade", "upgrade", mode) for mode in MODES[1:]]


@pytest.mark.parametrize(("first", "second", "mode"), few(1, LIVES))
def test_what_is_written_too_late_has_no_effect(starts, tmp_path_factory, monkeypatch, first, second, mode):
    @given(look=st.integers(1, 45))
    @examples(4)
    def at(look):
        play(starts, tmp_path_factory.mktemp("life"), monkeypatch, first, second, mode, look)

    at()
