"""The short form of `python -m benchmarks.lives`, and that its comparisons notice what is wrong."""

from __future__ import annotations

import lance
import pytest

from benchmarks.crashes.writer import Write
from benchmarks.lives.life import Part
from benchmarks.lives.stages import Stage

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
    part = Part(life, "Store", operations=0)
    part.process.join()
    part.pending = (table, Write(0, False, WRITTEN))
    part.settle()
    assert (part.pending is not None, len(life.lived.violations)) == (pending, violations)
    assert WRITTEN.items() <= life.memories[table].items.items() or rows < 2
