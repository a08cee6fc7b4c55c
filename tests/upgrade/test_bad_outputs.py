"""What a transform, an adapter or an encoder makes is checked as what users hand over is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Side, Space
from compatstore.encoders import Function
from compatstore.errors import CorruptArtifact, InvalidInput, UpgradeError
from compatstore.upgrade.estimates.queries import read_gallery
from compatstore.upgrade.requests.run_settings import RunSettings
from compatstore.upgrade.resolve import resolve_run

ROWS, DIM = 60, 4
IDS = [f"i{number:02d}" for number in range(ROWS)]
V1 = cs.EmbeddingVersion("v1", dim=DIM, metric="l2")
BIG, ZERO = "i07", "i11"


def vectors():
    """One is so long that a transform of it overflows, one is zero."""
    matrix = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
    matrix[IDS.index(BIG)], matrix[IDS.index(ZERO)] = 3e38, 0
    return matrix


def embed(ids):
    return np.stack([np.cos(np.arange(1, 7) + int(i[1:])) for i in ids]).astype(np.float32)


def version(metric="cosine", dtype="float32", fn=embed, **more):
    encoder = Function(fn, dim=6, fingerprint="known", reads="id")
    return cs.EmbeddingVersion("v2", dim=6, metric=metric, dtype=dtype, encoder=encoder, **more)


def linear(target, weight=2.0, bias=0.0, kind="ForwardTransform", **more):
    """h: a matrix that makes zero of zero, and infinite values of the largest."""
    ends = (6, DIM) if kind == "QueryAdapter" else (DIM, 6)
    networks = {"h": Architecture(source_dim=ends[0], output_dim=ends[1])}
    tensors = {"h.mixer.0.weight": np.full(ends[::-1], weight, np.float32), "h.mixer.0.bias": np.full(ends[1], bias)}
    tensors["h.mixer.0.weight"] += np.eye(*ends[::-1], dtype=np.float32)
    if "side_target" in more:
        networks["g"] = Architecture(source_dim=DIM, output_dim=3)
        tensors |= {"g.mixer.0.weight": np.ones((3, DIM), np.float32) * 9, "g.mixer.0.bias": np.zeros(3)}
    return Artifact.create(
        kind, source=Space.of(V1), target=Space.of(target), networks=networks, tensors=tensors, **more
    )


def make(path, target, artifact=None):
    gallery = cs.Gallery.create(str(path / "g.lance"), V1)
    gallery.add({"id": IDS, "vector": vectors()})
    gallery.register(target)
    gallery.artifacts.link(artifact or linear(target))
    return gallery


def missing(gallery, name="v2"):
    return next(version.missing for version in gallery.status().versions if version.name == name)


@pytest.mark.full
@pytest.mark.parametrize(
    ("metric", "dtype", "bad"),
    [
        ("l2", "float32", [BIG]),
        ("cosine", "float32", [BIG, ZERO]),
        ("dot", "float16", [BIG]),
        ("cosine", "float16", [BIG, ZERO]),
    ],
)
def test_rows_of_which_a_transform_makes_nothing_of_use_are_missing_and_named(tmp_path, files, metric, dtype, bad):
    gallery = make(tmp_path, version(metric, dtype))
    report = gallery.upgrade("v2")
    assert (report.missing, report.transformed) == (len(bad), ROWS - len(bad))
    assert missing(gallery) == len(bad)
    assert gallery.status().upgrades[0].missing == tuple(bad)
    assert [finding for finding in gallery.maintenance.verify().findings if finding.severity == "error"] == []
    with pytest.raises(UpgradeError, match=", ".join(bad)):
        gallery.cutover("v2")
    before = files(tmp_path / "g.lance" / "_versions")
    assert gallery.upgrade("v2").transformed == 0
    assert files(tmp_path / "g.lance" / "_versions") == before, "what gives nothing is not tried for ever"
    again = gallery.upgrade("v2", backfill=1.0)
    assert (again.missing, again.backfilled) == (0, ROWS)
    gallery.cutover("v2")
    found = gallery.search(embed([BIG])[0], k=ROWS)["id"].to_pylist()
    assert sorted(found) == IDS


@pytest.mark.full
def test_a_row_that_becomes_bad_loses_its_vector_and_one_that_becomes_good_gets_one(tmp_path):
    target = replace(version(), encoder=None)
    gallery = make(tmp_path, target, linear(target))
    gallery.upgrade("v2")
    exchanged = vectors()[[0, IDS.index(BIG)]]
    gallery.add({"id": [BIG, "i00"], "vector": exchanged}, upsert=True)
    assert set(gallery.status().upgrades[0].missing) == {"i00", ZERO}
    assert (gallery.upgrade("v2").missing, gallery.upgrade("v2").transformed) == (2, 0)
    gallery.add({"id": [BIG, "i00"], "vector": exchanged[::-1]}, upsert=True)
    assert set(gallery.status().upgrades[0].missing) == {BIG, ZERO}


def test_side_information_that_is_not_finite_is_left_out(tmp_path):
    target = version("l2", side_dim=3, side_model="g")
    bridge = linear(target, weight=0.001, side_target=Side(dim=3, fingerprint=target.side_fingerprint))
    gallery = make(tmp_path, target, bridge)
    gallery.upgrade("v2")
    rows = {row["id"]: row for row in gallery.get(IDS, ["id", "v2", "v2__side"]).to_pylist()}
    assert [item for item, row in rows.items() if row["v2__side"] is None] == [BIG]
    assert rows[BIG]["v2"] is not None


def test_a_query_of_which_an_adapter_makes_no_number_is_refused(tmp_path):
    target = version("l2")
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), V1)
    gallery.add({"id": IDS, "vector": vectors()})
    gallery.register(target)
    adapter = linear(target, kind="QueryAdapter")
    gallery.artifacts.link(adapter)
    assert gallery.search(np.ones(6), k=1, version="v2").num_rows == 1
    with pytest.raises(InvalidInput, match=rf"artifact {adapter.short_id}.*for query 0"):
        gallery.search(np.full(6, 3e38), k=1, version="v2")


@pytest.mark.parametrize("length", [0.0, 1e-30])
def test_queries_without_a_direction_are_refused_under_cosine(tmp_path, length):
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=2, metric="cosine"))
    gallery.add({"id": ["a"], "vector": [[1, 2]]})
    with pytest.raises(InvalidInput, match=r"length 0.*for query 1"):
        gallery.search(np.array([[1, 2], [0, length]]), k=1)
    with pytest.raises(InvalidInput, match=r"length 0.*for b"):
        gallery.add({"id": ["a", "b"], "vector": [[1, 2], [0, length]]}, upsert=True)
    assert len(gallery) == 1


def test_values_beyond_float16_are_refused(tmp_path, files):
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), replace(V1, dtype="float16"))
    before = files(tmp_path)
    with pytest.raises(InvalidInput, match=r"float16.*for b"):
        gallery.add({"id": ["a", "b"], "vector": [[1] * DIM, [70_000] * DIM]})
    assert files(tmp_path) == before


@pytest.mark.full
@pytest.mark.parametrize(
    ("metric", "dtype", "value"), [("cosine", "float32", 0), ("dot", "float16", 1e5), ("cosine", "float16", 1e-9)]
)
def test_an_item_whose_native_vector_cannot_be_stored_keeps_its_transformed_one(tmp_path, metric, dtype, value):
    def some_bad(ids):
        return np.where([[i == "i03"] for i in ids], np.float32(value), embed(ids)).astype(np.float32)

    gallery = make(tmp_path, version(metric, dtype, some_bad))
    report = gallery.upgrade("v2", backfill=1.0, run=RunSettings(batch_rows=20))
    assert report.num_unbackfillable == 1
    assert report.unbackfillable[0][0] == "i03"
    assert "the encoder gave" in report.unbackfillable[0][1]
    assert report.missing == 0
    rows = gallery.get(["i03", "i04"], ["v2__origin"])["v2__origin"].to_pylist()
    assert rows[1] == "native" != rows[0]
    added = gallery.add({"id": ["i03", "i80"]}, version="v2", upsert=True)
    assert [item for item, _ in added.failures] == ["i03"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_artifacts_with_weights_that_are_not_finite_are_refused(value):
    with pytest.raises(CorruptArtifact, match=r"finite weights.*h.mixer.0.bias"):
        linear(version(), bias=value)


def test_a_chain_goes_on_with_the_rows_that_are_left(tmp_path):
    gallery = make(tmp_path, version("l2"))
    v3 = cs.EmbeddingVersion("v3", dim=6, metric="l2")
    gallery.register(v3)
    matrix = {"h.mixer.0.weight": np.eye(6, dtype=np.float32), "h.mixer.0.bias": np.zeros(6)}
    gallery.artifacts.link(
        Artifact.create(
            "ForwardTransform",
            source=Space.of(version("l2")),
            target=Space.of(v3),
            networks={"h": Architecture(source_dim=6, output_dim=6)},
            tensors=matrix,
        )
    )
    report = gallery.upgrade("v3")
    assert report.missing == 1
    assert gallery.status().upgrades[0].missing == (BIG,)


@pytest.mark.parametrize(("metric", "bad"), [("l2", 1), ("cosine", 2)])
def test_an_estimate_leaves_out_items_of_which_the_transform_makes_nothing(tmp_path, metric, bad):
    table = make(tmp_path, version(metric)).evaluate("v2", sample=ROWS)
    assert table.num_queries == ROWS - bad
    assert f"{bad} cannot be transformed" in table.provenance


def test_queries_do_not_find_such_items_in_the_whole_gallery(tmp_path):
    """With labels they search it as the hop makes it, batch by batch."""
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), V1)
    gallery.add({"id": IDS, "vector": vectors(), "label": [0, 1] * (ROWS // 2)})
    target = version()
    gallery.register(target)
    gallery.artifacts.link(linear(target))
    context = resolve_run(gallery._catalog, "v2")
    (batch,) = read_gallery(context, ROWS, served=False)
    there = dict(zip(IDS, batch.in_target.tolist(), strict=True))
    assert [item for item in IDS if not there[item]] == [BIG, ZERO]
    assert np.isfinite(batch.target).all()
