"""The life of an upgrade: whatever happens in whatever order, what must hold holds.

Hypothesis plays an owner who adds, replaces and deletes items (through the API, or behind its back through plain
Lance), upgrades, cuts over, rolls back and retires, and compares the gallery with a dictionary after every step.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from properties import examples

DIM, TARGET_DIM = 3, 5
KEYS = st.integers(0, 11).map(lambda number: f"it'em-{number}")
VECTORS = st.integers(0, 10**6).map(lambda seed: np.random.default_rng(seed).normal(size=DIM).astype(np.float32))


def linear(source, target):
    """x -> Wx + b, an artifact whose result can be computed in one line."""
    rng = np.random.default_rng(3)
    tensors = {
        "h.mixer.0.weight": rng.normal(size=(target.dim, source.dim)).astype(np.float32),
        "h.mixer.0.bias": rng.normal(size=target.dim).astype(np.float32),
    }
    networks = {"h": Architecture(source_dim=source.dim, output_dim=target.dim)}
    return Artifact.create(
        "ForwardTransform",
        source=Space.of(source),
        target=Space.of(target),
        networks=networks,
        tensors=tensors,
    )


class Owner(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.path = str(Path(self.folder, "gallery.lance"))
        self.items: dict[str, np.ndarray] = {}
        self.late: dict[str, np.ndarray] = {}
        self.up_to_date = False

    def teardown(self):
        shutil.rmtree(self.folder)

    @initialize()
    def create(self):
        self.v1 = cs.EmbeddingVersion("v1", dim=DIM, metric="l2")
        self.v2 = cs.EmbeddingVersion("v2", dim=TARGET_DIM, metric="l2")
        self.gallery = cs.Gallery.create(self.path, self.v1)
        self.gallery.register(self.v2)
        self.h = linear(self.v1, self.v2)
        self.gallery.artifacts.link(self.h)

    @rule(key=KEYS, vector=VECTORS)
    def put(self, key, vector):
        self.gallery.add({"id": [key], "vector": [vector]}, version="v1", upsert=True)
        self.items[key] = vector

    @rule(key=KEYS, vector=VECTORS)
    def put_behind_its_back(self, key, vector):
        rows = pa.table(
            {
                "id": pa.array([key]),
                "v1": pa.FixedSizeListArray.from_arrays(pa.array(vector), DIM),
                "v1__origin": pa.array(["native"]),
            },
            schema=pa.schema([lance.dataset(self.path).schema.field(name) for name in ("id", "v1", "v1__origin")]),
        )
        merge = lance.dataset(self.path).merge_insert("id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)
        self.items[key] = vector
        self.up_to_date = False

    @rule(key=KEYS)
    def delete(self, key):
        assert self.gallery.delete([key]) == (key in self.items)
        self.items.pop(key, None)

    @rule()
    def compact(self):
        lance.dataset(self.path).optimize.compact_files()

    @rule(reopen=st.booleans())
    def upgrade(self, reopen):
        if reopen:
            self.gallery = cs.Gallery.open(self.path)
        if self.gallery.active == "v2" and not any(r.target == "v2" for r in self.gallery.status().upgrades):
            return
        report = self.gallery.upgrade("v2")
        assert report.missing == 0
        self.up_to_date = True

    @precondition(lambda self: self.gallery.active == "v1" and self.state() == "ready")
    @rule()
    def cut_over(self):
        switched = self.gallery.cutover("v2")
        assert (switched.active, switched.missing) == ("v2", 0)
        self.up_to_date = True

    @precondition(lambda self: self.state() in ("ready", "cutover", "hop"))
    @rule()
    def roll_back(self):
        assert self.gallery.rollback().active == "v1"
        self.up_to_date = False

    @precondition(lambda self: self.state() in ("ready", "rolled-back") and self.gallery.active == "v1")
    @rule()
    def abandon(self):
        assert self.gallery.retire("v2").changed
        assert "v2" not in lance.dataset(self.path).schema.names
        self.up_to_date = False

    def state(self):
        """What `status` lists; asked many times between two steps, so it is read where `status` reads it."""
        run = self.gallery._catalog.registry().runs.get("v2")
        return "none" if run is None or run.state in ("retired", "aborted") else run.state

    @invariant()
    def no_row_is_lost_or_doubled_and_the_source_is_as_it_was_written(self):
        table = lance.dataset(self.path).to_table(columns=["id", "v1"])
        found = dict(zip(table["id"].to_pylist(), table["v1"].to_pylist(), strict=True))
        assert table.num_rows == len(found) == len(self.items)
        assert found.keys() == self.items.keys()
        for key, vector in self.items.items():
            np.testing.assert_array_equal(np.float32(found[key]), vector)

    @invariant()
    def status_counts_what_cannot_be_searched(self):
        status = self.gallery.status()
        column = next(version.name for version in status.versions if version.name == status.active)
        present = lance.dataset(self.path).count_rows(f"{column} IS NOT NULL")
        assert {upgrade.target: upgrade.state for upgrade in status.upgrades}.get("v2", "none") == self.state()
        assert status.rows == len(self.items)
        assert status.missing == len(self.items) - present

    @invariant()
    def target_vectors_are_what_their_origin_says(self):
        if "v2" not in lance.dataset(self.path).schema.names:
            return
        table = lance.dataset(self.path).to_table(columns=["id", "v2", "v2__origin", "v2__input_hash"])
        for row in table.to_pylist():
            assert (row["v2"] is None) == (row["v2__origin"] is None) == (row["v2__input_hash"] is None)
            if row["v2"] is not None:
                assert row["v2__origin"] == self.h.short_id
        if self.up_to_date:
            expected = {key: self.h.apply([vector]).vectors[0] for key, vector in self.items.items()}
            for row in table.to_pylist():
                np.testing.assert_allclose(row["v2"], expected[row["id"]], rtol=1e-5, atol=1e-6)

    @invariant()
    def a_search_finds_every_item_and_nothing_else(self):
        if not self.items or self.gallery.active == "v2":
            return
        found = self.gallery.search(np.zeros(DIM, np.float32), k=100)
        assert sorted(found["id"].to_pylist()) == sorted(self.items)
        distances = {key: float((vector**2).sum()) for key, vector in self.items.items()}
        np.testing.assert_allclose(found["_distance"].to_pylist(), sorted(distances.values()), rtol=1e-4)


TestOwner = Owner.TestCase
TestOwner.settings = examples(18, steps=18)
TestOwner.pytestmark = [pytest.mark.full]
