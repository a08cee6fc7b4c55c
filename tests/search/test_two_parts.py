"""A gallery of source rows and native rows is searched as comparing with every vector would."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import compatstore as cs
from compatstore.artifacts import Artifact, Space
from properties import examples

ROWS, SHORT, LONG = 60, 6, 9
IDS = [f"item-{number:02d}" for number in range(ROWS)]


def unit(matrix):
    return matrix / np.linalg.norm(matrix, axis=-1, keepdims=True)


DISTANCES = {
    "l2": lambda q, x: ((q[None] - x) ** 2).sum(axis=1),
    "cosine": lambda q, x: 1 - unit(x) @ unit(q),
    "dot": lambda q, x: 1 - x @ q,
}


def make(folder, kind, metric, *, seed=0, share=0.4, normalised=True):
    """A gallery in which a share of the items, in random order, is native in v2; and all vectors of both versions."""
    rng = np.random.default_rng(seed)
    dim = SHORT if kind == "Identity" else LONG
    stored, native = (rng.normal(size=(ROWS, d)).astype(np.float32) for d in (SHORT, dim))
    if normalised:
        stored, native = unit(stored), unit(native)
    v1 = cs.EmbeddingVersion("v1", dim=SHORT, metric=metric, normalised=normalised)
    encoder = cs.encoders.Precomputed(dict(zip(IDS, native, strict=True)))
    v2 = cs.EmbeddingVersion("v2", dim=dim, metric=metric, normalised=normalised, encoder=encoder)
    gallery = cs.Gallery.create(str(Path(folder, "gallery.lance")), v1)
    gallery.add({"id": IDS, "vector": stored, "number": range(ROWS)})
    gallery.register(v2)
    gallery.artifacts.link(Artifact.create(kind, source=Space.of(v1), target=Space.of(v2)))
    gallery.upgrade("v2", backfill=cs.Backfill(share=share, seed=seed))
    return gallery, stored, native


def natives_of(gallery):
    origins = gallery.get(IDS, ["v2__origin"]).column("v2__origin").to_pylist()
    return np.array([origin == "native" for origin in origins])


def brute_force(query, stored, native, is_native, metric):
    """Distance of each item: native rows by the whole query, the others by its first values, scaled to unit length."""
    cut = query[:SHORT] if len(query) == SHORT else unit(query[:SHORT])
    return np.where(is_native, DISTANCES[metric](query, native), DISTANCES[metric](cut, stored))


@pytest.mark.full
@pytest.mark.parametrize("kind", ["Identity", "Prefix"])
@pytest.mark.parametrize("metric", DISTANCES)
@examples(3)
@given(seed=st.integers(0, 10_000), share=st.floats(0, 1), k=st.integers(1, ROWS))
def test_a_mixed_gallery_is_ranked_as_comparing_with_every_vector_ranks_it(kind, metric, seed, share, k):
    with tempfile.TemporaryDirectory() as folder:
        gallery, stored, native = make(folder, kind, metric, seed=seed, share=share)
        is_native = natives_of(gallery)
        assert is_native.sum() == int(round(share * ROWS, 6))
        query = unit(np.random.default_rng(seed + 1).normal(size=native.shape[1])).astype(np.float32)
        distances = brute_force(query, stored, native, is_native, metric)
        found = gallery.search(query, k, version="v2")
    assert np.allclose(found.column("_distance").to_numpy(), np.sort(distances)[:k], atol=1e-5)
    rows = [IDS.index(item) for item in found.column("id").to_pylist()]
    assert len(set(rows)) == k
    assert np.allclose(distances[rows], np.sort(distances)[:k], atol=1e-5)
    assert found.column("_version").to_pylist() == ["v2" if is_native[row] else "v1" for row in rows]


@pytest.mark.full
def test_identity_compares_vectors_of_any_length_as_they_are(tmp_path):
    gallery, stored, native = make(tmp_path, "Identity", "l2", normalised=False)
    query = np.random.default_rng(1).normal(size=SHORT).astype(np.float32)
    found = gallery.search(query, 20, version="v2")
    expected = brute_force(query, stored, native, natives_of(gallery), "l2")
    assert np.allclose(found.column("_distance").to_numpy(), np.sort(expected)[:20], rtol=1e-5)


@pytest.mark.full
def test_what_cannot_be_compared_is_merged_by_ranks_and_explain_says_which(tmp_path):
    loose, _, _ = make(tmp_path / "loose", "Prefix", "l2", normalised=False)
    unit_length, _, _ = make(tmp_path / "unit", "Prefix", "l2")
    assert "merge: reciprocal rank" in str(loose.explain(version="v2"))
    said = str(unit_length.explain(version="v2"))
    assert "merge: distance" in said
    assert f"its first {SHORT} values, scaled to unit length" in said


@pytest.mark.full
def test_a_condition_holds_in_both_parts(tmp_path):
    gallery, stored, native = make(tmp_path, "Prefix", "cosine")
    query = np.random.default_rng(1).normal(size=LONG).astype(np.float32)
    found = gallery.search(query, 10, version="v2", where="number % 2 = 0")
    distances = brute_force(query, stored, native, natives_of(gallery), "cosine")
    even = np.arange(ROWS) % 2 == 0
    assert np.allclose(found.column("_distance").to_numpy(), np.sort(distances[even])[:10], atol=1e-5)


@pytest.mark.full
def test_a_compatible_model_is_cut_over_to_at_once_and_its_source_kept_until_all_is_native(tmp_path):
    gallery, _, native = make(tmp_path, "Prefix", "cosine", share=0.0)
    assert gallery.upgrade("v2", dry_run=True).warnings[0].startswith("nothing transforms v1")
    assert gallery.cutover("v2", dry_run=True).missing == 0
    assert gallery.cutover("v2").missing == 0
    status = {version.name: version for version in gallery.status().versions}
    assert (status["v2"].native, status["v2"].bridged, status["v2"].missing) == (0, ROWS, 0)
    query = np.random.default_rng(1).normal(size=LONG).astype(np.float32)
    assert gallery.search(query, ROWS).num_rows == ROWS
    assert gallery.maintenance.verify().clean
    with pytest.raises(cs.errors.UpgradeError, match=f"{ROWS} items"):
        gallery.retire("v1")
    gallery.upgrade("v2", backfill=0.5)
    gallery.upgrade("v2", backfill=1.0)
    gallery.retire("v1")
    found = gallery.search(query, 7)
    assert np.allclose(found.column("_distance").to_numpy(), np.sort(DISTANCES["cosine"](query, native))[:7], atol=1e-5)


def test_an_item_without_any_vector_stands_in_the_way(tmp_path):
    gallery, _, _ = make(tmp_path, "Identity", "cosine", share=0.0)
    vector = np.full((1, SHORT), SHORT**-0.5, np.float32)
    gallery.add({"id": ["new"], "v2": vector, "vector": vector})
    assert gallery.cutover("v2", dry_run=True).missing == 0
    gallery.cutover("v2")
    gallery.rollback()
    assert gallery.status().missing == 0


def test_via_names_the_bridge_or_is_refused(tmp_path):
    gallery, _, _ = make(tmp_path, "Identity", "cosine", share=0.0)
    (artifact,) = gallery.artifacts
    assert gallery.upgrade("v2", transform=artifact.id, dry_run=True).path == ()


@pytest.mark.full
@pytest.mark.parametrize("normalised", [True, False], ids=["by distance", "by rank"])
def test_natives_whose_source_vectors_crowd_around_the_query_hide_no_item(tmp_path, normalised):
    """The nearest source vectors all belong to natives that are far away: what was fetched first is not enough."""
    number = np.arange(ROWS)
    angles = np.stack([np.cos(number / ROWS), np.sin(number / ROWS)], axis=1).astype(np.float32)
    far = np.concatenate([-angles, np.zeros((ROWS, 1))], axis=1).astype(np.float32)
    v1 = cs.EmbeddingVersion("v1", dim=2, metric="l2", normalised=normalised)
    encoder = cs.encoders.Precomputed(dict(zip(IDS, far, strict=True)))
    v2 = cs.EmbeddingVersion("v2", dim=3, metric="l2", normalised=normalised, encoder=encoder)
    gallery = cs.Gallery.create(str(tmp_path / "gallery.lance"), v1)
    gallery.add({"id": IDS, "vector": angles, "urgency": -number.astype(float)})
    gallery.register(v2)
    gallery.artifacts.link(Artifact.create("Prefix", source=Space.of(v1), target=Space.of(v2)))
    gallery.upgrade("v2", backfill=cs.Backfill(share=0.75, order="column:urgency"))
    is_native = natives_of(gallery)
    assert is_native[:45].all()
    assert not is_native[45:].any()
    found = gallery.search(np.array([1, 0, 0], np.float32), 6, version="v2").column("id").to_pylist()
    nearest_sources = IDS[45:51]
    if normalised:
        assert found == nearest_sources
    else:
        assert [item for item in found if item in IDS[45:]] == nearest_sources[:3]
        assert len(found) == 6
