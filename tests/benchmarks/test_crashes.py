"""The crash harness' own parts: what they do does not depend on how long a life lasts."""

import pytest

from benchmarks.crashes.template import OWN, initial_items, make_template
from benchmarks.crashes.writer import FEWEST_BUSY, Hand, Memory, Writer

pytestmark = pytest.mark.full


def test_the_app_never_runs_out_of_items_to_change_and_remove(tmp_path):
    path = make_template(tmp_path, OWN, fragments=1, rows=20)
    memory = Memory(initial_items(fragments=1, rows=20))
    writer = Writer(memory, Hand(path, OWN), first=20, seed=0)
    for _ in range(3000):
        write = writer.choose()
        memory.begin(write)
        memory.end(write)
    assert {bool(write.removed) for write in memory.writes[-100:]} == {True, False}
    assert len(memory.items) > FEWEST_BUSY
