"""A refit in the middle of an upgrade: a transform that knows half of the digits learns the others while it fills."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore import trainers
from compatstore.errors import Interrupted
from compatstore.storage.doubts import shrinkage_of as recorded
from compatstore.trainers import Pairs, Refit, Ridge
from digits import load_digits

pytestmark = pytest.mark.full

PIXELS, LABELS = load_digits()
PIXELS = (PIXELS / 16).astype(np.float32)
IDS = [f"digit-{number}" for number in range(len(PIXELS))]
SOURCE = PIXELS @ np.random.default_rng(1).normal(size=(64, 24)).astype(np.float32)
NATIVE = np.tanh(PIXELS @ np.random.default_rng(2).normal(size=(64, 32)).astype(np.float32) / 2).astype(np.float32)
V1 = cs.EmbeddingVersion("v1", dim=24, metric="l2")
ENCODER = cs.encoders.Precomputed(dict(zip(IDS, NATIVE, strict=True)))
V2 = cs.EmbeddingVersion("v2", dim=32, metric="l2", encoder=ENCODER)
KNOWN = np.flatnonzero(LABELS < 5)


@pytest.fixture(scope="module")
def learned():
    """A transform from pairs of the digits 0 to 4."""
    pairs = Pairs(SOURCE[KNOWN], NATIVE[KNOWN], source_version=V1, target_version=V2)
    return trainers.FastFill(loss="l2", epochs=15, branch_width=32, mixer_width=64, batch_size=64).fit(pairs)


def make(path, learned):
    gallery = cs.Gallery.create(str(path), V1)
    for start in range(0, len(IDS), 600):
        part = slice(start, start + 600)
        gallery.add({"id": IDS[part], "vector": SOURCE[part]})
    gallery.register(V2)
    gallery.artifacts.link(learned)
    return gallery


def origins(gallery):
    return np.array(gallery.get(IDS, ["v2__origin"])["v2__origin"].to_pylist())


def error(gallery):
    """Mean squared distance of the rows that are not native to their natives."""
    rows = origins(gallery) != "native"
    return float(np.square(gallery.vectors(IDS, "v2")[rows] - NATIVE[rows]).sum(axis=1).mean())


def steps(gallery):
    return [entry.step for entry in gallery.maintenance.history()]


@pytest.mark.parametrize("policy", ["random", "sigma"])
def test_what_remains_is_hopped_by_the_corrected_transform(tmp_path, learned, policy):
    plain, gallery = make(tmp_path / "plain.lance", learned), make(tmp_path / "refit.lance", learned)
    plain.upgrade("v2", backfill=cs.Backfill(share=0.3, order=policy))
    report = gallery.upgrade("v2", backfill=cs.Backfill(share=0.3, order=policy), learn=Refit())
    assert error(gallery) < 0.7 * error(plain)
    assert report.state == "ready"
    assert report.transformed == len(IDS) + (len(IDS) - report.backfilled)
    corrected = gallery.artifacts[-1]
    assert corrected.method == "FastFill+refit"
    found = origins(gallery)
    assert set(found) == {"native", corrected.id[:12]}
    assert (found == "native").sum() == int(0.3 * len(IDS))
    vectors = gallery.vectors(IDS, "v2")
    np.testing.assert_array_equal(vectors[found == "native"], NATIVE[found == "native"])
    np.testing.assert_array_equal(gallery.vectors(IDS, "v1"), SOURCE)
    entry = next(entry for entry in gallery.maintenance.history() if entry.step == "refit")
    assert entry.artifact == corrected.id
    assert "held-out squared distance" in entry.note


def test_the_same_command_again_does_nothing_and_a_larger_budget_refits_once_more(tmp_path, learned):
    gallery = make(tmp_path / "g.lance", learned)
    gallery.upgrade("v2", backfill=0.2, learn=Refit())
    before, first = gallery.status().table_version, error(gallery)
    again = gallery.upgrade("v2", backfill=0.2, learn=Refit())
    assert (again.transformed, again.backfilled) == (0, 0)
    assert gallery.upgrade("v2", transform=learned.short_id).transformed == 0
    assert gallery.status().table_version == before
    gallery.upgrade("v2", backfill=0.5, learn=Refit())
    assert steps(gallery).count("refit") + steps(gallery).count("refit refused") == 2
    assert error(gallery) < 1.2 * first


@pytest.mark.parametrize("stop", ["backfill", "hop"])
def test_a_stopped_refit_goes_on_to_the_state_of_an_uninterrupted_one(tmp_path, learned, stop):
    whole, gallery = make(tmp_path / "whole.lance", learned), make(tmp_path / "stopped.lance", learned)
    whole.upgrade("v2", backfill=cs.Backfill(share=0.3, order="sigma"), learn=Refit())

    def should_stop():
        seen = steps(gallery)
        return "refit" in seen if stop == "hop" else "hop" in seen and asked.append(1) is None and len(asked) > 1

    asked = []
    with pytest.raises(Interrupted):
        gallery.upgrade("v2", backfill=cs.Backfill(share=0.3, order="sigma"), learn=Refit(), should_stop=should_stop)
    assert set(origins(gallery)) != set(origins(whole))
    gallery.upgrade("v2", backfill=cs.Backfill(share=0.3, order="sigma"), learn=Refit())
    assert (
        len(set(origins(gallery))) == 2
    )  # artifacts carry the time at which they were made; their vectors are the same
    np.testing.assert_array_equal(origins(gallery) == "native", origins(whole) == "native")
    np.testing.assert_array_equal(gallery.vectors(IDS, "v2"), whole.vectors(IDS, "v2"))
    assert steps(gallery).count("refit") == 1


def test_a_transform_that_has_nothing_to_learn_is_kept(tmp_path):
    """The best linear transform gains nothing by a linear correction: refused once, with the figures."""
    exact = Ridge().fit(Pairs(SOURCE, NATIVE, source_version=V1, target_version=V2))
    gallery = make(tmp_path / "g.lance", exact)
    gallery.upgrade("v2", backfill=0.1, learn=Refit())
    assert len(gallery.artifacts) == 1
    assert "refit refused" in steps(gallery)
    before = gallery.status().table_version
    gallery.upgrade("v2", backfill=0.1, learn=Refit())
    assert gallery.status().table_version == before


def test_too_few_rows_are_no_ground_for_a_refit(tmp_path, learned):
    gallery = make(tmp_path / "g.lance", learned)
    gallery.upgrade("v2", backfill=0.005, learn=Refit())
    refused = next(entry for entry in gallery.maintenance.history() if entry.step == "refit refused")
    assert "too few: 8 native rows" in refused.note


def test_a_plan_names_the_refit_and_the_rows_that_it_may_hop_again(tmp_path, learned):
    gallery = make(tmp_path / "g.lance", learned)
    plan = gallery.upgrade("v2", backfill=0.25, learn=Refit(), dry_run=True)
    assert {step.name: step.rows for step in plan.steps}["refit"] == len(IDS) - int(0.25 * len(IDS))
    assert "refit" not in [step.name for step in gallery.upgrade("v2", backfill=0.25, dry_run=True).steps]


def test_a_chain_is_corrected_at_its_end(tmp_path):
    middle = cs.EmbeddingVersion("middle", dim=24, metric="l2")
    turned = np.ascontiguousarray(SOURCE[:, ::-1])
    first = Ridge().fit(Pairs(SOURCE, turned, source_version=V1, target_version=middle))
    wrong = np.roll(NATIVE, 1, axis=1)
    second = Ridge().fit(Pairs(turned, wrong, source_version=middle, target_version=V2))
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), V1)
    gallery.add({"id": IDS, "vector": SOURCE})
    gallery.register(middle)
    gallery.register(V2)
    gallery.artifacts.link(first)
    gallery.artifacts.link(second)
    gallery.upgrade("v2")
    before = error(gallery)
    gallery.upgrade("v2", backfill=0.3, learn=Refit())
    assert error(gallery) < 0.5 * before
    assert set(origins(gallery)) == {"native", f"{first.short_id}+{gallery.artifacts[-1].id[:12]}"}


def test_what_a_refit_has_corrected_is_searched_by_expected_distances(tmp_path):
    source, native = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (SOURCE, NATIVE))
    encoder = cs.encoders.Precomputed(dict(zip(IDS, native, strict=True)))
    v1 = cs.EmbeddingVersion("v1", dim=24, metric="cosine", normalised=True)
    v2 = cs.EmbeddingVersion("v2", dim=32, metric="cosine", normalised=True, encoder=encoder)
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), v1)
    gallery.add({"id": IDS, "vector": source})
    gallery.register(v2)
    few = KNOWN[:200]
    first = Ridge(penalties=(1.0,)).fit(Pairs(source[few], native[few], source_version=v1, target_version=v2))
    gallery.artifacts.link(first)
    gallery.upgrade("v2", backfill=cs.Backfill(share=0.3, order="sigma"), learn=Refit())
    corrected = gallery.artifacts[-1]
    assert corrected.method == "Ridge+refit"
    asked = {"k": len(IDS), "version": "v2", "columns": ["id"]}
    plain, doubted = (gallery.search(native[0], serving=way, **asked) for way in ("single", cs.Expected(first=10**4)))
    assert sorted(plain["id"].to_pylist()) == sorted(doubted["id"].to_pylist())
    assert recorded(gallery._catalog, corrected.id) is not None
    gallery.cutover("v2", serving="expected")
    assert gallery.search(native[0], k=5, columns=["id"])["id"].to_pylist() == doubted["id"].to_pylist()[:5]
