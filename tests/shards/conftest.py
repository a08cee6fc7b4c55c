"""A database with three shards of 40, 20 and 10 items."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import compatstore as cs
from compatstore.trainers import Pairs, Ridge

SIZES = {"photos_a": 40, "photos_b": 20, "photos_c": 10}
V1 = cs.EmbeddingVersion("v1", dim=4, metric="l2")


@pytest.fixture(scope="session")
def waiting_database(tmp_path_factory):
    """A LanceDB database whose photos_* wait for their upgrade to v2, beside a table that is no shard."""
    folder = tmp_path_factory.mktemp("shards")
    rng = np.random.default_rng(0)
    vectors = {name: rng.normal(size=(size, 4)).astype(np.float32) for name, size in SIZES.items()}
    ids = {name: [f"{name}-{number}" for number in range(size)] for name, size in SIZES.items()}
    everything = np.concatenate(list(vectors.values()))
    np.savez(folder / "v2.npz", id=np.array([i for part in ids.values() for i in part]), vector=everything[:, :3])
    v2 = cs.EmbeddingVersion("v2", dim=3, metric="l2", encoder=cs.encoders.Precomputed(folder / "v2.npz"))
    bridge = Ridge().fit(Pairs(everything, everything[:, :3], source_version=V1, target_version=v2))
    for name, matrix in vectors.items():
        gallery = cs.Gallery.create(f"{folder}/app-db#{name}", V1)
        gallery.add({"id": ids[name], "vector": matrix})
        gallery.register(v2)
        gallery.artifacts.link(bridge)
    cs.Gallery.create(f"{folder}/app-db#notes", V1)
    return folder / "app-db"


@pytest.fixture
def database(waiting_database, tmp_path):
    """Path of a copy of that database."""
    return shutil.copytree(waiting_database, tmp_path / "app-db")


@pytest.fixture
def pattern(database):
    """The address that stands for the shards."""
    return f"{database}#photos_*"


@pytest.fixture
def shards(pattern):
    return cs.Shards.open(pattern)
