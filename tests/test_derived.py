"""Versions that are derived of another: what is registered, recognised and refused."""

from __future__ import annotations

import lance
import numpy as np
import pytest

import compatstore as cs
from compatstore.artifacts import Artifact, Space
from compatstore.encoders import Precomputed
from compatstore.errors import AlreadyExists, Incompatible, InvalidInput, NotFound

ITEMS, DIM = 40, 16
IDS = [f"item-{row:02d}" for row in range(ITEMS)]
VECTORS = np.random.default_rng(0).standard_normal((ITEMS, DIM)).astype(np.float32)
UNIT = cs.Derivation(dim=DIM, normalise=True).apply(VECTORS)


def gallery_of(tmp_path, vectors=VECTORS, **version):
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=DIM, **version))
    gallery.add({"id": IDS, "vector": vectors})
    return gallery


def derivations(gallery):
    return [(artifact.source, artifact.target) for artifact in gallery.artifacts if artifact.kind == "Derivation"]


@pytest.mark.parametrize(
    ("settings", "error", "told"),
    [
        (
            {"dim": DIM + 1},
            InvalidInput,
            r'at most; found 17\. Name fewer: gallery\.register\("\w+", of="v1", dim=8\)',
        ),
        ({"dim": 0}, InvalidInput, "dimensions from 1"),
        ({"dim": -3}, InvalidInput, "dimensions from 1"),
        ({"dim": 2.5}, InvalidInput, "dim: a whole number"),
        ({}, InvalidInput, "found no difference from v1"),
        ({"dim": DIM, "metric": "cosine", "dtype": "float32"}, InvalidInput, "found no difference from v1"),
        ({"metric": "dot"}, InvalidInput, "found 40 of 40 that are not"),
        ({"metric": "hamming"}, InvalidInput, "metric"),
        ({"dim": 8, "metric": "l2"}, InvalidInput, "which are not scaled"),
        ({"dtype": "int8"}, InvalidInput, "dtype"),
        ({"dim": 12, "dtype": "bits"}, InvalidInput, "a multiple of 8"),
        ({"dtype": "bits", "normalised": True}, InvalidInput, "no unit length, for bits"),
        ({"of": "v0", "dim": 8}, NotFound, "no such version"),
        ({"of": "known", "dim": 8}, NotFound, "it is registered only"),
    ],
    ids=str,
)
def test_what_cannot_be_derived_is_refused_and_nothing_is_written(tmp_path, settings, error, told):
    gallery = gallery_of(tmp_path)
    gallery.register(cs.EmbeddingVersion("known", dim=DIM, model="another"))
    before = lance.dataset(str(tmp_path / "g.lance")).version
    with pytest.raises(error, match=told):
        gallery.register("short", **settings)
    assert lance.dataset(str(tmp_path / "g.lance")).version == before
    assert gallery.versions() == ("v1", "known")


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [("v1", AlreadyExists, "v1"), ("a-b", InvalidInput, "name.*'a-b'"), ("vector", InvalidInput, "name.*'vector'")],
)
def test_names_are_those_that_a_version_can_have(tmp_path, name, error, said):
    with pytest.raises(error, match=said):
        gallery_of(tmp_path).register(name, dim=4)


def test_other_lengths_are_counted(tmp_path):
    vectors = UNIT.copy()
    vectors[[3, 7, 20]] *= 1.01
    gallery = gallery_of(tmp_path, vectors)
    with pytest.raises(InvalidInput, match="found 3 of 40 that are not"):
        gallery.register("dots", metric="dot")
    gallery.register("dots", metric="dot", normalised=True)
    assert gallery.upgrade("dots").missing == 0


@pytest.mark.full
def test_a_version_of_one_model_in_another_type_or_metric_is_recognised(tmp_path):
    encoder = Precomputed(dict(zip(IDS, UNIT, strict=True)))
    gallery = gallery_of(tmp_path, UNIT, encoder=encoder, normalised=True)
    for name, settings in (("half", {"dtype": "float16"}), ("dots", {"metric": "dot"})):
        gallery.register(cs.EmbeddingVersion(name, dim=DIM, encoder=encoder, **{"normalised": True, **settings}))
        assert gallery.upgrade(name, learn=None).transformed == ITEMS
    assert derivations(gallery) == [("v1", "half"), ("v1", "dots")]
    np.testing.assert_array_equal(gallery.vectors(IDS, "dots"), UNIT)
    np.testing.assert_array_equal(gallery.vectors(IDS, "half"), UNIT.astype(np.float16).astype(np.float32))
    found = [gallery.search(UNIT[:5], k=9, version=name)["id"].to_pylist() for name in ("v1", "dots")]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "version",
    [
        cs.EmbeddingVersion("v2", dim=DIM, model="m"),  # the same in everything: to be embedded again
        cs.EmbeddingVersion("v2", dim=DIM, model="n", dtype="float16"),
        cs.EmbeddingVersion("v2", dim=8, model="m"),  # nobody says that the model is a Matryoshka model
        cs.EmbeddingVersion("v2", dim=DIM, model="m", metric="dot"),  # the vectors are not of unit length
        cs.EmbeddingVersion("v2", dim=DIM, model="m", dtype="float16", side_dim=4),
        cs.EmbeddingVersion("v2", dim=DIM, model="m", normalised=True),
    ],
    ids=str,
)
def test_any_other_version_is_not_recognised(tmp_path, version):
    gallery = gallery_of(tmp_path, model="m")
    gallery.register(version)
    assert derivations(gallery) == []
    with pytest.raises(NotFound, match="find a path"):
        gallery.upgrade("v2", learn=None, dry_run=True)


def test_a_derivation_does_not_make_natives_of_another_model(tmp_path):
    gallery = gallery_of(tmp_path)
    other = cs.EmbeddingVersion("v2", dim=8, model="another")
    gallery.register(other)
    made = Artifact.create("Derivation", source=Space.of(gallery.version("v1")), target=Space.of(other))
    with pytest.raises(Incompatible, match=r'gallery\.register\("NAME", of="v1", dim=8\)'):
        gallery.artifacts.link(made, "v1", "v2")
    bare = Artifact.create("Derivation", source=Space(dim=DIM), target=Space(dim=8))
    with pytest.raises(Incompatible):
        gallery.artifacts.link(bare, "v1", "v2")


def test_a_derivation_that_was_unlinked_is_linked_again(tmp_path):
    gallery = gallery_of(tmp_path)
    gallery.register("short", dim=8)
    (record,) = gallery.artifacts
    again = gallery._catalog.artifact(record.id)
    gallery.artifacts.unlink(record.id)
    assert gallery.artifacts.link(again) == record.id
    assert gallery.upgrade("short").transformed == ITEMS


def test_the_registry_reads_back_what_a_version_is_derived_of(tmp_path):
    gallery = gallery_of(tmp_path, model="m@1", dtype="float16")
    gallery.register("short", dim=8, normalised=True)
    gallery.upgrade("short")
    gallery.register("codes", of="short", dtype="bits")
    records = cs.Gallery.open(str(tmp_path / "g.lance"))._catalog.registry().versions
    step = cs.Derivation(dim=8, normalise=True, read_as="float16")
    again = cs.Derivation(dim=8, read_as="float16")
    assert (records["short"].base_model, records["short"].derivation) == ("m@1", (step,))
    assert records["short"].model == step.identity("m@1")
    assert records["short"].dtype == "float16"
    assert (records["v1"].base_model, records["v1"].derivation) == ("", ())
    assert records["codes"].derivation == (step, again)


@pytest.mark.full
def test_a_version_of_an_app_can_be_derived_of(tmp_path):
    import lancedb

    rows = [{"key": id, "embedding": vector} for id, vector in zip(IDS, VECTORS, strict=True)]
    table = lancedb.connect(str(tmp_path / "db")).create_table("notes", rows)
    gallery = cs.Gallery.adopt(table, cs.EmbeddingVersion("v1", dim=DIM), vector="embedding", id="key")
    gallery.register("short", dim=8, normalised=True)
    gallery.register("codes", dtype="bits")
    for name in ("short", "codes"):
        assert gallery.upgrade(name).transformed == ITEMS
        assert gallery.scan([gallery.columns.id], native=[name]).to_arrow()[gallery.columns.id].to_pylist() == IDS
    np.testing.assert_array_equal(gallery.vectors(IDS, "codes"), np.where(VECTORS > 0, 1, -1))
    assert (
        lancedb.connect(str(tmp_path / "db")).open_table("notes").search(VECTORS[3]).limit(1).to_list()[0]["key"]
        == IDS[3]
    )
    gallery.cutover("short")
    table.add([{"key": "late", "embedding": VECTORS[0] + 1}])
    assert gallery.upgrade("short").transformed == 1
    assert gallery.maintenance.verify().clean
