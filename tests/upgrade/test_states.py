"""Every verb in every state: the table in docs/states.md, cell by cell, on real galleries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import compatstore as cs
from compatstore.upgrade.leases.lease import pause
from states import UPGRADE, natives, open_with_encoder
from tiers import few

DOCUMENT = Path(__file__).parents[2] / "docs" / "states.md"


def cells():
    """(state, verb, what follows), from the first table of the document."""
    text = DOCUMENT.read_text()
    lines = text[text.index("| state |") :].split("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [(row[0], verb, cell) for row in rows[2:] for verb, cell in zip(rows[0][1:], row[1:], strict=True)]


def stop_in_the_hop(gallery):
    with pytest.raises(cs.errors.Interrupted):
        gallery.upgrade("v2", should_stop=lambda: True)


def add_in_the_target_and_roll_back(gallery):
    gallery.add({"id": ["new"], "vector": natives()[:1]})
    gallery.rollback()


# By state: the gallery to start from, and what to do with it.
ROADS = {
    "none": ("upgradable", lambda gallery: None),
    "hop": ("upgradable", stop_in_the_hop),
    "backfill": ("backfilling", lambda gallery: None),
    "ready": ("ready", lambda gallery: None),
    "cutover": ("cutover", lambda gallery: None),
    "rolled-back": ("cutover", lambda gallery: gallery.rollback()),
    "rolled-back, with items in the target only": ("cutover", add_in_the_target_and_roll_back),
    "aborted": ("backfilling", lambda gallery: gallery.abort("v2")),
    "retired": ("ready", lambda gallery: gallery.retire("v2")),
    "finished": ("retired", lambda gallery: None),
}
VERBS = {
    "upgrade": lambda gallery: gallery.upgrade("v2", **UPGRADE),
    "pause": lambda gallery: pause(gallery._catalog, "v2"),
    "cutover": lambda gallery: gallery.cutover("v2"),
    "rollback": lambda gallery: gallery.rollback(),
    "abort": lambda gallery: gallery.abort("v2"),
    "retire target": lambda gallery: gallery.retire("v2"),
    "retire source": lambda gallery: gallery.retire("v1"),
}


def state(gallery):
    """The state of the upgrade to v2, in the document's words."""
    run = gallery._catalog.registry().runs.get("v2")
    if run is None:
        return "none"
    if (
        run.state == "rolled-back"
        and "new" in gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()
    ):
        return "rolled-back, with items in the target only"
    return "finished" if run.state == "retired" and gallery.active == "v2" else run.state


@pytest.fixture
def gallery_in(at):
    """A gallery in a state: gallery_in("hop")."""

    def make(name):
        start, road = ROADS[name]
        gallery = open_with_encoder(at(start))
        road(gallery)
        assert state(gallery) == name
        return gallery

    return make


def test_the_document_has_every_cell():
    assert [(state, verb) for state, verb, _ in cells()] == [(state, verb) for state in ROADS for verb in VERBS]


@pytest.mark.parametrize(("before", "verb", "after"), few(10, cells()))
def test_a_verb_in_a_state(gallery_in, before, verb, after):
    gallery = gallery_in(before)
    source = gallery.get(["item-000001"], ["id", "v1"]) if before != "finished" else None
    if after.startswith("refused"):
        written = gallery.status().table_version
        with pytest.raises((cs.errors.UpgradeError, cs.errors.InvalidInput)) as refusal:
            VERBS[verb](gallery)
        assert f"gallery.{after.split('`')[1]}(" in refusal.value.fix
        assert (state(gallery), gallery.status().table_version) == (before, written)
    else:
        VERBS[verb](gallery)
        assert state(gallery) == after
    if source is not None and after != "finished":
        assert gallery.get(["item-000001"], ["id", "v1"]) == source
    assert [f.what for f in gallery.maintenance.verify().findings if f.severity == "error"] == []
    assert gallery.search(gallery.vectors(["item-000001"])[0], k=1)["id"].to_pylist() == ["item-000001"]


@pytest.mark.full
@pytest.mark.parametrize("before", ["hop", "backfill", "ready", "rolled-back"])
def test_an_abort_leaves_nothing_and_a_new_upgrade_starts_from_nothing(gallery_in, before):
    gallery = gallery_in(before)
    gallery.abort("v2")
    versions = {version.name: version for version in gallery.status().versions}
    assert versions["v2"].state == "registered"
    assert (versions["v2"].native, versions["v2"].transformed) == (0, 0)
    assert gallery.status().upgrades == ()
    assert gallery.maintenance.verify().clean
    again = gallery.upgrade("v2", **UPGRADE)
    assert (again.transformed, again.missing, again.backfilled) == (len(gallery), 0, len(gallery) // 4)


def test_an_abort_keeps_vectors_that_are_nowhere_else(gallery_in):
    gallery = gallery_in("cutover")
    vector = gallery.vectors(["item-000001"], "v2")
    gallery.add({"id": ["new"], "vector": vector})
    gallery.rollback()
    with pytest.raises(cs.errors.UpgradeError, match=r"1 items that have one in v2 only.*gallery\.retire\(.v2."):
        gallery.abort("v2")
    assert gallery.vectors(["new"], "v2").tolist() == vector.tolist()


def test_a_retirement_keeps_vectors_that_are_nowhere_else(gallery_in):
    gallery = gallery_in("cutover")
    new = [f"new-{number}" for number in range(7)]
    gallery.add({"id": new, "vector": natives()[:7]})
    gallery.rollback()
    with pytest.raises(
        cs.errors.UpgradeError, match=r"7 items .* in v2 only: new-0, .*\(and 2 more\).*v2., force=True"
    ):
        gallery.retire("v2")
    np.testing.assert_array_equal(gallery.vectors(new, "v2"), natives()[:7])
    assert "v2" in gallery.retire("v2", force=True).dropped
    assert gallery.status().missing == 7


def test_a_killed_abort_is_finished_by_the_next_one(gallery_in, monkeypatch):
    """Killed between its edit of the registry and the end of the columns."""
    gallery = gallery_in("backfill")

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("compatstore.upgrade.retire.drop_leftovers", die)
        with pytest.raises(KeyboardInterrupt):
            gallery.abort("v2")
    assert state(gallery) == "aborted"
    assert "v2" in gallery.abort("v2").dropped
    assert gallery.maintenance.verify().clean
