"""A gallery in two spaces is ranked by every merge as a reference does that was written from the definitions."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.evaluation import Calibration, Estimate, Merge
from compatstore.search.execute import execute
from compatstore.search.plan import plan_both, plan_search
from compatstore.storage.records import MergeRecord
from lazily import Lazy
from properties import examples

pytestmark = pytest.mark.full

lancedb = Lazy("lancedb")

ROWS, SHORT, LONG = 48, 5, 8
IDS = [f"item-{number:02d}" for number in range(ROWS)]
DELETED, ALONE = IDS[3:9], ["alone-0", "alone-1"]  # the latter have a vector in the target only


def unit(matrix):
    return matrix / np.linalg.norm(matrix, axis=-1, keepdims=True)


DISTANCES = {
    "l2": lambda q, x: float(((q - x) ** 2).sum()),
    "cosine": lambda q, x: float(1 - unit(q) @ unit(x)),
    "dot": lambda q, x: float(1 - q @ x),
}
# Name -> artifact kind, metric, type of the vectors, share of natives, whether the table is an app's.
STATES = {
    "identity, some native": ("Identity", "l2", "float32", 0.4, False),
    "prefix, some native": ("Prefix", "cosine", "float16", 0.5, False),
    "adapter, none native": ("QueryAdapter", "cosine", "float32", 0.0, False),
    "adapter, some native": ("QueryAdapter", "dot", "float16", 0.3, False),
    "adapter, all native": ("QueryAdapter", "l2", "float32", 1.0, False),
    "adapter, an app's table": ("QueryAdapter", "l2", "float32", 0.6, True),
    "both queries, some native": (None, "l2", "float16", 0.4, False),
    "both queries, an app's table": (None, "cosine", "float32", 0.5, True),
}


class World:
    """A gallery, and what the reference knows of it."""

    def __init__(self, folder, kind, metric, dtype, share, adopted):
        random = np.random.default_rng(7)
        self.kind, self.metric, self.dtype = kind, metric, dtype
        dim = SHORT if kind == "Identity" else LONG
        stored, self.native = (
            random.normal(size=(ROWS + len(ALONE), d)).astype(dtype).astype(np.float32) for d in (SHORT, dim)
        )
        self.stored = stored
        self.ids = [*IDS, *ALONE]
        encoder = cs.encoders.Precomputed(dict(zip(self.ids, self.native, strict=True)))
        v1 = cs.EmbeddingVersion("v1", dim=SHORT, metric=metric, dtype=dtype)
        v2 = cs.EmbeddingVersion("v2", dim=dim, metric=metric, dtype=dtype, encoder=encoder)
        rows = {"id": IDS, "number": list(range(ROWS))}
        if adopted:
            vectors = pa.FixedSizeListArray.from_arrays(stored[:ROWS].ravel(), SHORT)
            items = pa.table({"key": IDS, "at": vectors, "number": list(range(ROWS))})
            table = lancedb.connect(str(folder / "app")).create_table("items", items)
            self.gallery = cs.Gallery.adopt(table, v1, vector="at", id="key")
        else:
            self.gallery = cs.Gallery.create(str(folder / "gallery.lance"), v1)
            self.gallery.add({**rows, "vector": stored[:ROWS]})
        self.key = "key" if adopted else "id"
        self.gallery.register(v2)
        self.adapter = self.artifact(v1, v2, random) if kind else None
        self.bridge = self.gallery.artifacts.link(self.adapter) if kind else ""
        limits = {"share": share} if kind else {"share": 1.0, "max_rows": int(share * ROWS)}
        self.gallery.upgrade("v2", backfill=cs.Backfill(**limits))
        if share and not adopted:
            self.gallery.add({"id": ALONE, "vector": self.native[ROWS:], "number": [50, 51]}, version="v2")
        self.gallery.delete(DELETED)
        self.there = {version: self.known(version) for version in ("v1", "v2")}

    def artifact(self, v1, v2, random):
        network, more = Architecture(source_dim=v2.dim, output_dim=SHORT), {}
        if self.kind == "QueryAdapter":
            tensors = {f"h.{name}": random.normal(size=shape) for name, shape in network.shapes().items()}
            more = {"networks": {"h": network}, "tensors": tensors}
        return Artifact.create(self.kind, source=Space.of(v1), target=Space.of(v2), **more)

    def known(self, version):
        """Ids that have a vector of a version."""
        return set(
            self.gallery.scan([self.gallery.columns.id], native=[version])
            .to_arrow()[self.gallery.columns.id]
            .to_pylist()
        )

    def asked(self, seed):
        """A query in both versions."""
        random = np.random.default_rng(seed)
        return {"v1": random.normal(size=SHORT).astype(np.float32), "v2": self.native[0] + random.normal(
            size=self.native.shape[1]).astype(np.float32)}  # fmt: skip

    def part_query(self, asked):
        """What the source's part is searched with."""
        target = asked["v2"]
        if self.kind == "Prefix":
            return unit(target[:SHORT])
        if self.kind == "QueryAdapter":
            return self.adapter.apply(target[None]).vectors[0]
        return asked["v1"] if self.kind is None else target

    def distance(self, query, vector):
        """Lance rounds a query to the type of the column."""
        return DISTANCES[self.metric](query.astype(self.dtype).astype(np.float64), vector.astype(np.float64))

    def reference(self, asked, merge, calibration, where):
        """Every item that can be found, best first: (distance shown, id, version)."""
        parts = {"v2": [], "v1": []}
        for place, name in enumerate(self.ids):
            if name in DELETED or not where(place if name in IDS else 50 + ALONE.index(name)):
                continue
            if name in self.there["v2"]:
                parts["v2"].append((self.distance(asked["v2"], self.native[place]), name, "v2"))
            elif name in self.there["v1"]:
                distance = self.distance(self.part_query(asked), self.stored[place])
                distance = mapped(distance, calibration) if merge == "calibrated" else distance
                parts["v1"].append((distance, name, "v1"))
        if merge != "reciprocal rank":
            return sorted([*parts["v2"], *parts["v1"]])
        scored = []
        for part, rows in parts.items():
            scored += [(-1 / (60 + rank), part == "v1", row) for rank, row in enumerate(sorted(rows))]
        return [row for *_, row in sorted(scored)]


def mapped(distance, calibration):
    """A distance on the lines that join the knots, or on the lines that go on beyond them."""
    knots = list(zip(calibration.distances, calibration.mapped, strict=True))
    if distance <= knots[0][0]:
        return knots[0][1] + (distance - knots[0][0]) * calibration.slope
    for (x0, y0), (x1, y1) in pairwise(knots):
        if distance <= x1:
            return y0 + (y1 - y0) * (distance - x0) / (x1 - x0)
    return knots[-1][1] + (distance - knots[-1][0]) * calibration.slope


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    made = {}

    def world(state):
        if state not in made:
            made[state] = World(tmp_path_factory.mktemp("world"), *STATES[state])
        return made[state]

    return world


@st.composite
def calibrations(draw):
    size = draw(st.integers(1, 4))
    x = np.cumsum(draw(st.lists(st.floats(0.5, 5), min_size=size, max_size=size)))
    y = draw(st.floats(-20, 20)) + np.cumsum(draw(st.lists(st.floats(0.5, 5), min_size=size, max_size=size)))
    return Calibration(distances=tuple(x.tolist()), mapped=tuple(y.tolist()), slope=draw(st.floats(0.1, 5)))


WHERE = {None: lambda number: True, "number % 2 = 0": lambda n: n % 2 == 0, "number > 40": lambda n: n > 40}


@pytest.mark.parametrize("state", STATES)
@examples(12)
@given(
    seed=st.integers(0, 10_000),
    merge=st.sampled_from(["distance", "calibrated", "calibrated", "reciprocal rank"]),
    calibration=calibrations(),
    k=st.integers(1, ROWS + 4),
    where=st.sampled_from(list(WHERE)),
)
def test_every_merge_ranks_as_the_reference_does(worlds, state, seed, merge, calibration, k, where):
    world = worlds(state)
    catalog = world.gallery._catalog
    snapshot = catalog.store.snapshot()
    registry = catalog.recorded(snapshot)
    chosen = Merge(
        bridge=world.bridge,
        calibration=calibration if merge == "calibrated" else None,
        gain=Estimate(value=0.0, low=0.0, high=0.0),
        criterion="map",
        truth="labels",
        num_queries=ROWS,
        native_share=0.5,
    )
    if merge != "reciprocal rank":  # the merge of adapted queries that nothing was measured of
        registry = registry.with_merging(MergeRecord("v2", registry.runs["v2"].identity, chosen))
    of_one = plan_search(registry, "v2", k, where)
    plan = of_one if world.kind else plan_both(registry, "v1", "v2", chosen, k, where)
    if merge == "reciprocal rank":
        plan = replace(plan, merge=merge)
    assert plan.merge == merge
    asked = world.asked(seed)
    queries = {name: query[None] for name, query in asked.items()}
    found = execute(catalog, snapshot, plan, queries, [world.key])

    expected = world.reference(asked, merge, calibration, WHERE[where])[:k]
    distances = found["_distance"].to_numpy()
    assert np.allclose(distances, [row[0] for row in expected], rtol=1e-3, atol=1e-3)
    names, versions = found[world.key].to_pylist(), found["_version"].to_pylist()
    assert len(set(names)) == len(expected)
    for name, version, at, row in zip(names, versions, distances, expected, strict=True):
        close = {other[1:] for other in expected if abs(other[0] - at) < 2e-3}  # rounding may swap these
        assert (name, version) in close or (name, version) == row[1:]
        assert (version == "v2") == (name in world.there["v2"])
