"""The target's index while an upgrade goes on: built before the backfill, kept up to date, as good as the source's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.storage import recall
from compatstore.storage.recall import APART, GOAL, goal_of
from compatstore.upgrade import indexing
from compatstore.upgrade.backfilling import natives
from compatstore.upgrade.indexing import IndexKeeper, hold_index, index_lease

ROWS, DIM = 600, 8
V1 = cs.EmbeddingVersion("v1", dim=DIM, metric="l2")
IDS = [f"i{row}" for row in range(ROWS)]


@pytest.fixture(autouse=True)
def few_queries(monkeypatch):
    monkeypatch.setattr(recall, "QUERIES", 40)


def drawn(seed):
    return np.random.default_rng(seed).normal(size=(ROWS, DIM)).astype(np.float32)


@pytest.fixture
def bare(tmp_path):
    """A gallery that can embed every item in v2, far from where a transform puts it; its source is indexed."""
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), V1)
    gallery.add({"id": IDS, "vector": drawn(0)})
    encoder = cs.encoders.Precomputed(dict(zip(IDS, 20 + 0.05 * drawn(1), strict=True)))
    gallery.register(cs.EmbeddingVersion("v2", dim=DIM, metric="l2", encoder=encoder))
    gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=16)
    return gallery


@pytest.fixture
def gallery(bare):
    """The same with a transform: v2 = v1."""
    h = Artifact.create(
        "ForwardTransform",
        source=Space.of(V1),
        target=Space.of(bare.version("v2")),
        networks={"h": Architecture(source_dim=DIM, output_dim=DIM)},
        tensors={"h.mixer.0.weight": np.eye(DIM, dtype=np.float32), "h.mixer.0.bias": np.zeros(DIM, np.float32)},
    )
    bare.artifacts.link(h)
    return bare


def by_rows(share=1.0):
    return cs.Backfill(share=share, write_mode="move_rows")


def steps_of(gallery, **how):
    """Steps of an upgrade in order, each once, and the states of the target's index as the backfill began and ended."""
    seen, indexes = [], []

    def look(at):
        if at.step not in seen:
            seen.append(at.step)
        if at.step == "backfill":
            indexes.append(gallery.maintenance.index("v2").status())

    gallery.upgrade("v2", progress=look, **how)
    return seen, indexes


@pytest.mark.full
def test_the_index_is_built_before_the_backfill_and_refreshed_after_it(gallery, monkeypatch):
    monkeypatch.setattr(natives, "IndexKeeper", lambda context: IndexKeeper(context, unindexed_rows=10 * ROWS))
    seen, during = steps_of(gallery, backfill=by_rows(), run=cs.RunSettings(batch_rows=200))
    assert seen.index("hop") < seen.index("index: build") < seen.index("backfill")
    assert (during[0].kind, during[0].cells) == ("IVF_FLAT", 16)
    assert max(at.unindexed_rows for at in during) > 0
    ready = gallery.maintenance.index("v2").status()
    assert (ready.unindexed_rows, ready.deltas, ready.cells) == (0, 1, 16)
    assert ready.recall >= GOAL
    assert "trained again" in next(entry.note for entry in gallery.maintenance.history() if entry.step == "ready")


@pytest.mark.full
def test_rows_that_no_index_holds_are_bounded_whoever_wrote_them(gallery, monkeypatch):
    monkeypatch.setattr(natives, "IndexKeeper", lambda context: IndexKeeper(context, unindexed_rows=150))
    store, waiting = gallery._catalog.store, []
    gallery.upgrade("v2")

    def look(at):
        if at.step == "backfill":
            late = {"id": [f"late{at.done}-{n}" for n in range(60)], "vector": drawn(2)[:60]}
            gallery.add(late)
            waiting.append(max(gallery.maintenance.index(name).status().unindexed_rows for name in ("v1", "v2")))

    gallery.upgrade("v2", backfill=by_rows(), run=cs.RunSettings(batch_rows=50), progress=look)
    assert len(waiting) > 8
    assert max(waiting) <= 150 + 3 * (50 + 60)  # two batches and what was added beside them may be under way
    assert store.count() == ROWS + 60 * len(waiting)


@pytest.mark.full
def test_without_a_hop_the_index_is_built_once_there_are_some_vectors(bare, monkeypatch):
    monkeypatch.setattr(natives, "IndexKeeper", lambda context: IndexKeeper(context, unindexed_rows=100))
    monkeypatch.setattr(indexing, "ROWS_A_CELL", 20)
    _, during = steps_of(bare, backfill=by_rows(), run=cs.RunSettings(batch_rows=160))
    assert during[0].kind == ""
    assert during[-1].kind == "IVF_FLAT"
    assert bare.maintenance.index("v2").status().recall >= GOAL


@pytest.mark.full
def test_the_target_is_to_find_what_the_source_finds(gallery):
    registry = gallery._catalog.registry()
    assert goal_of(registry, "v1") == goal_of(registry, "v2") == GOAL
    gallery.upgrade("v2", backfill=by_rows(0.5))
    registry = gallery._catalog.registry()
    registry = registry.with_version(replace(registry.record("v1"), recall=0.999))
    assert goal_of(registry, "v2") == 0.999 - APART
    gallery.cutover("v2")
    source, target = (gallery.maintenance.index(name).status().recall for name in ("v1", "v2"))
    assert target >= source - APART


@pytest.mark.full
def test_an_index_that_somebody_else_builds_is_left_to_them(gallery):
    with hold_index(cs.Gallery.open(gallery._catalog.store.location.uri)._catalog, "v2", "build"):
        assert gallery.upgrade("v2").state == "ready"
    assert gallery.maintenance.index("v2").status().kind == ""
    gallery.cutover("v2")
    assert gallery.maintenance.index("v2").status().kind == "IVF_FLAT"


@pytest.mark.full
def test_an_upgrade_that_is_stopped_in_a_build_goes_on_with_it(gallery):
    stop = []
    with pytest.raises(cs.errors.Interrupted):
        gallery.upgrade(
            "v2",
            progress=lambda at: stop.append(at.step.startswith("index")),
            should_stop=lambda: bool(stop) and stop[-1],
        )
    assert gallery.upgrade("v2").state == "ready"
    assert gallery.maintenance.index("v2").status().recall >= GOAL


@pytest.mark.full
def test_a_target_that_is_dropped_forgets_its_index(gallery):
    gallery.upgrade("v2")
    assert gallery.status().versions[1].recall is not None
    gallery.abort("v2")
    assert gallery.status().versions[1].recall is None


def test_the_lease_of_an_index_has_a_name_of_its_own():
    assert index_lease("v2") == "the index of v2"
