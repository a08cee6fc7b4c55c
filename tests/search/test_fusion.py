"""A fused search finds what comparing both vectors of every item finds, in every state of an upgrade."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.evaluation.fusion import Fusion, Standardisation
from compatstore.search import fused_scan
from compatstore.search import fusion as module
from compatstore.search.execute import execute
from compatstore.search.fusion import FEWEST_OF_INDEX, depth_of, search_fused
from compatstore.search.plan import plan_both
from compatstore.search.threshold import first_depth
from properties import examples
from tiers import few

ROWS, SHORT, LONG = 36, 5, 8
IDS = [f"item-{number:02d}" for number in range(ROWS)]
EVEN = "number % 2 = 0"
METRICS = ["l2", "cosine", "dot"]
FUSION = Fusion(
    weight=0.4,
    source=Standardisation(mean=-0.2, deviation=0.7),
    native=Standardisation(mean=0.3, deviation=1.4),
    transformed=Standardisation(mean=-0.5, deviation=0.6),
    per_origin=True,
    correlation=0.8,
    native_share=0.3,
    candidates=1,
)


# ---- galleries in every state


class Numbers:
    """The source's and native vectors of all items, as they are stored."""

    def __init__(self, seed, dtype="float32"):
        rng = np.random.default_rng(seed)
        self.source = rng.normal(size=(ROWS, SHORT)).astype(dtype).astype(np.float32)
        self.native = rng.normal(size=(ROWS, LONG)).astype(dtype).astype(np.float32)
        self.queries = {"v1": rng.normal(size=(3, SHORT)).astype("f4"), "v2": rng.normal(size=(3, LONG)).astype("f4")}


def versions(numbers, metric, dtype):
    encoder = cs.encoders.Precomputed(dict(zip(IDS, numbers.native, strict=True)))
    other = {"l2": "cosine", "cosine": "dot", "dot": "l2"}[metric]  # the two need not have one metric
    v1 = cs.EmbeddingVersion("v1", dim=SHORT, metric=metric, dtype=dtype)
    return v1, cs.EmbeddingVersion("v2", dim=LONG, metric=other, dtype=dtype, encoder=encoder)


def transform(v1, v2, seed):
    architecture = Architecture(source_dim=v1.dim, output_dim=v2.dim)
    rng = np.random.default_rng(seed)
    tensors = {f"h.{name}": rng.normal(size=shape) for name, shape in architecture.shapes().items()}
    spaces = {"source": Space.of(v1), "target": Space.of(v2)}
    return Artifact.create("ForwardTransform", **spaces, networks={"h": architecture}, tensors=tensors)


def begun(folder, numbers, metric="cosine", dtype="float32", seed=0, rows=ROWS):
    v1, v2 = versions(numbers, metric, dtype)
    gallery = cs.Gallery.create(str(Path(folder, "gallery.lance")), v1)
    gallery.add({"id": IDS[:rows], "vector": numbers.source[:rows], "number": range(rows)})
    gallery.register(v2)
    gallery.artifacts.link(transform(v1, v2, seed))
    return gallery


def append_as_an_app(gallery, folder, numbers, rows):
    """Rows that a writer appends who knows nothing of versions: they have no vector in the target."""
    values = numbers.source[rows].astype("f4").reshape(-1)
    width = lance.dataset(str(Path(folder, "gallery.lance"))).schema.field("v1").type
    dtype = pa.array([], width.value_type).to_numpy().dtype
    table = pa.table(
        {
            "id": [IDS[row] for row in rows],
            "v1": pa.FixedSizeListArray.from_arrays(pa.array(values.astype(dtype)), SHORT),
            "v1__origin": ["native"] * len(rows),
            "number": pa.array(rows, pa.int64()),
        }
    )
    lance.write_dataset(table, str(Path(folder, "gallery.lance")), mode="append")


def registered(gallery, folder, numbers):
    pass


def expanded(gallery, folder, numbers):
    with pytest.raises(cs.errors.Interrupted):
        gallery.upgrade("v2", should_stop=lambda: True)
    assert np.isnan(gallery.vectors(IDS, "v2")).all()


def hop_half_done(gallery, folder, numbers):
    gallery.upgrade("v2")
    gallery.delete(IDS[ROWS // 2 :])
    append_as_an_app(gallery, folder, numbers, list(range(ROWS // 2, ROWS)))
    assert gallery.status().versions[1].missing == ROWS // 2


def hopped(gallery, folder, numbers):
    gallery.upgrade("v2")


def part_native(gallery, folder, numbers):
    gallery.upgrade("v2", backfill=0.4)


def all_native(gallery, folder, numbers):
    gallery.upgrade("v2", backfill=1.0)


def cut_over(gallery, folder, numbers):
    """The last items come after the cutover and have a target vector alone."""
    gallery.delete(IDS[-6:])
    gallery.upgrade("v2", backfill=0.4)
    gallery.cutover("v2")
    late = range(ROWS - 6, ROWS)
    gallery.add({"id": IDS[-6:], "vector": numbers.native[-6:], "number": late}, version="v2")
    assert np.isnan(gallery.vectors(IDS[-6:], "v1")).all()


STATES = [registered, expanded, hop_half_done, hopped, part_native, all_native, cut_over]


# ---- the reference, from the definition alone


def one_distance(query, vector, metric):
    query, vector = query.astype(float), vector.astype(float)
    if metric == "l2":
        return (vector**2).sum() - 2 * (query * vector).sum()
    product = (query * vector).sum()
    return -product if metric == "dot" else -product / np.sqrt((query**2).sum() * (vector**2).sum())


def kind_of_target(fusion, native):
    """Standardised apart, or together: by the moments of a draw that is native with the probability of the share."""
    kinds = [fusion.native, fusion.transformed]
    if fusion.per_origin:
        return kinds[not native]
    share = np.array([fusion.native_share, 1 - fusion.native_share])
    means, deviations = (np.array([getattr(kind, name) for kind in kinds]) for name in ("mean", "deviation"))
    first, second = share @ means, share @ (deviations**2 + means**2)
    return Standardisation(mean=first, deviation=np.sqrt(second - first**2))


def fused_distance(fusion, source, target, native):
    """Of one item whose distances are given, None where it has no vector."""
    z = lambda distance, kind: (distance - kind.mean) / kind.deviation  # noqa: E731
    left = None if source is None else z(source, fusion.source)
    right = None if target is None else z(target, kind_of_target(fusion, native))
    left, right = (
        fusion.correlation * right if left is None else left,
        fusion.correlation * left if right is None else right,
    )
    return (1 - fusion.weight) * left + fusion.weight * right


def reference(gallery, fusion, queries, row, *, among):
    """Id -> fused distance of the items of `among` that have a vector, comparing with every one."""
    live = set(gallery.scan([gallery.columns.id], native=[]).to_arrow()[gallery.columns.id].to_pylist()) & set(among)
    ids = sorted(live)
    metrics = {name: gallery.version(name).metric for name in ("v1", "v2")}
    vectors = {name: gallery.vectors(ids, name) for name in ("v1", "v2")}
    origins = gallery.get(ids, ["v2__origin"])["v2__origin"].to_pylist()
    distances = {}
    for number, item in enumerate(ids):
        pair = [
            None
            if np.isnan(vectors[name][number]).any()
            else one_distance(queries[name][row], vectors[name][number], metrics[name])
            for name in ("v1", "v2")
        ]
        if pair != [None, None]:
            distances[item] = fused_distance(fusion, *pair, origins[number] == "native")
    return distances


def search(gallery, fusion, queries, k, where=None, columns=("id",)):
    catalog = gallery._catalog
    snapshot = catalog.store.snapshot()
    plan = plan_both(catalog.recorded(snapshot), "v1", "v2", fusion, k, where)
    if plan.fusion is not None:
        return search_fused(catalog, snapshot, plan, queries, list(columns))
    return execute(catalog, snapshot, plan, queries, list(columns))


def assert_nearest(found, distances, k):
    ids = found["id"].to_pylist()
    expected = sorted(distances.values())[:k]
    assert len(set(ids)) == len(ids) == len(expected)
    assert np.allclose(found["_distance"].to_numpy(), expected, rtol=1e-4, atol=1e-4)
    assert np.allclose([distances[item] for item in ids], expected, rtol=1e-6, atol=1e-6)


def one_query(queries, row):
    return {name: matrix[row : row + 1] for name, matrix in queries.items()}


@pytest.mark.parametrize("state", few(1, STATES))
@examples(3)
@given(
    seed=st.integers(0, 10_000),
    metric=st.sampled_from(METRICS),
    dtype=st.sampled_from(["float32", "float16"]),
    weight=st.floats(0.01, 0.99),
    per_origin=st.booleans(),
    correlation=st.floats(-1, 1),
    k=st.integers(1, ROWS),
    first=st.integers(1, ROWS),
    many=st.sampled_from([1, 2, 9]),
    deleted=st.sets(st.sampled_from(IDS), max_size=9),
)
@example(
    seed=0,
    metric="l2",
    dtype="float32",
    weight=0.5,
    per_origin=False,
    correlation=-1.0,
    k=5,
    first=1,
    many=2,
    deleted=set(),
)
def test_a_fused_search_ranks_as_comparing_with_every_vector_does(
    state, seed, metric, dtype, weight, per_origin, correlation, k, first, many, deleted
):
    """However few rows of each column are looked at first, in whatever blocks queries are searched, and by a scan."""
    apart = {"per_origin": per_origin, "correlation": correlation}
    fusion = replace(FUSION, weight=weight, **apart)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(module, "first_depth", lambda items, k: first)
        patch.setattr(module, "ENTRIES", 2 * first)
        patch.setattr(module, "_COMPARED", 7)
        patch.setattr(module, "MANY", many)
        patch.setattr(fused_scan, "_ROWS", 5)
        numbers = Numbers(seed, dtype)
        gallery = begun(folder, numbers, metric, dtype, seed)
        state(gallery, folder, numbers)
        gallery.delete(sorted(deleted))
        queries = numbers.queries
        together = search(gallery, fusion, queries, k)
        for row in range(3):
            found = search(gallery, fusion, one_query(queries, row), k)
            mine = together.filter(np.array(together["_query"].to_numpy() == row)).drop_columns(["_query"])
            assert mine.equals(found)
            if state is registered:  # there is nothing but the source
                assert found.equals(gallery.search(queries["v1"][row], k, "v1", columns=["id"]))
                continue
            assert_nearest(found, reference(gallery, fusion, queries, row, among=IDS), k)
            filtered = search(gallery, fusion, one_query(queries, row), k, EVEN)
            assert_nearest(filtered, reference(gallery, fusion, queries, row, among=IDS[::2]), k)
        for alone, name in ((0, "v1"), (1, "v2")):
            if state is registered and alone:
                continue
            found = search(gallery, replace(fusion, weight=alone), queries, k)
            assert found.equals(gallery.search(queries[name], k, name, columns=["id"]))


@pytest.mark.full
@pytest.mark.parametrize("many", [1, 9])
def test_very_many_equal_items_end_a_search(tmp_path, monkeypatch, many):
    monkeypatch.setattr(module, "DEEPEST", 40)
    monkeypatch.setattr(module, "MANY", many)
    monkeypatch.setattr(fused_scan, "_MORE", 50)
    rows, vector = 300, np.array([1.0, 2.0, 3.0], "f4")
    ids = [f"item-{number:03d}" for number in range(rows)]
    encoder = cs.encoders.Precomputed(dict.fromkeys(ids, vector))
    gallery = cs.Gallery.create(str(tmp_path / "equal.lance"), cs.EmbeddingVersion("v1", dim=3, metric="cosine"))
    gallery.add({"id": ids, "vector": np.tile(vector, (rows, 1))})
    gallery.register(cs.EmbeddingVersion("v2", dim=3, metric="cosine", encoder=encoder))
    gallery.artifacts.link(transform(gallery.version("v1"), gallery.version("v2"), 0))
    gallery.upgrade("v2", backfill=1.0)
    monkeypatch.setattr(module, "first_depth", lambda items, k: 10)
    found = search(gallery, FUSION, {"v1": vector[None], "v2": vector[None]}, 5)
    assert len(set(found["id"].to_pylist())) == 5
    assert np.ptp(found["_distance"].to_numpy()) == 0


@pytest.mark.full
@pytest.mark.parametrize("many", [1, 9])
def test_models_that_know_nothing_of_each_other_are_searched_to_the_end(tmp_path, monkeypatch, many):
    """Of unrelated vectors the nearest by both is in neither list for long."""
    rows, rng = 3000, np.random.default_rng(0)
    ids = [f"item-{number:04d}" for number in range(rows)]
    source, native = (rng.normal(size=(rows, 8)).astype("f4") for _ in range(2))
    encoder = cs.encoders.Precomputed(dict(zip(ids, native, strict=True)))
    gallery = cs.Gallery.create(str(tmp_path / "apart.lance"), cs.EmbeddingVersion("v1", dim=8, metric="cosine"))
    gallery.add({"id": ids, "vector": source})
    gallery.register(cs.EmbeddingVersion("v2", dim=8, metric="cosine", encoder=encoder))
    gallery.artifacts.link(transform(gallery.version("v1"), gallery.version("v2"), 0))
    gallery.upgrade("v2", backfill=1.0)
    queries = {name: rng.normal(size=(5, 8)).astype("f4") for name in ("v1", "v2")}
    monkeypatch.setattr(module, "first_depth", lambda items, k: 2 * k)
    monkeypatch.setattr(module, "MANY", many)
    fusion = replace(FUSION, weight=0.5, correlation=0.0, per_origin=False)
    found = search(gallery, fusion, queries, 10)
    for row in range(5):
        mine = found.filter(np.array(found["_query"].to_numpy() == row))
        assert_nearest(mine, reference(gallery, fusion, queries, row, among=ids), 10)
    single = set(gallery.search(queries["v1"][0], 20, "v1")["id"].to_pylist())
    assert not set(found["id"].to_pylist()[:10]) <= single


@pytest.mark.full
@pytest.mark.parametrize("many", [1, 9])
def test_versions_of_bits_are_searched_to_the_end_too(tmp_path, monkeypatch, many):
    rows, rng = 400, np.random.default_rng(3)
    ids = [f"item-{number:03d}" for number in range(rows)]
    source, native = (np.where(rng.random((rows, 16)) < 0.5, -1, 1).astype("f4") for _ in range(2))
    encoder = cs.encoders.Precomputed(dict(zip(ids, native, strict=True)))
    kinds = {"dim": 16, "metric": "cosine", "dtype": "bits"}
    gallery = cs.Gallery.create(str(tmp_path / "bits.lance"), cs.EmbeddingVersion("v1", **kinds))
    gallery.add({"id": ids, "vector": source})
    gallery.register(cs.EmbeddingVersion("v2", encoder=encoder, **kinds))
    gallery.artifacts.link(transform(gallery.version("v1"), gallery.version("v2"), 0))
    gallery.upgrade("v2", backfill=0.5)
    queries = {name: rng.normal(size=(4, 16)).astype("f4") for name in ("v1", "v2")}
    monkeypatch.setattr(module, "first_depth", lambda items, k: 2 * k)
    monkeypatch.setattr(module, "MANY", many)
    found = search(gallery, FUSION, queries, 10)
    signs = {name: np.sign(matrix) for name, matrix in queries.items()}
    for row in range(4):
        mine = found.filter(np.array(found["_query"].to_numpy() == row))
        assert_nearest(mine, reference(gallery, FUSION, signs, row, among=ids), 10)


def test_of_an_index_no_more_is_listed_than_it_compares(tmp_path, numbers):
    gallery = begun(tmp_path, numbers)
    hopped(gallery, tmp_path, numbers)
    plan = plan_both(gallery._catalog.registry(), "v1", "v2", FUSION, 10, None)
    assert depth_of(plan, 10**6, exact=True) == first_depth(10**6, 10) > 700
    assert depth_of(plan, 10**6, exact=False) == FEWEST_OF_INDEX
    assert depth_of(plan.using(cs.SearchSettings(refine=100)), 10**6, exact=False) == 250
    assert depth_of(replace(plan, k=90), 10**6, exact=False) == 180


# ---- single facts


@pytest.fixture
def numbers():
    return Numbers(1)


@pytest.mark.full
def test_the_result_says_how_the_vector_came_about_and_holds_the_columns_that_were_asked_for(tmp_path, numbers):
    gallery = begun(tmp_path, numbers)
    part_native(gallery, tmp_path, numbers)
    (artifact,) = gallery.artifacts
    found = search(gallery, FUSION, one_query(numbers.queries, 0), ROWS, columns=["number", "id"])
    assert found.column_names == ["number", "id", "_distance", "_version", "_origin"]
    assert found["_distance"].type == pa.float32()
    assert set(found["_version"].to_pylist()) == {"v2"}
    natives = set(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist())
    for item, origin in zip(found["id"].to_pylist(), found["_origin"].to_pylist(), strict=True):
        assert origin == "native" if item in natives else artifact.id.startswith(origin)


def test_an_item_without_a_target_vector_is_found_by_its_source_vector(tmp_path, numbers):
    gallery = begun(tmp_path, numbers)
    hop_half_done(gallery, tmp_path, numbers)
    found = search(gallery, FUSION, one_query(numbers.queries, 0), ROWS)
    late = dict(zip(found["id"].to_pylist(), found["_version"].to_pylist(), strict=True))
    assert late[IDS[-1]] == "v1"
    assert late[IDS[0]] == "v2"


def test_what_is_expected_of_an_unknown_distance_shrinks_with_the_correlation():
    known, unknown = np.array([-3.0, -3.0]), np.array([True, False])
    near = replace(FUSION, source=Standardisation(), transformed=Standardisation())
    values = [
        replace(near, correlation=correlation).distances(
            known, np.full(2, -3.0), np.zeros(2, bool), np.ones(2, bool), unknown
        )
        for correlation in (1.0, 0.5, 0.0)
    ]
    assert [value[0] for value in values] == pytest.approx([-3.0] * 3)
    assert [value[1] for value in values] == pytest.approx([-3.0, -3.0 * (0.6 + 0.4 * 0.5), -3.0 * 0.6])


@pytest.mark.full
def test_items_at_one_distance_come_in_the_order_of_their_ids(tmp_path):
    numbers = Numbers(3)
    numbers.source[:], numbers.native[:] = numbers.source[0], numbers.native[0]
    gallery = begun(tmp_path, numbers)
    gallery.upgrade("v2", backfill=1.0)
    found = search(gallery, FUSION, one_query(numbers.queries, 0), 20)
    assert found["id"].to_pylist() == IDS[:20]


def test_an_apps_table_is_searched_by_its_own_columns(tmp_path, numbers):
    path = tmp_path / "app.lance"
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(numbers.source.reshape(-1)), SHORT)
    lance.write_dataset(pa.table({"key": IDS, "embedding": embedding, "number": range(ROWS)}), str(path))
    v1, v2 = versions(numbers, "cosine", "float32")
    gallery = cs.Gallery.adopt(str(path), v1, vector="embedding", id="key")
    gallery.register(v2)
    gallery.artifacts.link(transform(v1, v2, 0))
    gallery.upgrade("v2", backfill=0.4)
    natives = set(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist())
    found = search(gallery, FUSION, one_query(numbers.queries, 0), 9, EVEN, columns=["key", "embedding"])
    stored = gallery.vectors(IDS, "v2")
    distances = {
        item: fused_distance(
            FUSION,
            one_distance(numbers.queries["v1"][0], numbers.source[row], "cosine"),
            one_distance(numbers.queries["v2"][0], stored[row], "dot"),
            item in natives,
        )
        for row, item in enumerate(IDS)
        if row % 2 == 0
    }
    assert found["key"].to_pylist() == sorted(distances, key=distances.get)[:9]
    assert found["embedding"][0].as_py() == pytest.approx(numbers.source[IDS.index(found["key"][0].as_py())].tolist())


@pytest.mark.full
def test_a_vector_without_a_direction_counts_as_missing(tmp_path, numbers):
    """An app may write what a gallery refuses."""
    path = tmp_path / "app.lance"
    numbers.source[4] = 0
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(numbers.source.reshape(-1)), SHORT)
    lance.write_dataset(pa.table({"key": IDS, "embedding": embedding}), str(path))
    v1, v2 = versions(numbers, "cosine", "float32")
    gallery = cs.Gallery.adopt(str(path), v1, vector="embedding", id="key")
    gallery.register(v2)
    gallery.artifacts.link(transform(v1, v2, 0))
    gallery.upgrade("v2", backfill=1.0)
    found = search(gallery, FUSION, one_query(numbers.queries, 0), ROWS, columns=["key"])
    assert sorted(found["key"].to_pylist()) == IDS
    values = dict(zip(found["key"].to_pylist(), found["_distance"].to_pylist(), strict=True))
    target = one_distance(numbers.queries["v2"][0], numbers.native[4], "dot")
    assert values[IDS[4]] == pytest.approx(fused_distance(FUSION, None, target, True), rel=1e-5)


@pytest.mark.full
def test_after_the_source_is_retired_the_target_is_searched(tmp_path, numbers):
    gallery = begun(tmp_path, numbers)
    all_native(gallery, tmp_path, numbers)
    gallery.cutover("v2")
    gallery.retire("v1")
    found = search(gallery, FUSION, one_query(numbers.queries, 0), 5)
    assert found.equals(gallery.search(numbers.queries["v2"][0], 5, columns=["id"]))


def test_a_plan_says_what_is_searched_and_what_it_costs(tmp_path, numbers):
    gallery = begun(tmp_path, numbers)
    hopped(gallery, tmp_path, numbers)
    plan = plan_both(gallery._catalog.registry(), "v1", "v2", replace(FUSION, candidates=20), 15, EVEN)
    said = str(plan)
    assert plan.version == "v2"
    assert "merge: fused, 0.6 v1 + 0.4 v2" in said
    assert f"cosine on column v1 with the query of v1; {EVEN}" in said
    assert "threshold algorithm, exact" in said
    assert "native v2 (d - 0.3) / 1.4" in said
    assert "standardised distances: v1 (d - -0.2) / 0.7; v2 (d - -0.26) / 0.9871" in str(
        replace(plan, fusion=replace(FUSION, per_origin=False))
    )
    assert "two embeddings and two searches" in said


def test_other_numbers_of_queries_and_queries_without_a_direction_are_refused(tmp_path, numbers):
    gallery = begun(tmp_path, numbers)
    hopped(gallery, tmp_path, numbers)
    with pytest.raises(cs.errors.InvalidInput, match="3 and 2"):
        search(gallery, FUSION, {"v1": numbers.queries["v1"], "v2": numbers.queries["v2"][:2]}, 5)
    with pytest.raises(cs.errors.InvalidInput, match="length 0"):
        search(gallery, FUSION, {"v1": np.zeros((1, SHORT), np.float32), "v2": numbers.queries["v2"][:1]}, 5)
    with pytest.raises(cs.errors.InvalidInput, match="SQL"):
        search(gallery, FUSION, one_query(numbers.queries, 0), 5, "no_such_column > 1")


@pytest.mark.full
@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e18])
@pytest.mark.parametrize("metric", METRICS)
def test_a_scan_is_exact_for_vectors_of_any_length(tmp_path, monkeypatch, metric, scale):
    """Near each other too: float32 alone does not rank them."""
    rows, rng = 500, np.random.default_rng(0)
    ids = [f"item-{number:03d}" for number in range(rows)]
    source, native = (
        (scale * (1 + 1e-4 * rng.normal(size=(rows, 8)) * rng.choice([1, 1e-2], size=(rows, 1)))).astype("f4")
        for _ in range(2)
    )
    encoder = cs.encoders.Precomputed(dict(zip(ids, native, strict=True)))
    gallery = cs.Gallery.create(str(tmp_path / "near.lance"), cs.EmbeddingVersion("v1", dim=8, metric=metric))
    gallery.add({"id": ids, "vector": source})
    gallery.register(cs.EmbeddingVersion("v2", dim=8, metric=metric, encoder=encoder))
    gallery.artifacts.link(transform(gallery.version("v1"), gallery.version("v2"), 0))
    gallery.upgrade("v2", backfill=1.0)
    queries = {name: (scale * rng.normal(size=(3, 8))).astype("f4") for name in ("v1", "v2")}
    monkeypatch.setattr(module, "MANY", 2)
    together = search(gallery, FUSION, queries, 10)
    for row in range(3):
        mine = together.filter(np.array(together["_query"].to_numpy() == row)).drop_columns(["_query"])
        assert mine.equals(search(gallery, FUSION, one_query(queries, row), 10))
