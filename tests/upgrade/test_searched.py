"""What searches embed reaches the table as a backfill's natives do, whoever else writes, deletes, works or kills."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import compatstore as cs
from compatstore.storage.location import locate
from compatstore.upgrade.backfilling.account import charge, read_spent
from compatstore.upgrade.leases.holding import hold_lease

ITEMS, SHORT, LONG = 60, 4, 6
IDS = [f"item-{number:03d}" for number in range(ITEMS)]
SOURCE = np.random.default_rng(0).normal(size=(ITEMS, SHORT)).astype(np.float32)
WIDE = cs.Cascade(first=12)


def native_of(item, version=0):
    """The native vector of an item at one of its versions: a function of both, as a model's is."""
    return np.random.default_rng([IDS.index(item), version]).normal(size=LONG).astype(np.float32)


class Model:
    """Embeds "ITEM/VERSION"."""

    dim, spec, reads, fingerprint = LONG, "", "source", "model"

    def __init__(self):
        self.items, self.before = 0, lambda: None

    def encode(self, sources):
        self.before()
        self.items += len(sources)
        parts = [source.split("/") for source in sources]
        return np.stack([native_of(item, int(version)) for item, version in parts])


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def gallery(tmp_path, model, linear):
    v1 = cs.EmbeddingVersion("v1", dim=SHORT, metric="l2")
    v2 = cs.EmbeddingVersion("v2", dim=LONG, metric="l2", encoder=model)
    gallery = cs.Gallery.create(str(tmp_path / "gallery.lance"), v1)
    gallery.add({"id": IDS, "vector": SOURCE, "source": [f"{item}/0" for item in IDS]})
    gallery.register(v2)
    gallery.artifacts.link(linear(v1, v2))
    gallery.upgrade("v2")
    return gallery


def ask(gallery, row=0, cascade=WIDE, k=12):
    queries = {"v1": SOURCE[row], "v2": native_of(IDS[row])}
    return gallery.search(queries, k, columns=["id"], serving=cascade)["id"].to_pylist()


def run_of(gallery):
    return gallery._catalog.registry().runs["v2"]


def native_ids(gallery):
    return gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()


def assert_right(gallery, version=lambda item: 0):
    """Each native vector is the model's of the item as it is."""
    natives = native_ids(gallery)
    expected = [native_of(item, version(item)) for item in natives]
    if natives:
        assert np.array_equal(gallery.vectors(natives, "v2"), expected)
    return natives


def test_what_was_embedded_is_native_when_the_search_returns(gallery, model):
    found = ask(gallery)
    assert sorted(assert_right(gallery)) == sorted(found)
    other = cs.Gallery.open(gallery._catalog.store.location.uri, encoders={"v2": model})
    assert ask(other) == found
    assert model.items == 12
    assert gallery.maintenance.verify().clean


@pytest.mark.parametrize("mode", ["move_rows", "rewrite_columns"])
def test_what_was_embedded_once_is_not_embedded_again(gallery, model, mode):
    gallery.upgrade("v2", backfill=cs.Backfill(share=0.0, write_mode=mode))
    found = ask(gallery)
    assert ask(gallery) == found
    assert model.items == gallery.status().upgrades[0].searched.rows == 12
    gallery.upgrade("v2")
    assert sorted(assert_right(gallery)) == sorted(found)
    assert model.items == 12


@pytest.mark.full
def test_an_item_that_changes_while_it_is_embedded_gets_no_wrong_vector(gallery, model):
    first, gone = ask(gallery, k=2, cascade=cs.Cascade(first=2, in_all=0))

    def change():
        model.before = lambda: None
        gallery.add({"id": [first], "vector": SOURCE[[IDS.index(first)]] + 1, "source": [f"{first}/2"]}, upsert=True)
        gallery.delete([gone])

    model.before = change
    ask(gallery)
    natives = assert_right(gallery, lambda item: 2 * (item == first))
    assert not {first, gone} & set(natives)
    ask(gallery)
    assert_right(gallery, lambda item: 2 * (item == first))
    assert gallery.maintenance.verify().clean


def test_while_a_manager_works_nothing_is_embedded(gallery, model):
    embedded = ask(gallery)
    with hold_lease(gallery._catalog, "v2", "upgrade"):
        found = ask(gallery, 30)
        assert sorted(native_ids(gallery)) == sorted(embedded)
        assert ask(gallery) == embedded
    assert model.items == gallery.status().upgrades[0].searched.rows == 12
    assert ask(gallery, 30) != found
    assert_right(gallery)


@pytest.mark.full
def test_a_manager_who_begins_while_a_search_embeds_loses_nothing_and_is_not_kept_waiting(gallery, model):
    def begin():
        model.before = lambda: None
        gallery.upgrade("v2", backfill=0.5)

    model.before = begin
    ask(gallery)
    assert len(assert_right(gallery)) >= ITEMS // 2
    assert gallery.maintenance.verify().clean


@pytest.mark.full
def test_searches_and_writers_side_by_side(gallery, model):
    ending = threading.Event()

    def write():
        times = 0
        while not ending.is_set():
            times += 1
            item = IDS[times % ITEMS]
            gallery.add({"id": [item], "vector": SOURCE[[times % ITEMS]], "source": [f"{item}/{times}"]}, upsert=True)
        return times

    with ThreadPoolExecutor() as threads:
        writing = threads.submit(write)
        list(threads.map(lambda row: ask(gallery, row), range(24)))
        ending.set()
        times = writing.result()
    sources = dict(zip(IDS, gallery.get(IDS, ["source"])["source"].to_pylist(), strict=True))
    assert times
    assert_right(gallery, lambda item: int(sources[item].split("/")[1]))
    assert gallery.maintenance.verify().clean


@pytest.mark.full
def test_the_limit_in_all_holds_over_processes_and_is_of_one_upgrade(gallery, model):
    location, run = locate(gallery._catalog.store.location.uri), run_of(gallery)
    with ThreadPoolExecutor(4) as threads:
        allowed = list(threads.map(lambda _: charge(location, run, 7, 40), range(8)))
    assert sum(allowed) == 40
    assert read_spent(location, run).rows == 40
    assert charge(location, run, -5, 40) == -5
    assert gallery.status().upgrades[0].searched.rows == 35
    ask(gallery, cascade=cs.Cascade(first=12, in_all=40))
    assert model.items == 5
    gallery.abort("v2")
    gallery.upgrade("v2")
    assert gallery.status().upgrades[0].searched.rows == 0


@pytest.mark.full
def test_vectors_of_an_upgrade_that_is_over_are_dropped(gallery, model):
    def abort():
        model.before = lambda: None
        gallery.abort("v2")

    model.before = abort
    ask(gallery)
    gallery.upgrade("v2")
    assert native_ids(gallery) == []
    assert gallery.maintenance.verify().clean


def test_prices_are_those_of_the_upgrade(gallery):
    gallery.upgrade("v2", backfill=cs.Backfill(max_rows=0, price_per_item=0.5))
    ask(gallery)
    assert gallery.status().upgrades[0].searched.cost == pytest.approx(6.0)


VICTIM = """
import sys
sys.path[:0] = {path!r}
import numpy as np
import compatstore as cs
from test_searched import IDS, LONG, SOURCE, Model, native_of, ask
gallery = cs.Gallery.open({uri!r}, encoders={{"v2": Model()}})
cascade = cs.Cascade(first=3)
print("ready", flush=True)
for row in {rows!r}:
    ask(gallery, row, cascade, 3)
"""


@pytest.mark.full
@pytest.mark.parametrize("mode", ["move_rows", "rewrite_columns"])
def test_a_process_that_is_killed_while_it_writes_leaves_a_sound_gallery(gallery, mode):
    gallery.upgrade("v2", backfill=cs.Backfill(share=0.0, write_mode=mode))
    uri, here = gallery._catalog.store.location.uri, str(Path(__file__).parent)
    rng = random.Random(mode)
    for kill in range(2):
        program = VICTIM.format(path=[here, str(Path(here).parent)], uri=uri, rows=list(range(kill * 8, ITEMS)))
        victim = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert victim.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.02, 0.3))
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
        assert gallery.maintenance.verify().clean
        assert_right(gallery)
    spent = gallery.status().upgrades[0].searched.rows
    gallery.upgrade("v2")
    assert len(assert_right(gallery)) <= spent
    assert len(gallery) == ITEMS
    ask(gallery)
    assert gallery.maintenance.verify().clean
