"""What an estimate rests on: items that no artifact has learned from, the whole gallery, draws of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from digit_galleries import DIGITS, IDS, LABELS, gallery_of

import compatstore as cs
from compatstore.evaluation import rank_queries
from compatstore.trainers import Pairs, Ridge
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.sample import REPORT_DRAW, draw_sample
from compatstore.upgrade.resolve import resolve_run
from compatstore.upgrade.states import run_of

NOISY = DIGITS[:, ::3] + np.random.default_rng(0).normal(0, 3, (len(DIGITS), 22)).astype(np.float32)
TERMS = {"labels": "digit", "sample": 500}


def trained_gallery(tmp_path, lessons, *, dtype="float32", items=600, labels=None, embeddable=600):
    """A gallery of the first digits whose hop has learned from the first of them."""
    v1 = cs.EmbeddingVersion("v1", dim=22, metric="l2", dtype=dtype)
    native = dict(zip(IDS[:embeddable], DIGITS[:embeddable], strict=True))
    v2 = cs.EmbeddingVersion("v2", dim=64, metric="l2", encoder=cs.encoders.Precomputed(native))
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), v1)
    gallery.add({"id": IDS[:items], "vector": NOISY[:items], "digit": labels or LABELS[:items].tolist()})
    gallery.register(v2)
    pairs = Pairs(NOISY[:lessons], DIGITS[:lessons], source_version=v1, target_version=v2)
    gallery.artifacts.link(Ridge().fit(pairs))
    return gallery


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_items_that_the_artifact_has_learned_from_do_not_ask(tmp_path, dtype):
    gallery = trained_gallery(tmp_path, 350, dtype=dtype)
    table = gallery.evaluate("v2", labels="digit", sample=600)
    assert table.num_queries == 250
    assert table.provenance == "250 queries from 600 items drawn of 600 (350 were learned from by the artifact)."


@pytest.mark.full
def test_fewer_queries_are_explained_reason_by_reason(tmp_path):
    labels = [None if number % 6 == 0 else int(LABELS[number]) for number in range(600)]
    gallery = trained_gallery(tmp_path, 200, labels=labels, embeddable=500)
    table = gallery.evaluate("v2", labels="digit", sample=600)
    kept = [n for n in range(600) if labels[n] is not None and 200 <= n < 500]
    assert table.num_queries == len(kept)
    assert table.provenance == (
        f"{len(kept)} queries from 600 items drawn of 600 (100 have no label, "
        f"{sum(labels[n] is not None for n in range(200))} were learned from by the artifact, "
        f"{sum(labels[n] is not None for n in range(500, 600))} cannot be embedded)."
    )


def test_an_artifact_that_has_learned_from_everything_is_not_judged_by_it(tmp_path):
    gallery = trained_gallery(tmp_path, 600)
    with pytest.raises(
        cs.errors.UpgradeError, match=r"0 queries from 600 .*600 were learned from.*fewer of the gallery"
    ):
        gallery.evaluate("v2", labels="digit", sample=600)


@pytest.mark.full
def test_an_artifact_that_does_not_say_what_it_learned_from_is_not_trusted_silently(tmp_path):
    table = gallery_of(tmp_path, NOISY, DIGITS).evaluate("v2", **TERMS)
    assert (
        "500 queries from 500 items drawn of 1797. It is unknown what the artifact was trained on" in table.provenance
    )


@pytest.mark.full
def test_the_status_quo_and_the_hop_are_measured_in_the_whole_gallery(tmp_path):
    gallery = gallery_of(tmp_path, NOISY, DIGITS)
    table = gallery.evaluate("v2", **TERMS)
    sample = draw_sample(resolve_run(gallery._catalog, "v2"), 500, labels="digit")
    rows = np.array([IDS.index(item) for item in sample.ids.to_pylist()])
    [artifact] = gallery.artifacts
    hopped = gallery._catalog.artifact(artifact.id).apply(NOISY).vectors
    everything = np.arange(len(IDS))
    for name, queries, vectors in (("status quo", NOISY, NOISY), ("hop alone", DIGITS, hopped)):
        exact = rank_queries(queries[rows], vectors, LABELS[rows], LABELS, rows, everything)
        figures = table.row(name).figures
        assert figures["map"].value == pytest.approx(exact.average_precision.mean())
        assert figures["cmc@1"].value == pytest.approx((exact.first_match <= 1).mean())
    assert set(table.row("full backfill").figures) == {"map"}
    assert table.row("full backfill").broken is None


@pytest.mark.full
def test_a_sample_of_everything_knows_all_figures(tmp_path):
    table = trained_gallery(tmp_path, 300).evaluate("v2", labels="digit", sample=600)
    for row in table.rows:
        assert set(row.figures) == {"cmc@1", "cmc@5", "map"}
        for interval in (*row.figures.values(), *row.kept.values()):
            assert 0 <= interval.low <= interval.value <= interval.high <= 1
        assert all(-1 <= gain.low <= gain.high <= 1 for gain in row.gains.values())


@pytest.mark.full
def test_evaluate_and_plan_give_one_advice(tmp_path):
    gallery = gallery_of(tmp_path, NOISY[:800], DIGITS[:800])
    shown = gallery.evaluate("v2", shares=(0.1,), **TERMS)
    planned = gallery.upgrade("v2", gates=cs.Gates(**TERMS), dry_run=True).estimate.table
    assert shown.advice == planned.advice
    assert shown.criterion == planned.criterion == "map"
    assert shown.row(shown.advice.row) == planned.row(shown.advice.row)
    assert len(shown.rows) < len(planned.rows)


@pytest.mark.full
def test_the_sample_of_a_report_is_like_what_is_served(tmp_path):
    gallery = gallery_of(tmp_path, NOISY, DIGITS)
    gallery.upgrade("v2", backfill=0.8)
    catalog = gallery._catalog
    run = run_of(catalog.registry(), "v2")
    for seed in range(3):
        for domain in ("estimate", REPORT_DRAW):
            drawn = draw_sample(UpgradeContext.of(catalog, replace(run, seed=seed)), 500, seed=seed, domain=domain)
            assert 0.72 < np.mean(drawn.served.origin == "native") < 0.88


def test_a_report_asks_items_that_the_estimate_has_not_drawn(tmp_path):
    gallery = gallery_of(tmp_path, NOISY, DIGITS)
    context = resolve_run(gallery._catalog, "v2")
    before = draw_sample(context, 900).ids.to_pylist()
    after = draw_sample(context, 1500, domain=REPORT_DRAW, estimated=900).ids.to_pylist()
    assert len(after) == len(IDS) - 900
    assert not set(before) & set(after)


def test_labels_that_are_neither_text_nor_whole_numbers_are_refused(tmp_path):
    gallery = trained_gallery(tmp_path, 100, labels=[float(label) for label in LABELS[:600]])
    with pytest.raises(cs.errors.InvalidInput, match=r"labels, text or whole numbers .*found digit: "):
        gallery.evaluate("v2", labels="digit", sample=100)
