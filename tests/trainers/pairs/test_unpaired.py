"""Unpaired: a rotation that is found from vectors of other items, and sets that are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import compatstore as cs
from compatstore.artifacts import Artifact
from compatstore.errors import Incompatible, InvalidInput
from compatstore.trainers import Unpaired

QUICK = Unpaired(clusters=20, rounds=20)
TURN = np.linalg.qr(np.random.default_rng(3).normal(size=(24, 16)))[0].astype(np.float32)


def items(rows, seed):
    """Rows of one distribution, of 40 kinds."""
    world, random = np.random.default_rng(7), np.random.default_rng(seed)
    centres = world.normal(size=(40, 16)) * world.gamma(2, 1, size=(40, 1)) * np.linspace(1.5, 0.3, 16)
    kinds = random.choice(40, rows, p=world.dirichlet(np.full(40, 2.0)))
    return (centres[kinds] + 0.3 * random.normal(size=(rows, 16))).astype(np.float32)


def native(vectors):
    """The target's vectors of items, without noise."""
    return 2 * vectors @ TURN.T + 1


@pytest.fixture(scope="module")
def sets():
    noise = np.random.default_rng(0).normal(size=(900, 24)).astype(np.float32)
    return items(1000, 0), native(items(900, 1)) + 0.1 * noise


@pytest.fixture(scope="module")
def aligned(sets):
    return QUICK.fit(*sets)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_rotated_noisy_space_of_other_items_is_recovered(aligned):
    new = items(300, 2)
    made, true = aligned.apply(new).vectors, native(new)
    assert np.square(made - true).sum() < 0.05 * np.square(true - true.mean(axis=0)).sum()


def test_the_artifact_records_its_agreement_and_no_vector_as_learned_from(aligned, sets, tmp_path):
    aligned.save(tmp_path / "h.compat")
    loaded = Artifact.load(tmp_path / "h.compat")
    manifest = loaded.manifest
    assert (loaded.kind, manifest.method, manifest.seen) == ("ForwardTransform", "Unpaired", 0)
    assert 0.5 < manifest.figures["h"]["agreement"] <= 1
    assert manifest.figures["h"] | {"source_rows": 1000, "target_rows": 900} == manifest.figures["h"]
    np.testing.assert_array_equal(loaded.apply(sets[0][:5]).vectors, aligned.apply(sets[0][:5]).vectors)


def test_the_same_seed_gives_the_same_map(aligned, sets):
    again = QUICK.fit(*sets)
    np.testing.assert_array_equal(again.tensors["h.mixer.0.weight"], aligned.tensors["h.mixer.0.weight"])


@pytest.mark.parametrize("seed", range(3))
def test_sets_that_have_nothing_in_common_are_refused(seed):
    noise = np.random.default_rng(seed).normal(size=(1000, 24))
    with pytest.raises(Incompatible, match=r"starts that agree.*found an agreement of -?0\.\d.*fit Ridge"):
        Unpaired(clusters=20, rounds=20, seed=seed).fit(items(1000, 1), noise)


def test_sets_that_are_a_little_alike_are_refused_sooner_than_mapped_wrongly():
    one, other = items(1000, 4), native(items(900, 5))
    other += 0.1 * np.random.default_rng(2).normal(size=other.shape).astype(np.float32)
    with pytest.raises(Incompatible):
        Unpaired(clusters=20, rounds=20, seed=2, agreement=0.95).fit(one, other)


def test_a_gallery_is_upgraded_with_it(tmp_path):
    old, new = unit(items(1000, 0)), unit(native(items(1000, 1)) - 1)
    v1 = cs.EmbeddingVersion("v1", dim=16, metric="cosine", normalised=True, model="old")
    v2 = cs.EmbeddingVersion("v2", dim=24, metric="cosine", normalised=True, model="new")
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), v1, id_type="int64")
    gallery.add({"id": np.arange(1000), "vector": old})
    gallery.register(v2)
    artifact = QUICK.fit(old, new, source_version=v1, target_version=v2)
    assert artifact.manifest.target.normalised
    gallery.artifacts.link(artifact)
    gallery.upgrade("v2")
    queries = unit(native(items(1000, 0)) - 1)[:100]
    found = gallery.search(queries, k=1, version="v2", columns=["id"])
    assert np.mean(found["id"].to_numpy() == np.arange(100)) > 0.8


SOME = np.ones((500, 4), np.float32)
REFUSED = {
    "few source rows": (SOME[:499], SOME, "source; expected 500 rows or more.*found 499"),
    "few target rows": (SOME, SOME[:3], "target; expected 500 rows or more.*found 3"),
    "no rows": (SOME[:0], SOME, "at least one row"),
    "no matrix": (SOME[0], SOME, "a matrix"),
    "None": (None, SOME, "a matrix"),
    "not finite": (SOME, np.where(np.arange(500) == 7, np.nan, 1)[:, None], "finite values.*rows 7"),
}


@pytest.mark.parametrize(("source", "target", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_aligned_is_refused(source, target, message):
    with pytest.raises(InvalidInput, match=message):
        QUICK.fit(source, target)


def test_vectors_that_do_not_fit_their_version_are_refused():
    version = cs.EmbeddingVersion("v2", dim=5, metric="cosine", model="new")
    with pytest.raises(InvalidInput, match="vectors of 5 values; found 4"):
        QUICK.fit(SOME, SOME, target_version=version)
    flat = cs.EmbeddingVersion("v1", dim=4, metric="cosine", normalised=True, model="old")
    with pytest.raises(InvalidInput, match="unit vectors, as v1 declares"):
        QUICK.fit(2 * SOME, SOME, source_version=flat)


def test_vectors_that_are_all_alike_are_refused():
    with pytest.raises(Incompatible):
        QUICK.fit(SOME, SOME)


@pytest.mark.parametrize("setting", [{"clusters": 2}, {"starts": 1}, {"rounds": 0}, {"agreement": 1.1}])
def test_settings_out_of_their_range_are_refused(setting):
    with pytest.raises(InvalidInput):
        Unpaired(**setting)


@settings(max_examples=5, deadline=None)
@given(scale=st.floats(0.01, 100), shift=st.floats(-10, 10))
def test_the_unit_and_the_origin_of_the_source_change_nothing(scale, shift, sets, aligned):
    moved = QUICK.fit(scale * sets[0] + shift, sets[1])
    new = items(50, 3)
    made, same = moved.apply(scale * new + shift).vectors, aligned.apply(new).vectors
    assert np.square(made - same).sum() < 0.02 * np.square(same - same.mean(axis=0)).sum()
