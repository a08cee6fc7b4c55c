"""What a plan lists beside hop and backfill: the empty columns, the catch-up and the index, each with its time."""

from __future__ import annotations

import time

import numpy as np
import pytest

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.storage.index_status import build_seconds, index_bytes
from compatstore.storage.indexes import VectorIndex
from compatstore.upgrade.backfilling.embeddable import PROBE_SECONDS

V1, V2 = cs.EmbeddingVersion("v1", dim=8, metric="l2"), cs.EmbeddingVersion("v2", dim=16, metric="l2")


@pytest.fixture
def bare(tmp_path):
    """600 items of a version without an index, and a transform to the next."""
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), V1)
    vectors = np.random.default_rng(0).normal(size=(600, 8)).astype(np.float32)
    gallery.add({"id": [f"item-{number}" for number in range(600)], "vector": vectors})
    gallery.register(V2)
    weights = np.random.default_rng(1).normal(size=(16, 8)).astype(np.float32)
    h = Artifact.create(
        "ForwardTransform",
        source=Space.of(V1),
        target=Space.of(V2),
        networks={"h": Architecture(source_dim=8, output_dim=16)},
        tensors={"h.mixer.0.weight": weights, "h.mixer.0.bias": np.zeros(16, np.float32)},
    )
    gallery.artifacts.link(h)
    return gallery


@pytest.fixture
def gallery(bare):
    """The same with an index."""
    bare.maintenance.index().create(kind="IVF_FLAT", num_partitions=4)
    return bare


def steps(gallery):
    return {step.name: step for step in gallery.upgrade("v2", dry_run=True).steps}


def test_the_index_is_listed_with_its_rows_and_time(gallery):
    planned = steps(gallery)
    assert list(planned) == ["expand", "hop", "index", "catch-up", "cutover"]
    index = planned["index"]
    assert (index.rows, index.bytes) == (600, 600 * (4 * 16 + 8))
    assert index.seconds == pytest.approx(build_seconds(VectorIndex("IVF_FLAT", "l2", 4), 600, 16))
    assert index.note == "build IVF_FLAT of 4 cells, as v1 has, and measure its recall"
    assert all(planned[name].seconds > 0 for name in ("expand", "hop", "catch-up"))


@pytest.mark.full
def test_what_is_built_is_no_longer_listed(gallery):
    gallery.upgrade("v2")
    assert list(steps(gallery)) == ["cutover"]
    gallery.add({"id": ["late"], "vector": np.ones((1, 8), np.float32)})
    assert "at cutover" in steps(gallery)["index"].note
    gallery.cutover("v2")
    assert list(steps(gallery)) == []


def test_a_source_without_an_index_asks_for_none(bare):
    assert "index" not in steps(bare)


@pytest.mark.full
def test_the_index_is_reported_as_a_step_of_its_own(gallery):
    seen = []
    gallery.upgrade("v2", progress=seen.append)
    steps = [at.step for at in seen]
    assert steps.index("index: build") < steps.index("index: measure recall")


def test_time_grows_with_rows_values_and_cells():
    def seconds(kind="IVF_PQ", rows=50_000, width=64, cells=100):
        return build_seconds(VectorIndex(kind, "l2", cells), rows, width, cores=1)

    assert seconds() < seconds(rows=100_000) < seconds(rows=100_000, width=128)
    assert seconds(cells=10) < seconds(cells=100) < seconds(cells=1000)
    assert seconds("IVF_FLAT") < seconds("IVF_HNSW_FLAT") < seconds("IVF_HNSW_PQ")
    assert build_seconds(VectorIndex("IVF_PQ", "l2", 9), 1000, 64, cores=4) == pytest.approx(
        build_seconds(VectorIndex("IVF_PQ", "l2", 9), 1000, 64, cores=1) / 4
    )


@pytest.mark.parametrize(
    ("kind", "bytes_a_row"),
    [("IVF_FLAT", 4 * 64 + 8), ("IVF_SQ", 64 + 8), ("IVF_PQ", 8 + 8), ("IVF_HNSW_SQ", 64 + 168)],
)
def test_bytes_are_those_of_what_a_kind_stores(kind, bytes_a_row):
    assert index_bytes(VectorIndex(kind, "l2", 4), 100, 64) == 100 * bytes_a_row


def test_a_model_that_is_loaded_by_its_first_batch_is_not_taken_for_a_slow_one(tmp_path):
    loaded = []

    def embed(texts):
        if not loaded:
            loaded.append(time.sleep(PROBE_SECONDS + 0.5))
        return [[float(len(text)), 1.0] for text in texts]

    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), V1)
    vectors = np.random.default_rng(0).normal(size=(600, 8)).astype(np.float32)
    gallery.add(
        {"id": [f"{n}" for n in range(600)], "source": ["text " * (n + 1) for n in range(600)], "vector": vectors}
    )
    encoder = cs.encoders.Function(embed, dim=2, fingerprint="lengths")
    gallery.register(cs.EmbeddingVersion("v2", dim=2, metric="l2", encoder=encoder))
    planned = {step.name: step for step in gallery.upgrade("v2", backfill=0.5, dry_run=True).steps}
    assert planned["backfill"].seconds < PROBE_SECONDS, "300 items, of which the first batch alone took longer"
