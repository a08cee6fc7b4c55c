"""Shards whose encoder is faster than learning: each is embedded as a whole, and says so."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.shown import view
from compatstore.trainers import Ridge

SIZES = {"photos_a": 160, "photos_b": 120}


class Slow(cs.Learn):
    """Says that an hour of learning is left, however fast the machine is."""

    def train(self, training, tried=None):
        tried(0, 1, 3600.0)
        return super().train(training, tried)


SLOW = Slow(first=40)
QUICK = cs.Learn(first=40, candidates=(Ridge(penalties=(0.1,)),))


def lines_of(result):
    return [part for part in view(result) if isinstance(part, str)]


@pytest.fixture
def shards(tmp_path):
    """Two shards without an artifact to v2, whose model looks vectors up; in the second one these are noise."""
    rng = np.random.default_rng(0)
    for name, size in SIZES.items():
        gallery = cs.Gallery.create(f"{tmp_path}/app-db#{name}", cs.EmbeddingVersion("v1", dim=4, metric="l2"))
        ids, vectors = [f"{name}-{n}" for n in range(size)], rng.normal(size=(size, 4)).astype(np.float32)
        gallery.add({"id": ids, "vector": vectors, "label": (vectors[:, 0] > 0).astype(int)})
        seen = vectors[:, :3] if name == "photos_a" else rng.normal(size=(size, 3)).astype(np.float32)
        np.savez(tmp_path / f"{name}.npz", id=np.array(ids), vector=seen)
        lookup = cs.encoders.Precomputed(tmp_path / f"{name}.npz")
        gallery.register(cs.EmbeddingVersion("v2", dim=3, metric="l2", encoder=lookup))
    return cs.Shards.open(f"{tmp_path}/app-db#photos_*")


def test_each_shard_is_embedded_as_a_whole(shards):
    done = shards.upgrade("v2", learn=SLOW)
    assert (done.ready, done.failed, done.backfilled, done.missing) == (2, 0, sum(SIZES.values()), 0)
    for shard, size in zip(done.shards, SIZES.values(), strict=True):
        assert shard.result.full_backfill.startswith(f"full backfill instead of learning: {size - 40} more items take")
        said = " ".join(" ".join(lines_of(done)).split())
        assert said.count(f"{shard.gallery}: full backfill instead of learning") == 1
    assert [shard.native for shard in shards.status("v2").shards] == list(SIZES.values())
    assert lines_of(done)[-1].startswith("next: shards.cutover(")


def test_no_cutover_is_advised_where_one_measured_no_gain(shards):
    done = shards.upgrade("v2", learn=QUICK, backfill=0.5, gates=cs.Gates(labels="label"))
    lacking = [shard.gallery for shard in done.shards if shard.result.has_no_gain]
    assert shards.addresses[1] in lacking
    last = lines_of(done)[-1]
    assert last.startswith(f"next: no gain was measured in {', '.join(lacking)}: embed more before a cutover: ")
    assert "cutover(" not in last


def test_a_share_that_is_named_stays_in_force(shards):
    done = shards.upgrade("v2", learn=QUICK, backfill=0.5)
    assert done.backfilled == sum(SIZES.values()) // 2
    assert [shard.result.full_backfill for shard in done.shards] == ["", ""]
