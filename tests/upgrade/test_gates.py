"""Terms of an upgrade: the budget is picked by an estimate, gates refuse before anything is written."""

from __future__ import annotations

import numpy as np
import pytest
from digit_galleries import DIGITS, gallery_of

import compatstore as cs

DIGITS = DIGITS[:800]
NOISY = DIGITS[:, ::3] + np.random.default_rng(0).normal(0, 3, (len(DIGITS), 22)).astype(np.float32)
ITEMS = 300  # where the sample is the whole gallery
TERMS = {"labels": "digit", "sample": 200}


def requests(backfill=None, **gates):
    """What a call asks for, with the gates of these tests."""
    return {"backfill": backfill, "gates": cs.Gates(**{**TERMS, **gates})}


def plan(gallery, backfill=None, **gates):
    return gallery.upgrade("v2", backfill=backfill, gates=cs.Gates(**gates), dry_run=True)


def steps(gallery):
    return [entry.step for entry in gallery.maintenance.history()]


@pytest.mark.full
def test_a_plan_picks_the_smallest_budget_that_is_sure_and_writes_nothing(tmp_path):
    gallery = gallery_of(tmp_path, NOISY, DIGITS)
    before = gallery.status().table_version
    plans = {q: gallery.upgrade("v2", **requests(target_quality=q), dry_run=True) for q in (0.5, 0.7, 0.85)}
    assert gallery.status().table_version == before
    shares = [plan.backfill for plan in plans.values()]
    assert shares == sorted(shares)
    assert 0 == shares[0] < shares[-1] < 1
    for quality, plan in plans.items():
        estimate = plan.estimate
        assert estimate.row.kept["map"].low >= quality
        smaller = [row for row in estimate.table.budgets if row.share < plan.backfill]
        assert all(row.kept["map"].low < quality for row in smaller)
        assert f"A backfill of {plan.backfill:.4g} keeps " in estimate.promise
        assert estimate.best >= plan.backfill
    assert [step.rows for step in plans[0.85].steps if step.name == "backfill"] == [int(800 * plans[0.85].backfill)]


def test_without_terms_a_plan_estimates_nothing(tmp_path):
    assert gallery_of(tmp_path, NOISY, DIGITS).upgrade("v2", backfill=0.5, dry_run=True).estimate is None


@pytest.mark.full
def test_an_upgrade_stops_at_the_target_quality_and_the_same_call_again_does_nothing(tmp_path):
    gallery = gallery_of(tmp_path, NOISY, DIGITS)
    planned = gallery.upgrade("v2", **requests(target_quality=0.85), dry_run=True)
    report = gallery.upgrade("v2", **requests(target_quality=0.85))
    assert report.backfilled == int(800 * planned.backfill)
    assert steps(gallery)[-5:] == ["estimate", "expand", "hop", "backfill", "ready"]
    before = gallery.status().table_version
    assert gallery.upgrade("v2", **requests(target_quality=0.85)).backfilled == 0
    assert gallery.status().table_version == before


@pytest.mark.full
def test_without_ground_truth_a_target_quality_is_an_agreement(tmp_path):
    gallery = gallery_of(tmp_path, NOISY, DIGITS)
    estimate = gallery.upgrade("v2", gates=cs.Gates(sample=200, target_quality=0.9), dry_run=True).estimate
    assert (estimate.table.truth, estimate.table.neighbours) == ("", 20)  # 5 of the sample's 200, of 800 items
    assert estimate.table.advice.verdict == "undecided"
    assert 0 < estimate.share <= 1
    assert estimate.row.figures["agreement"].low >= 0.9
    assert estimate.promise.startswith(f"A backfill of {estimate.share:.4g} serves ")


@pytest.mark.full
@pytest.mark.parametrize(
    "terms",
    [
        {"require": ["map>=0.99"], "backfill": 0.2},
        {"require": ["cmc@1>=0.99"], "backfill": 0.0},
        {"max_negative_flips": 0.0001, "backfill": 0.0},
        {"max_negative_flips": 0.0001, "backfill": 0.2, "sample": ITEMS},
    ],
)
def test_a_gate_that_fails_is_told_by_the_plan_and_stops_the_upgrade_before_it_writes(tmp_path, terms):
    gallery = gallery_of(tmp_path, NOISY[:ITEMS], DIGITS[:ITEMS])
    before = gallery.status().table_version
    [gate] = gallery.upgrade("v2", **requests(**terms), dry_run=True).estimate.gates
    assert not gate.passed
    with pytest.raises(
        cs.errors.GateFailed, match=r"for the whole confidence interval; found 0\.\d+ \(0\.\d+ to 0\.\d+\)"
    ):
        gallery.upgrade("v2", **requests(**terms))
    assert gallery.status().table_version == before


@pytest.mark.full
def test_gates_that_hold_let_an_upgrade_pass(tmp_path):
    gallery = gallery_of(tmp_path, NOISY[:ITEMS], DIGITS[:ITEMS])
    terms = {"require": ["map>=0.3", "cmc@1 >= 0.5"], "max_negative_flips": 0.2, "backfill": 0.0}
    assert [gate.passed for gate in gallery.upgrade("v2", **requests(**terms), dry_run=True).estimate.gates] == [
        True,
        True,
        True,
    ]
    whole = requests(**{**terms, "sample": ITEMS, "backfill": 0.25})
    assert [gate.passed for gate in gallery.upgrade("v2", **whole, dry_run=True).estimate.gates] == [True, True, True]
    assert gallery.upgrade("v2", **requests(**terms)).state == "ready"


@pytest.mark.parametrize(
    "terms",
    [
        {"require": ["cmc@1>=0.5"], "backfill": 0.25},
        {"max_negative_flips": 0.5, "backfill": 0.25},
        {"criterion": "cmc@1", "target_quality": 0.9},
    ],
)
def test_what_a_sample_cannot_tell_is_no_gate_and_nothing_is_embedded_to_say_so(tmp_path, terms):
    gallery = gallery_of(tmp_path, NOISY, DIGITS, encoder=False)
    with pytest.raises(cs.errors.InvalidInput, match=r"map of any budget; cmc@k and negative flips of a hop alone"):
        gallery.upgrade("v2", **requests(**terms), dry_run=True)


@pytest.mark.parametrize(
    "terms",
    [
        {"require": ["cmc@5>=0.5"]},
        {"require": ["agreement>=0.5", "map>=0.1"]},
        {"criterion": "cmc@1"},
        {"max_negative_flips": 0.1},
    ],
)
def test_without_ground_truth_no_quality_can_be_required(tmp_path, terms):
    gallery = gallery_of(tmp_path, NOISY, DIGITS, encoder=False)
    with pytest.raises(cs.errors.InvalidInput, match=r"expected labels or qrels that .*agreement>=0\.8"):
        gallery.upgrade("v2", **requests(labels=None, **terms), dry_run=True)


def test_without_ground_truth_agreement_is_required(tmp_path):
    gallery = gallery_of(tmp_path, NOISY[:ITEMS], DIGITS[:ITEMS])
    found = [
        gallery.upgrade("v2", **requests(labels=None, backfill=share, require=["agreement>=0.95"]), dry_run=True)
        for share in (0.0, 1.0)
    ]
    assert [plan.estimate.gates[0].passed for plan in found] == [False, True]
    with pytest.raises(cs.errors.InvalidInput, match="expected no ground truth"):
        gallery.upgrade("v2", **requests(require=["agreement>=0.5"]), dry_run=True)


@pytest.mark.full
def test_an_upgrade_to_a_worse_target_is_not_begun(tmp_path):
    gallery = gallery_of(tmp_path, DIGITS, NOISY)
    assert (
        gallery.upgrade("v2", **requests(target_quality=0.9), dry_run=True).estimate.table.advice.verdict
        == "do not upgrade"
    )
    with pytest.raises(cs.errors.GateFailed, match="map above the status quo, for the whole confidence interval"):
        gallery.upgrade("v2", **requests(target_quality=0.9))
    assert steps(gallery)[-1] == "link"
    assert gallery.upgrade("v2", backfill=0.1).state == "ready"  # on the owner's own word


@pytest.mark.parametrize(
    "terms",
    [
        {"target_quality": 1.2},
        {"target_quality": 0.9, "backfill": 0.5},
        {"require": ["recall>=0.5"]},
        {"require": ["map>0.5"]},
        {"require": ["map>=1.5"]},
        {"max_negative_flips": -0.1},
        {"criterion": "cmc@7", "sample": 100},
        {"sample": 3},
    ],
)
def test_terms_that_make_no_sense_are_refused(tmp_path, terms):
    with pytest.raises(cs.errors.InvalidInput):
        plan(gallery_of(tmp_path, NOISY, DIGITS), **terms)
