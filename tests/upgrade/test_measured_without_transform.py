"""Measurements where nothing is transformed: after a full backfill, and before a first upgrade without an artifact."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import NotFound

N = 240
LABELS = np.arange(N) % 6
CENTRES = np.random.default_rng(0).normal(size=(6, 12))
IDS = [f"{number}" for number in range(N)]


def vectors(dim, noise, seed):
    draw = np.random.default_rng(seed)
    items = CENTRES[LABELS] + noise * draw.normal(size=(N, 12))
    return (items @ draw.normal(size=(12, dim))).astype(np.float32)


SOURCE, TARGET = vectors(8, 2.0, 1), vectors(10, 0.8, 2)


@pytest.fixture
def gallery(tmp_path):
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=8, metric="l2"))
    gallery.add({"id": IDS, "vector": SOURCE, "label": LABELS})
    lookup = cs.encoders.Precomputed(dict(zip(IDS, TARGET, strict=True)))
    gallery.register(cs.EmbeddingVersion("v2", dim=10, metric="l2", encoder=lookup))
    return gallery


def ways(table):
    return [row.notation for row in table.rows]


@pytest.mark.parametrize("labels", [None, "label"])
@pytest.mark.parametrize("sample", [N, 150])
def test_it_is_measured_before_a_first_upgrade(gallery, labels, sample):
    table = gallery.evaluate("v2", labels=labels, sample=sample)
    assert ways(table)[0] == "s/s"
    assert ways(table)[-1] == "t/t"
    assert not [way for way in ways(table) if "t/h" in way]
    if labels:
        assert (table.advice.verdict, table.advice.row) == ("upgrade", "full backfill")
    assert gallery.versions() == ("v1", "v2")
    assert gallery.status().upgrades == ()


@pytest.mark.parametrize("moment", ["ready", "cut over"])
def test_it_is_measured_after_a_full_backfill(gallery, moment):
    before = gallery.evaluate("v2", labels="label", sample=N)
    gallery.upgrade("v2", backfill=1.0)
    if moment == "cut over":
        gallery.cutover("v2")
    table = gallery.evaluate("v2", labels="label", sample=N)
    assert [row.figures["map"].value for row in table.rows] == [row.figures["map"].value for row in before.rows]
    fusion = gallery.evaluate("v2", labels="label", sample=N, weight="best")
    assert 0 <= fusion.weight <= 1
    gallery.evaluate("v2", weight=0.5, sample=N)
    both = {"v1": SOURCE[3], "v2": TARGET[3]}
    assert gallery.explain(both, serving="fused").merge == "fused"
    assert gallery.search(both, k=1, serving="fused")["id"].to_pylist() == ["3"]


@pytest.mark.parametrize("criterion", ["map", "cmc@1", "cmc@5"])
def test_plans_and_reports_measure_it_too(gallery, criterion):
    terms = {"labels": "label", "sample": N, "criterion": criterion}
    before = gallery.evaluate("v2", **terms)
    assert (before.advice.verdict, before.advice.row) == ("upgrade", "full backfill")
    gallery.upgrade("v2", backfill=1.0)
    report = gallery.report("v2", **terms)
    for way, found in (("s/s", "status quo"), ("t/t", "full backfill")):
        known = before.row(way).figures[criterion].value
        assert report.measured.row(way).figures[criterion].value == pytest.approx(known), found
    full = pytest.approx(before.row("t/t").figures[criterion].value)
    assert report.measured.row("t/h").figures[criterion].value == full
    again = gallery.upgrade("v2", backfill=1.0, gates=cs.Gates(require=(f"{criterion}>=0.01",), **terms), dry_run=True)
    assert again.estimate.row.figures[criterion].value == full


def test_without_an_encoder_the_artifact_is_asked_for(tmp_path):
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=8, metric="l2"))
    gallery.add({"id": IDS, "vector": SOURCE})
    gallery.register(cs.EmbeddingVersion("v2", dim=10, metric="l2"))
    with pytest.raises(NotFound, match="find a path"):
        gallery.evaluate("v2", sample=N)
