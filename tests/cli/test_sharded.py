"""GALLERY as a pattern: upgrade, status, cutover and rollback of all tables that match."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import compatstore as cs

ROWS = 12


@pytest.fixture
def database(tmp_path):
    """Two shards without v2, and the spec of its encoder."""
    vectors = np.random.default_rng(0).normal(size=(ROWS, 4)).astype(np.float32)
    ids = [f"item-{number}" for number in range(ROWS)]
    np.savez(tmp_path / "v2.npz", id=np.array(ids), vector=vectors[:, :3])
    for name in ("day_1", "day_2"):
        gallery = cs.Gallery.create(f"{tmp_path}/db#{name}", cs.EmbeddingVersion("v1", dim=4, metric="l2"))
        gallery.add({"id": ids, "vector": vectors})
    return tmp_path / "db"


@pytest.fixture
def upgrade(database):
    """Words that upgrade both, without the limits."""
    return ("upgrade", f"{database}#day_*", "v2", "--encoder", f"precomputed:{database.parent / 'v2.npz'}")


@pytest.mark.full
def test_one_command_for_each_step(run, database, upgrade):
    pattern = f"{database}#day_*"
    done = run(*upgrade, "--backfill", 1.0, "--json")
    assert done.code == 0
    assert (done.json["ready"], done.json["failed"], done.json["backfilled"]) == (2, 0, 2 * ROWS)
    status = run("status", pattern, "--json").json
    assert (status["target"], status["native"], status["can_cut_over"]) == ("v2", 2 * ROWS, True)
    said = run("status", pattern).out
    assert "a cutover can be made" in said
    assert run("status", pattern, "--watch").code == 0
    assert run("cutover", pattern, "v2", "--json").json["active"] == "v2"
    assert run("status", f"{database}#day_1", "--json").json["active"] == "v2"
    assert run("rollback", pattern, "--json").json["active"] == "v1"


def test_a_failed_shard_is_told_and_gives_the_exit_code(run, database, upgrade):
    shutil.rmtree(Path(database, "day_1.lance", "_versions"))
    ran = run(*upgrade, "--backfill", 1.0, "--cutover", "--log", "json")
    assert ran.code == 3
    assert "1 ready, 1 failed" in ran.out
    events = [json.loads(line) for line in ran.err.splitlines()]
    assert (events[-1]["exit_code"], events[-1]["result"]["failed"]) == (3, 1)
    assert run("status", f"{database}#day_2", "--json").json["active"] == "v1", "all or none"
    assert run("cutover", f"{database}#day_*", "v2").code == 7


@pytest.mark.full
def test_with_a_cutover_all_are_switched(run, database, upgrade):
    ran = run(*upgrade, "--set", f"backfill.max_rows={2 * ROWS}", "--cutover")
    assert ran.code == 0
    assert "v2 is active: 2 shards switched" in ran.out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("upgrade", "{}#none_*", "v2"), 3),
        (("upgrade", "{}#day_*", "v2", "--dry-run"), 2),
        (("cutover", "{}#day_*", "v2", "--check"), 2),
        (("rollback", "{}#day_*", "v2"), 7),
        (("status", "{}/none#day_*"), 3),
        (("verify", "{}#day_*"), 3),
    ],
)
def test_what_no_pattern_stands_for(run, database, words, code):
    ran = run(*(word.format(database) for word in words))
    assert ran.code == code
    assert "Traceback" not in ran.err
