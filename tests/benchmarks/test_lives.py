"""Galleries outlive kills and suspensions: the short form of `python -m benchmarks lives`, and its comparisons."""

from __future__ import annotations

from contextlib import ExitStack

import lance
import pytest

from benchmarks.lives.life import Part
from benchmarks.lives.run import cluster
from benchmarks.lives.stage import SETTINGS, Stage
from benchmarks.lives.writers import Write

pytestmark = pytest.mark.full

WRITTEN = {"Store's-1": "Store's-1/0", "Store's-2": "Store's-2/0"}


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    return Stage(tmp_path_factory.mktemp("lives"))


def test_a_gallery_outlives_a_random_life(stage):
    lived = stage.live(seed=0, kills=3, suspensions=1)
    assert lived.violations == []
    assert lived.writes.total() > 20
    assert lived.searches["compared"] > 0
    assert lived.looks == lived.kills.total() + 1


def scripted(condition):
    """Seed of the first script of a kind."""
    return next(seed for seed, setting in enumerate(SETTINGS) if setting.script and condition(setting))


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(scripted(lambda one: not one.quiet), id="beside writers"),
        pytest.param(scripted(lambda one: one.quiet and not one.linked), id="self-training"),
        # As many seconds each, and with less that the two above have not.
        pytest.param(scripted(lambda one: one.quiet and one.side), id="alone", marks=pytest.mark.slow),
        pytest.param(scripted(lambda one: one.kind.adopted), id="adopted", marks=pytest.mark.slow),
        pytest.param(scripted(lambda one: one.fragments > 64), id="waves", marks=pytest.mark.slow),
    ],
)
def test_a_gallery_outlives_kills_all_over_a_script(stage, seed):
    lived = stage.live(seed, kills=2, suspensions=1)
    assert lived.violations == []
    assert lived.kills["Operator"] >= 2
    assert lived.suspensions["Operator"] >= 1
    assert len(lived.commands) >= 3, "blows must be spread to mean anything"
    assert lived.twins == SETTINGS[seed].quiet
    assert SETTINGS[seed].quiet or lived.writes.total() > lived.kills.total()
    assert lived.searches.total() > lived.kills.total()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:lance is not fork-safe")  # Ray forks to start its programs
def test_an_upgrade_by_ray_outlives_kills_of_its_processes(tmp_path):
    pytest.importorskip("ray")
    with ExitStack() as stack:
        lived = Stage(tmp_path, ray=cluster(stack)).live(seed=0, kills=2, suspensions=0)
    assert lived.violations == []
    assert lived.twins == 1
    assert lived.kills.total() > lived.kills["Operator"], "workers and actors are killed as well"


def test_an_end_unlike_the_undisturbed_one_is_noticed(stage):
    seed = scripted(lambda one: one.quiet and one.side)
    life = stage.life(seed, kills=0, suspensions=0)
    assert life.run().violations == []
    twin, embedded = life._twin
    life._twin = twin.set_column(twin.schema.get_field_index("label"), "label", [["x"] * twin.num_rows]), embedded
    (life.folder / "encoded").write_text("a/0\na/0\n")
    life._compare_with_twin()
    columns, often = life.lived.violations
    assert "undisturbed" in columns
    assert "2 items" not in often
    assert "1 items were embedded more often" in often


@pytest.fixture
def life(stage):
    """A life before it begins."""
    return stage.life(seed=0, kills=0, suspensions=0)


def test_a_lost_item_is_noticed(life):
    life.look("in a test")
    assert life.lived.violations == []
    lance.dataset(life.scene.tables[0]).delete("source = 'it''em-00001/0'")
    life.look("in a test")
    assert "1 rows are lost: it'em-00001" in life.lived.violations[0]


@pytest.mark.parametrize(("rows", "pending", "violations"), [(0, True, 0), (1, True, 1), (2, False, 0)])
def test_a_write_is_there_as_a_whole_or_not_at_all(life, rows, pending, violations):
    table = life.scene.tables[0]
    there = life.scene.kind.rows(dict(list(WRITTEN.items())[:rows])) if rows else None
    if there is not None:
        lance.write_dataset(there, table, mode="append")
    part = Part(life, "Store", range(0))
    part.process.join()
    part.pending = (table, Write(False, WRITTEN))
    part.settle()
    assert (part.pending is not None, len(life.lived.violations)) == (pending, violations)
    assert WRITTEN.items() <= life.memories[table].items.items() or rows < 2
