"""A process that hops is killed at random moments; the gallery must end as if nothing had happened."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import compatstore as cs
from galleries import FRAGMENTS, ROWS, make

KILLS = 30
COLUMNS = ["id", "number", "v1", "v1__side", "v2", "v2__origin", "v2__uncertainty", "v2__basis"]


def contents(path):
    """All that the upgrade may and may not change, in order of id."""
    import lance

    return lance.dataset(str(path)).to_table(columns=COLUMNS).sort_by("id")


def kill_while_hopping(path, rng):
    """Start the upgrade in a process of its own and kill it; True when it was still at work."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    program = Path(__file__).parent.with_name("galleries.py")
    process = subprocess.Popen(
        [sys.executable, str(program), str(path)], stdout=subprocess.PIPE, env=environment, text=True
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(rng.uniform(0, 0.08))
    process.send_signal(signal.SIGKILL)
    rest = process.communicate()[0]
    assert process.returncode in (-signal.SIGKILL, 0)
    return first == "hopping\n" and "done" not in rest and process.returncode == -signal.SIGKILL


@pytest.mark.timeout(280)
def test_a_killed_hop_goes_on_and_ends_bit_equal(tmp_path):
    template = tmp_path / "template.lance"
    make(str(template))
    before = contents_of_source(template)
    whole = tmp_path / "whole.lance"
    shutil.copytree(template, whole)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    cs.Gallery.open(str(whole)).upgrade("v2")
    expected = contents(whole)

    rng = random.Random(7)
    kills, galleries, interrupted = 0, 0, 0
    while kills < KILLS:
        galleries += 1
        path = tmp_path / f"killed-{galleries}.lance"
        shutil.copytree(template, path)
        while kills < KILLS and kill_while_hopping(path, rng):
            kills += 1
            half = cs.Gallery.open(str(path)).status()
            target = next(version for version in half.versions if version.name == "v2")
            assert half.rows == before.num_rows
            assert half.missing == 0, "the active version stays whole"
            interrupted += 0 < target.missing < half.rows
            assert_rows_are_whole(path)
        report = cs.Gallery.open(str(path)).upgrade("v2")
        assert report.state == "ready"
        assert report.missing == 0
        assert contents(path).equals(expected), "bit-equal to a run that nobody killed"
        assert contents_of_source(path).equals(before), "the source is untouched and no row is lost"
        again = cs.Gallery.open(str(path))
        version = again.status().table_version
        assert again.upgrade("v2").transformed == 0
        assert again.status().table_version == version, "a finished upgrade is a no-op"
        shutil.rmtree(path)
    assert interrupted >= KILLS // 3, "kills must land in the middle of the hop to mean anything"
    assert len(expected) == FRAGMENTS * ROWS - len(range(0, FRAGMENTS * ROWS, 97))


def contents_of_source(path):
    import lance

    return lance.dataset(str(path)).to_table(columns=["id", "number", "v1", "v1__side"]).sort_by("id")


def assert_rows_are_whole(path):
    """Vector, origin, uncertainty and basis of a row come and go together."""
    table = contents(path)
    present = [np.asarray(table[name].is_valid()) for name in ("v2", "v2__origin", "v2__uncertainty", "v2__basis")]
    assert all((column == present[0]).all() for column in present)
