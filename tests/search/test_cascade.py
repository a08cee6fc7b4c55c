"""A cascade finds what its definition says, in every state of an upgrade, and embeds no more than its budget."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.errors import SourceError
from compatstore.evaluation.fusion import Fusion, Standardisation
from compatstore.search.cascade import CascadePlan
from compatstore.search.plan import SearchPlan
from compatstore.storage.records import ServingRecord
from compatstore.storage.registry import edit
from properties import examples

ROWS, SHORT, LONG = 36, 5, 8
IDS = [f"it'em-{number:02d}" for number in range(ROWS)]
PLACE = {item: number for number, item in enumerate(IDS)}
METRICS = ["l2", "cosine", "dot"]
OTHER = {"l2": "cosine", "cosine": "dot", "dot": "l2"}  # the two versions need not have one metric
EVEN = "number % 2 = 0"
FUSION = Fusion(
    weight=0.4,
    source=Standardisation(mean=-0.2, deviation=0.7),
    native=Standardisation(mean=0.3, deviation=1.4),
    transformed=Standardisation(mean=-0.5, deviation=0.6),
    correlation=0.8,
    candidates=10 * ROWS,
)


class Model:
    """Looks native vectors up by the number in a source; counts its calls, and the items of each."""

    dim, spec, reads = LONG, "", "source"

    def __init__(self, native, broken=()):
        self._native, self.broken = native, set(broken)
        self.fingerprint = f"model-{native[0, 0]}"
        self.calls = []

    def encode(self, sources):
        bad = {place: "cannot be read" for place, source in enumerate(sources) if source in self.broken}
        if bad:
            raise SourceError("embed", bad)
        self.calls.append(list(sources))
        return self._native[[int(source.split()[-1]) for source in sources]]


class World:
    """Items with vectors in two spaces, and three queries in both."""

    def __init__(self, seed=0, metric="cosine", dtype="float32", broken=(), rows=ROWS):
        random = np.random.default_rng(seed)
        self.source = random.normal(size=(ROWS, SHORT)).astype(dtype).astype("f4")
        self.native = random.normal(size=(ROWS, LONG)).astype(dtype).astype("f4")
        self.queries = {
            "v1": random.normal(size=(3, SHORT)).astype("f4"),
            "v2": random.normal(size=(3, LONG)).astype("f4"),
        }
        self.model = Model(self.native, [f"source {PLACE[item]}" for item in broken])
        self.v1 = cs.EmbeddingVersion("v1", dim=SHORT, metric=metric, dtype=dtype)
        self.v2 = cs.EmbeddingVersion("v2", dim=LONG, metric=OTHER[metric], dtype=dtype, encoder=self.model)
        self.random, self.rows = random, rows

    def begun(self, folder):
        gallery = cs.Gallery.create(str(Path(folder, "gallery.lance")), self.v1)
        sources = [f"source {row}" for row in range(self.rows)]
        rows = range(self.rows)
        gallery.add({"id": IDS[: self.rows], "vector": self.source[: self.rows], "source": sources, "number": rows})
        gallery.register(self.v2)
        gallery.artifacts.link(self.transform())
        return gallery

    def transform(self):
        architecture = Architecture(source_dim=SHORT, output_dim=LONG)
        tensors = {f"h.{name}": self.random.normal(size=shape) for name, shape in architecture.shapes().items()}
        spaces = {"source": Space.of(self.v1), "target": Space.of(self.v2)}
        return Artifact.create("ForwardTransform", **spaces, networks={"h": architecture}, tensors=tensors)

    def query(self, row=0):
        return {name: matrix[row : row + 1] for name, matrix in self.queries.items()}


def expanded(gallery):
    with pytest.raises(cs.errors.Interrupted):
        gallery.upgrade("v2", should_stop=lambda: True)


def hopped(gallery):
    gallery.upgrade("v2")


def part_native(gallery):
    gallery.upgrade("v2", backfill=0.4)


def all_native(gallery):
    gallery.upgrade("v2", backfill=1.0)


def cut_over(gallery):
    gallery.upgrade("v2", backfill=0.2)
    gallery.cutover("v2")


STATES = [expanded, hopped, part_native, all_native, cut_over]


def choose(gallery, fusion=FUSION):
    """Serve the upgrade by a fusion, as `fuse` stores it."""
    catalog = gallery._catalog
    run = catalog.registry().runs["v2"]
    edit(catalog.store, lambda state: state.with_serving(ServingRecord("v2", run.identity, fusion)))


# ---- the reference, from the definition alone


def one_distance(query, vector, metric):
    query, vector = query.astype(float), vector.astype(float)
    if metric == "l2":
        return ((vector - query) ** 2).sum()
    product = (query * vector).sum()
    return 1 - product if metric == "dot" else 1 - product / np.sqrt((query**2).sum() * (vector**2).sum())


class Reference:
    """The gallery as a dictionary, and the items that searches have embedded."""

    def __init__(self, gallery, world):
        self.gallery, self.world = gallery, world
        self.native = set(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist())
        self.spent = 0

    def distance(self, name, row, vector):
        return one_distance(self.world.queries[name][row], vector, getattr(self.world, name).metric)

    def candidates(self, way, cascade, k, where):
        """Ids of each query, nearest first, by the search that finds candidates; tests of its own hold that one."""
        queries, fetched = self.world.queries, max(k, cascade.first)
        if way == "fused":
            return results(self.gallery.search(queries, fetched, where=where, columns=["id"], serving="fused"))
        name = {"source": "v1", "target": "v2"}[way]
        return results(self.gallery.search(queries[name], fetched, name, where, ["id"]))

    def search(self, way, cascade, k, where=None):
        """Ids of the results of each query."""
        lists = self.candidates(way, cascade, k, where)
        chosen = []
        for found in lists:
            chosen += [item for item in found[: cascade.first] if item not in self.native | set(chosen)]
        tried = set(chosen[: max(cascade.in_all - self.spent, 0)])
        embedded = {item for item in tried if f"source {PLACE[item]}" not in self.world.model.broken}
        self.native |= embedded
        self.spent += len(embedded)
        return [self.ranked(row, found, cascade.first)[:k] for row, found in enumerate(lists)]

    def ranked(self, row, found, first):
        places = [n for n, item in enumerate(found[:first]) if item in self.native]
        by = {found[n]: self.distance("v2", row, self.world.native[PLACE[found[n]]]) for n in places}
        found = list(found)
        for place, item in zip(places, sorted(by, key=by.__getitem__), strict=True):
            found[place] = item
        return found


def results(found):
    return [
        [item for item, query in zip(found["id"].to_pylist(), found["_query"].to_pylist(), strict=True) if query == row]
        for row in range(3)
    ]


@pytest.mark.full
@pytest.mark.parametrize("state", STATES)
@examples(4)
@given(
    seed=st.integers(0, 10_000),
    metric=st.sampled_from(METRICS),
    dtype=st.sampled_from(["float32", "float16"]),
    way=st.sampled_from(["source", "target", "fused"]),
    first=st.integers(1, 12),
    in_all=st.integers(0, 30),
    k=st.integers(1, ROWS),
    deleted=st.sets(st.sampled_from(IDS), max_size=9),
    broken=st.sets(st.sampled_from(IDS), max_size=9),
)
def test_a_cascade_ranks_as_its_definition_says(state, seed, metric, dtype, way, first, in_all, k, deleted, broken):
    cascade = cs.Cascade(first=first, in_all=in_all)
    with tempfile.TemporaryDirectory() as folder:
        world = World(seed, metric, dtype)
        gallery = world.begun(folder)
        state(gallery)
        if way == "fused":
            choose(gallery)
        elif gallery.active == "v2":
            way = "target"
        queries = {"v2": world.queries["v2"]} if way == "target" else world.queries
        gallery.delete(sorted(deleted))
        world.model.broken = {f"source {PLACE[item]}" for item in broken}
        world.model.calls.clear()
        reference = Reference(gallery, world)
        before = set(reference.native)
        for _ in range(2):
            expected = reference.search(way, cascade, k)
            assert results(gallery.search(queries, k, columns=["id"], serving=cascade)) == expected
            assert sum(map(len, world.model.calls)) <= in_all
            assert (
                set(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist())
                == reference.native
            )
            assert gallery.status().upgrades[0].searched.rows == reference.spent
        if state is all_native:
            assert world.model.calls == []
        assert reference.native >= before
        expected = reference.search(way, cascade, k, EVEN)
        assert results(gallery.search(queries, k, where=EVEN, columns=["id"], serving=cascade)) == expected


# ---- single facts


@pytest.fixture
def world():
    return World(1)


@pytest.fixture
def gallery(world, tmp_path):
    gallery = world.begun(tmp_path)
    gallery.upgrade("v2")
    world.model.calls.clear()
    return gallery


CASCADE = cs.Cascade()


def test_several_queries_are_one_call_of_the_encoder_for_the_union_of_their_candidates(gallery, world):
    found = gallery.search(world.queries, 10, columns=["id"], serving=CASCADE)
    (call,) = world.model.calls
    assert sorted(call) == sorted({f"source {PLACE[item]}" for item in found["id"].to_pylist()})
    assert len(call) < 30
    gallery.search(world.queries, 10, columns=["id"], serving=CASCADE)
    assert len(world.model.calls) == 1


def test_the_result_says_how_each_item_was_ranked(gallery, world):
    one = world.query()
    found = gallery.search(one, 6, columns=["number", "id"], serving=cs.Cascade(first=4))
    assert found.column_names == ["number", "id", "_distance", "_version", "_origin"]
    assert found["_distance"].type == pa.float32()
    assert found["_version"].to_pylist() == ["v2"] * 4 + ["v1"] * 2
    assert found["_origin"].to_pylist() == ["native"] * 6  # the source's own vectors are native too
    behind = gallery.search(one["v1"], 6, columns=["id"])
    assert found["id"].to_pylist()[4:] == behind["id"].to_pylist()[4:]
    assert found["_distance"].to_pylist()[4:] == behind["_distance"].to_pylist()[4:]
    near = dict(zip(found["id"].to_pylist()[:4], found["_distance"].to_pylist()[:4], strict=True))
    stored = gallery.search(one["v2"], ROWS, "v2", columns=["id"])
    for item, distance in zip(stored["id"].to_pylist(), stored["_distance"].to_pylist(), strict=True):
        assert near.get(item, distance) == pytest.approx(distance, rel=1e-5, abs=1e-6)


def test_without_a_word_on_candidates_the_search_is_the_one_that_serves(gallery, world):
    one = world.query()
    assert isinstance(gallery.explain(one, serving=cs.Cascade()), CascadePlan)
    assert gallery.explain(one, serving=cs.Cascade()).candidates.version == "v1"
    choose(gallery)
    gallery.cutover("v2")
    plan = gallery.explain({"v2": one["v2"]}, serving=cs.Cascade())
    assert (plan.candidates.version, plan.versions) == ("v2", ("v2",))


def test_explain_says_the_price_and_what_is_left(gallery, world):
    asked = cs.Cascade(first=7, in_all=20)
    gallery.search(world.query(), 5, serving=asked)
    told = str(gallery.explain(world.query(), 5, serving=asked))
    assert "the first 7 are embedded natively in v2 and ranked by dot in v2; 5 results" in told
    assert "at most 7 encodings for a query in one call of the encoder, 13 of 20 left in all; written back" in told


def test_an_item_whose_source_cannot_be_read_keeps_its_place_and_costs_nothing(gallery, world):
    one = world.query()
    order = gallery.search(one["v1"], 10, columns=["id"])["id"].to_pylist()
    world.model.broken = {f"source {PLACE[order[place]]}" for place in (2, 5)}
    found = gallery.search(one, 10, columns=["id"], serving=CASCADE)["id"].to_pylist()
    assert (found[2], found[5]) == (order[2], order[5])
    assert found != order
    assert sorted(found) == sorted(order)
    assert gallery.status().upgrades[0].searched.rows == 8
    assert gallery.search(one, 10, columns=["id"], serving=CASCADE)["id"].to_pylist() == found
    assert gallery.status().upgrades[0].searched.rows == 8


def test_what_a_backfill_has_listed_is_not_tried(gallery, world):
    one = world.query()
    order = gallery.search(one["v1"], 3, columns=["id"])["id"].to_pylist()
    world.model.broken = {f"source {PLACE[order[0]]}"}
    gallery.upgrade("v2", backfill=1.0)
    world.model.broken.clear()
    world.model.calls.clear()
    assert gallery.search(one, 3, columns=["id"], serving=CASCADE)["id"].to_pylist()[0] == order[0]
    assert world.model.calls == []


def test_an_encoder_that_is_down_costs_a_warning_and_nothing_else(gallery, world):
    one, encode = world.query(), world.model.encode

    def down(sources):
        raise ConnectionError("no answer")

    world.model.encode = down
    with pytest.warns(cs.errors.CompatStoreWarning, match="embeds nothing in v2: ConnectionError: no answer"):
        found = gallery.search(one, 10, serving=CASCADE)
    assert found.equals(gallery.search(one["v1"], 10))
    assert gallery.status().upgrades[0].searched.rows == 0
    world.model.encode = encode
    assert set(gallery.search(one, 10, serving=CASCADE)["_version"].to_pylist()) == {"v2"}


def test_a_vector_that_no_search_could_find_is_not_used(gallery, world):
    one = world.query()
    order = gallery.search(one["v1"], 10, columns=["id"])["id"].to_pylist()
    world.native[PLACE[order[3]]] = np.nan
    found = gallery.search(one, 10, columns=["id"], serving=CASCADE)["id"].to_pylist()
    assert found[3] == order[3]
    assert len(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()) == 9


def test_an_item_without_a_source_keeps_its_place(world, tmp_path):
    gallery = world.begun(tmp_path)
    nearest = gallery.search(world.queries["v1"][0], 4, columns=["id"])["id"].to_pylist()
    bare = nearest[0]
    gallery.delete([bare])
    gallery.add({"id": [bare], "vector": world.source[[PLACE[bare]]], "number": [PLACE[bare]]})
    gallery.upgrade("v2")
    found = gallery.search(world.query(), 4, columns=["id"], serving=cs.Cascade(first=4))
    assert found["id"].to_pylist()[0] == bare
    assert found["_version"].to_pylist() == ["v1", "v2", "v2", "v2"]


def test_queries_that_a_cascade_cannot_use_are_refused(gallery, world):
    one = world.query()
    with pytest.raises(cs.errors.InvalidInput, match="no query of v2"):
        gallery.search(one["v1"], 5, serving=CASCADE)
    with pytest.raises(cs.errors.InvalidInput, match="the same queries in each version"):
        gallery.search({"v1": world.queries["v1"], "v2": one["v2"]}, 5, serving=CASCADE)
    assert world.model.calls == []


def test_a_cascade_needs_an_upgrade_and_an_encoder(world, tmp_path):
    gallery = world.begun(tmp_path)
    with pytest.raises(cs.errors.UpgradeError, match="an upgrade from or to that version"):
        gallery.search(world.query(), 5, serving=CASCADE)
    gallery.upgrade("v2")
    without = cs.Gallery.open(str(tmp_path / "gallery.lance"))
    with pytest.raises(cs.errors.UpgradeError, match="an encoder for v2"):
        without.search(world.query(), 5, serving=CASCADE)


@pytest.mark.parametrize("wrong", [{"first": 0}, {"in_all": -1}])
def test_settings_out_of_their_range_are_refused(wrong):
    with pytest.raises(cs.errors.InvalidInput, match=next(iter(wrong))):
        cs.Cascade(**wrong)


@pytest.mark.full
def test_an_upgrade_that_is_over_is_searched_without_a_cascade(gallery, world):
    one = world.query()
    gallery.search(one, 5, serving=CASCADE)
    gallery.upgrade("v2", backfill=1.0)
    gallery.cutover("v2")
    gallery.retire("v1")
    world.model.calls.clear()
    assert isinstance(gallery.explain(one, serving=CASCADE), SearchPlan)
    assert gallery.search(one, 5, serving=CASCADE).equals(gallery.search(one["v2"], 5))
    assert world.model.calls == []


def test_more_results_than_items_and_no_items_at_all(gallery, world, tmp_path):
    found = gallery.search(world.queries, 3 * ROWS, serving=cs.Cascade(first=2 * ROWS))
    assert found.num_rows == 3 * ROWS
    gallery.delete(IDS)
    assert gallery.search(world.queries, 3, serving=CASCADE).num_rows == 0
    assert gallery.search(world.query(), 3, serving=CASCADE).num_rows == 0


def test_an_apps_table_keeps_its_rows_where_they_are(world, tmp_path):
    import lance

    path = tmp_path / "app.lance"
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(world.source.reshape(-1)), SHORT)
    columns = {"key": IDS, "embedding": embedding, "from": [f"source {row}" for row in range(ROWS)]}
    lance.write_dataset(pa.table(columns), str(path))
    gallery = cs.Gallery.adopt(str(path), world.v1, vector="embedding", id="key", source="from")
    gallery.register(world.v2)
    gallery.artifacts.link(world.transform())
    gallery.upgrade("v2")
    world.model.calls.clear()
    fragments = [fragment.fragment_id for fragment in lance.dataset(str(path)).get_fragments()]
    found = gallery.search(world.query(), 10, serving=CASCADE)
    assert set(found["_version"].to_pylist()) == {"v2"}
    assert gallery.search(world.query(), 10, serving=CASCADE).equals(found)
    assert len(world.model.calls) == 1
    assert gallery.status().upgrades[0].staged == 10
    assert [fragment.fragment_id for fragment in lance.dataset(str(path)).get_fragments()] == fragments
    gallery.upgrade("v2")
    assert sorted(
        gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()
    ) == sorted(found["key"].to_pylist())
    assert np.allclose(
        gallery.vectors(found["key"].to_pylist(), "v2"), world.native[[PLACE[i] for i in found["key"].to_pylist()]]
    )
    assert gallery.maintenance.verify().clean
