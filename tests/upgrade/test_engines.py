"""Engines: what the driver does with what they give, and what is refused before anything is written."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from dataclasses import dataclass

import lance
import pytest

import compatstore as cs
from compatstore.storage.fragments import commit_columns
from compatstore.upgrade.engines.engine import Engine
from compatstore.upgrade.engines.ray_engine import RayEngine
from compatstore.upgrade.hop import Hop, HopJob, hop_fragment
from compatstore.upgrade.progress import Monitor
from compatstore.upgrade.resolve import resolve_run
from compatstore.upgrade.transform import transformer_of
from galleries import make, orphans, split

NOWHERE = "127.0.0.1:1"


@dataclass(frozen=True)
class Piece:
    rows: int
    number: int = 0


def test_small_neighbours_are_given_together_and_what_is_added_meanwhile_is_done_too():
    jobs, sizes = deque([Piece(500), Piece(500), Piece(100), Piece(5000), Piece(1)]), []
    told = []

    def work(store, shared, job, advance):
        advance(job.rows)
        return shared + job.rows

    for made in Engine().run(work, None, 1, jobs, told.append):
        assert all(outcome == 1 + job.rows for job, outcome in made)
        sizes.append([job.rows for job, _ in made])
        if len(sizes) == 1:
            jobs.append(Piece(7))
    assert sizes == [[500, 500], [100], [5000], [1, 7]]
    assert told == [500, 500, 100, 5000, 1, 7]


def test_an_emptied_queue_ends_it():
    jobs = deque(Piece(2000, number) for number in range(5))
    for made in Engine().run(lambda store, shared, job, advance: job.number, None, None, jobs, lambda rows: None):
        assert made[0][1] == 0
        jobs.clear()


class Wave(Engine):
    """Gives all that is there at once, and lets something happen before the driver sees it."""

    def __init__(self, meanwhile=lambda store, shared, wave: None, lost=()):
        self.meanwhile, self.lost, self.given = meanwhile, list(lost), []

    def run(self, work, store, shared, jobs, advance):
        while jobs:
            wave = [jobs.popleft() for _ in range(len(jobs))]
            made = [(job, work(store, shared, job, advance)) for job in wave]
            for position, (job, _) in enumerate(made):
                if job.fragment.id in self.lost:  # its worker was killed after it had written
                    self.lost.remove(job.fragment.id)
                    made[position] = (job, None)
            self.meanwhile(store, shared, wave)
            self.given.append([job.fragment.id for job, _ in made])
            yield made


def hop(gallery, engine):
    """Hop in an upgrade that has been expanded and stopped before anything was transformed."""
    with contextlib.suppress(cs.errors.Interrupted):
        gallery.upgrade("v2", should_stop=lambda: True)
    context = resolve_run(gallery._catalog, "v2")
    return Hop.of(context, transformer_of(gallery._catalog, context.run), engine).run(Monitor("hop", 0))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "gallery.lance"


@pytest.fixture
def gallery(path):
    """Four fragments of 60 rows or less, ready to hop."""
    gallery = make(str(path), fragments=1, rows=240)
    split(path, 4)
    return gallery


@pytest.fixture
def numbers(path, gallery):
    """Numbers of the fragments."""
    return [fragment.fragment_id for fragment in lance.dataset(str(path)).get_fragments()]


@pytest.mark.full
def test_of_a_wave_only_the_fragment_that_another_writer_changed_is_done_again(path, gallery, numbers):
    others = iter(range(1))

    def another_writer(store, recipe, wave):
        for _ in others:  # the second fragment's columns are replaced by somebody else
            other = HopJob(wave[1].fragment, None)
            commit_columns(store, [hop_fragment(store, recipe, other, lambda rows: None).written])

    engine = Wave(another_writer)
    rows = [fragment.count_rows() for fragment in lance.dataset(str(path)).get_fragments()]
    assert hop(gallery, engine) == len(gallery) - rows[1], "what somebody else made is not made again"
    assert engine.given == [numbers, numbers[1:2]]
    assert not orphans(path), "the refused file is removed"
    assert gallery.upgrade("v2").transformed == 0
    assert gallery.maintenance.verify().clean


@pytest.mark.full
def test_a_lost_job_is_handed_out_again_and_its_file_removed(path, gallery, numbers):
    engine = Wave(lost=[numbers[1], numbers[1], numbers[2]])
    assert hop(gallery, engine) == len(gallery)
    assert engine.given == [numbers, numbers[1:3], numbers[1:2]]
    assert not orphans(path)
    assert gallery.upgrade("v2").transformed == 0
    assert gallery.maintenance.verify().clean


@pytest.mark.full
def test_a_job_that_is_lost_again_and_again_ends_the_hop_and_what_was_committed_stays(path, gallery, numbers):
    said = f"hop fragment {numbers[1]}; .* 10 that were lost"
    with pytest.raises(cs.errors.UpgradeError, match=said):
        hop(gallery, Wave(lost=[numbers[1]] * 10))
    missing = lance.dataset(str(path)).count_rows("v2 IS NULL")
    assert 0 < missing <= 60
    assert gallery.upgrade("v2").transformed == missing
    assert gallery.maintenance.verify().clean


@pytest.mark.full
def test_an_address_at_which_nothing_listens_is_refused_and_the_local_engine_goes_on(gallery):
    run = cs.RunSettings(engine="ray", address=NOWHERE)
    with pytest.raises(cs.errors.UpgradeError, match=f"join the Ray cluster at {NOWHERE}.*leave address out"):
        gallery.upgrade("v2", run=run)
    assert gallery.maintenance.history()[-1].step == "failed"
    assert gallery.upgrade("v2").transformed == len(gallery)
    gallery.upgrade("v2")  # looks at the fragments that were merged
    assert gallery.upgrade("v2", run=run).transformed == 0, "where nothing is left to do, no cluster is needed"


@pytest.mark.parametrize("address", ["nonsense", "host:", "host:http", ":7", "host:99999"])
def test_what_is_no_address_is_refused(path, address):
    with pytest.raises(cs.errors.InvalidInput, match="HOST:PORT, or auto"):
        make(str(path), fragments=1, rows=9).upgrade("v2", run=cs.RunSettings(engine="ray", address=address))


def test_without_ray_the_extra_is_named_before_anything_is_written(path, monkeypatch, files):
    gallery = make(str(path), fragments=1, rows=9)
    monkeypatch.setitem(sys.modules, "ray", None)
    before = files(path)
    with pytest.raises(cs.errors.MissingExtra, match=r'pip install "compatstore\[ray\]"'):
        gallery.upgrade("v2", run=cs.RunSettings(engine="ray"))
    assert files(path) == before


def test_a_finished_upgrade_does_not_import_ray(path, monkeypatch):
    gallery = make(str(path), fragments=1, rows=9)
    gallery.upgrade("v2")
    for name in [name for name in sys.modules if name.partition(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, name)
    gallery.upgrade("v2", run=cs.RunSettings(engine="ray"))
    assert "ray" not in sys.modules


def test_an_engine_that_is_not_used_connects_to_nothing():
    with RayEngine(NOWHERE) as engine:
        assert list(engine.run(lambda *_: None, None, None, deque(), lambda rows: None)) == []
