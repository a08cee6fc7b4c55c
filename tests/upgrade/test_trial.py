from __future__ import annotations

import numpy as np
import pytest
from digit_galleries import DIGITS, IDS, LABELS, gallery_of

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.artifacts.shrinkage import FIGURE, Shrinkage
from compatstore.errors import GateFailed
from compatstore.evaluation import rank_queries, summarise
from compatstore.upgrade.estimates.measured import as_served, what_matters

SOME = DIGITS[:360]
SHRINKAGE = Shrinkage((-2.0, 0.0, 2.0), (1.0, 0.6, 0.2), 0.5)


@pytest.mark.full
def test_a_better_target_is_advised_and_nothing_is_written(tmp_path):
    gallery = gallery_of(tmp_path, SOME[:, ::9], SOME)
    before = gallery.status().table_version
    table = gallery.evaluate("v2", labels="digit", sample=160)
    assert gallery.status().table_version == before
    assert [row.notation for row in table.rows][::8] == ["s/s", "t/t"]
    assert [row.notation for row in table.rows][6:8] == ["s/s & t/h", "s/s & t/t"]
    assert table.advice.verdict == "upgrade"
    assert table.row("full backfill").figures["map"].value > table.row("status quo").figures["map"].high
    assert table.num_queries == 160


@pytest.mark.full
def test_a_worse_target_is_advised_against(tmp_path):
    gallery = gallery_of(tmp_path, SOME, SOME[:, ::9])
    assert gallery.evaluate("v2", labels="digit", sample=160).advice.verdict == "do not upgrade"


@pytest.mark.full
def test_natives_in_the_table_serve_where_there_is_no_encoder(tmp_path):
    gallery = gallery_of(tmp_path, SOME[:, ::9], SOME)
    gallery.upgrade("v2", backfill=0.5)
    reopened = cs.Gallery.open(gallery.status().gallery)
    table = reopened.evaluate("v2", sample=len(SOME))
    assert (table.truth, table.neighbours) == ("", 10)
    assert table.num_queries == len(SOME) // 2


def reached_by(call, **settings):
    """Step -> the (done, total) that it reported, in order."""
    steps = {}

    def note(progress):
        steps.setdefault(progress.step, []).append((progress.done, progress.total))

    call("v2", progress=note, **settings)
    return steps


def test_progress_says_what_is_embedded_and_how_far_the_queries_are(tmp_path):
    gallery = gallery_of(tmp_path, SOME[:, ::9], SOME)
    measured = reached_by(gallery.evaluate, labels="digit", sample=160)
    assert list(measured) == ["sample", "search", "rank"]
    assert measured["sample"] == [(0, 160), (64, 160), (128, 160), (160, 160)]
    assert measured["search"][-1] == (2 * len(SOME), 2 * len(SOME))
    gallery.upgrade("v2", backfill=0.5)
    fused = reached_by(gallery.evaluate, sample=160, weight="best")
    assert (list(fused), fused["choose"][-1]) == (["sample", "choose"], (3, 3))
    reported = reached_by(gallery.report, labels="digit", sample=len(SOME))
    assert list(reported) == ["sample", "rank"]
    assert reported["sample"][-1] == (len(SOME) // 2, len(SOME) // 2)
    for steps in (measured, fused, reported):
        for step, found in steps.items():
            assert found == sorted(found), step
            assert {total for _, total in found} == {found[-1][0]}, step
    assert len(reported["rank"]) > 100  # a gallery as a whole is ranked query by query


def test_what_cannot_be_tried_says_what_is_missing(tmp_path):
    gallery = gallery_of(tmp_path, SOME[:, ::9], SOME, encoder=False)
    with pytest.raises(cs.errors.UpgradeError, match="encoders="):
        gallery.evaluate("v2")
    with pytest.raises(cs.errors.InvalidInput, match="digit"):
        gallery.evaluate("v2", labels="colour")
    with pytest.raises(cs.errors.InvalidInput, match="sample >= 40"):
        gallery.evaluate("v2", sample=3)


def doubted_gallery(path, metric="cosine", shrinkage=SHRINKAGE):
    """Digits by a seventh of their pixels, hopped by a linear map that says a sigma^2 of its own making."""
    source, native = SOME[:, ::7], SOME / np.linalg.norm(SOME, axis=1, keepdims=True)
    versions = [
        cs.EmbeddingVersion("v1", dim=source.shape[1], metric="l2"),
        cs.EmbeddingVersion(
            "v2",
            dim=native.shape[1],
            metric=metric,
            normalised=True,
            encoder=cs.encoders.Precomputed(dict(zip(IDS, native, strict=False))),
        ),
    ]
    weight = np.linalg.lstsq(source, native, rcond=None)[0].T.astype(np.float32)
    random = np.random.default_rng(0)
    tensors = {
        "mixer.0.weight": weight,
        "mixer.0.bias": np.zeros(len(weight), np.float32),
        "log_sigma2.weight": random.normal(size=(1, len(weight))).astype(np.float32) * 8,
        "log_sigma2.bias": np.zeros(1, np.float32),
    }
    network = Architecture(source_dim=source.shape[1], output_dim=len(weight), normalise=True, uncertainty=True)
    artifact = Artifact.create(
        "ForwardTransform",
        source=Space.of(versions[0]),
        target=Space.of(versions[1]),
        networks={"h": network},
        tensors={f"h.{name}": tensor for name, tensor in tensors.items()},
        figures={} if shrinkage is None else {"h": {FIGURE: shrinkage.figure()}},
    ).amended(seen=np.array([], np.uint64))
    gallery = cs.Gallery.create(str(path), versions[0])
    gallery.add({"id": IDS[: len(SOME)], "vector": source, "digit": LABELS[: len(SOME)]})
    gallery.register(versions[1])
    gallery.artifacts.link(artifact)
    return gallery, native, artifact.apply(source)


def kept(sigma2):
    return np.interp(np.log(sigma2.astype(np.float64)), SHRINKAGE.log_sigma2, SHRINKAGE.factors)[:, None]


@pytest.mark.full
@pytest.mark.parametrize(("metric", "sample"), [("cosine", len(SOME)), ("l2", len(SOME) // 3)])
def test_searches_by_shrunk_distances_are_measured(tmp_path, metric, sample):
    gallery, native, hopped = doubted_gallery(tmp_path / "g.lance", metric)
    table = gallery.evaluate("v2", labels="digit", sample=sample, shares=(0.25,), criterion="map")
    doubted = hopped.vectors * kept(hopped.uncertainty)
    labels = LABELS[: len(SOME)]
    places = np.arange(len(SOME))
    if sample == len(SOME):
        hop, quarter = table.row("hop alone"), table.row("backfill 25%")
        found = summarise(rank_queries(native, doubted, labels, labels, places, places, metric="dot"), (1, 5))
        assert hop.figures["map"].value == pytest.approx(found.map, abs=1e-4)
        assert hop.figures["cmc@1"].value == pytest.approx(found.cmc[1], abs=2 / len(SOME))
        gallery.upgrade("v2", backfill=cs.Backfill(share=0.25))
        now = np.array(
            [origin == "native" for origin in gallery.get(IDS[: len(SOME)], ["v2__origin"])["v2__origin"].to_pylist()]
        )
        mixed = np.where(now[:, None], native, doubted)
        found = summarise(rank_queries(native, mixed, labels, labels, places, places, metric="dot"), (1, 5))
        assert quarter.figures["map"].value == pytest.approx(found.map, abs=1e-4)
    else:  # the hop is searched in the whole gallery, where CMC is known too
        hop = table.row("hop alone")
        complete = gallery.evaluate("v2", labels="digit", sample=len(SOME), shares=(0.25,)).row("hop alone")
        assert hop.figures["map"].low <= complete.figures["map"].value <= hop.figures["map"].high
        assert {"cmc@1", "cmc@5"} <= set(hop.figures)
        assert "cmc@1" not in table.row("backfill 25%").figures


@pytest.mark.full
def test_a_report_measures_searches_as_they_are_served(tmp_path):
    gallery, native, hopped = doubted_gallery(tmp_path / "g.lance")
    gallery.upgrade("v2", backfill=0.25)
    gallery.cutover("v2")
    report = gallery.report("v2", sample=len(SOME), labels="digit", details=cs.Details(worst=2))
    assert [row.notation for _, row in what_matters(report.measured)] == ["s/s", "t/h", "t/t"]
    origins = gallery.get(IDS[: len(SOME)], ["v2__origin"])["v2__origin"].to_pylist()
    now = np.array([origin == "native" for origin in origins])
    mixed = np.where(now[:, None], native, hopped.vectors * kept(hopped.uncertainty))
    labels, places = LABELS[: len(SOME)], np.arange(len(SOME))
    found = summarise(rank_queries(native, mixed, labels, labels, places, places, metric="dot"), (1, 5))
    assert as_served(report.measured).figures["map"].value == pytest.approx(found.map, abs=1e-4)
    query = native[[7]]
    served = gallery.search(query, k=5, columns=["id"])["id"].to_pylist()
    assert served == [IDS[place] for place in np.argsort(-(mixed @ query[0]), kind="stable")[:5]]


@pytest.mark.full
def test_gates_are_checked_by_shrunk_distances_as_the_upgrade_is_searched(tmp_path):
    gallery, native, hopped = doubted_gallery(tmp_path / "g.lance")
    asked = {"labels": "digit", "sample": len(SOME)}
    estimate = gallery.upgrade("v2", gates=cs.Gates(require=("map>=0",), **asked), dry_run=True).estimate
    vectors, labels, places = hopped.vectors * kept(hopped.uncertainty), LABELS[: len(SOME)], np.arange(len(SOME))
    found = summarise(rank_queries(native, vectors, labels, labels, places, places, metric="dot"), (1, 5))
    assert estimate.row.notation == "t/h"
    assert estimate.row.figures["map"].value == pytest.approx(found.map, abs=1e-4)
    low = estimate.row.figures["map"].low
    with pytest.raises(GateFailed):
        gallery.upgrade("v2", gates=cs.Gates(require=(f"map>={low + 1e-4:.5f}",), **asked))
    assert gallery.status().upgrades == ()
    gallery.upgrade("v2", gates=cs.Gates(require=(f"map>={low - 1e-4:.5f}",), **asked))
    assert gallery.status().upgrades[0].serving == "source"
    served = gallery.search(native[[7]], k=5, version="v2", columns=["id"])["id"].to_pylist()
    assert served == [IDS[place] for place in np.argsort(-(vectors @ native[7]), kind="stable")[:5]]
