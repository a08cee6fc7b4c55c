"""An upgrade that improves its artifact: a transform that knows half of the digits learns the others."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore import trainers
from compatstore.errors import Interrupted, UpgradeError
from compatstore.trainers import MeanShift, Pairs, Procrustes, Ridge
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
IMPROVE = cs.Learn(improve=True, first=150, candidates=(MeanShift(),))


@pytest.fixture(scope="module")
def learned():
    """A transform from pairs of the digits 0 to 4."""
    pairs = Pairs(SOURCE[KNOWN], NATIVE[KNOWN], source_version=V1, target_version=V2)
    return trainers.FastFill(loss="l2", epochs=15, branch_width=32, mixer_width=64, batch_size=64).fit(pairs)


def make(path, learned):
    gallery = cs.Gallery.create(str(path), V1)
    gallery.add({"id": IDS, "vector": SOURCE})
    gallery.register(V2)
    gallery.artifacts.link(learned)
    return gallery


def origins(gallery):
    return np.array(gallery.get(IDS, ["v2__origin"])["v2__origin"].to_pylist())


def error(gallery):
    """Mean squared distance of the rows that are not native to their natives."""
    rows = origins(gallery) != "native"
    return float(np.square(gallery.vectors(IDS, "v2")[rows] - NATIVE[rows]).sum(axis=1).mean())


def lessons(gallery):
    return [entry.note for entry in gallery.maintenance.history() if entry.step == "learn"]


@pytest.mark.parametrize("policy", ["random", "sigma"])
def test_what_remains_is_hopped_by_the_corrected_transform(tmp_path, learned, policy):
    plain, gallery = make(tmp_path / "plain.lance", learned), make(tmp_path / "improved.lance", learned)
    plain.upgrade("v2", backfill=cs.Backfill(share=0.3, order=policy))
    assert not plain._catalog.registry().runs["v2"].teaches
    result = gallery.upgrade("v2", backfill=cs.Backfill(share=0.3, order=policy), learn=IMPROVE)
    assert error(gallery) < 0.7 * error(plain)
    assert result.state == "ready"
    corrected = gallery.artifacts[-1]
    assert corrected.method == "FastFill+correction"
    found = origins(gallery)
    assert set(found) == {"native", corrected.id[:12]}
    assert (found == "native").sum() == int(0.3 * len(IDS))
    np.testing.assert_array_equal(gallery.vectors(IDS, "v2")[found == "native"], NATIVE[found == "native"])
    np.testing.assert_array_equal(gallery.vectors(IDS, "v1"), SOURCE)
    assert lessons(gallery)[0].startswith("Correction learned from 150 pairs")
    assert gallery.maintenance.verify().clean


def test_the_same_command_again_does_nothing_and_a_larger_budget_learns_again(tmp_path, learned):
    gallery = make(tmp_path / "g.lance", learned)
    gallery.upgrade("v2", transform=learned.id, backfill=0.2, learn=IMPROVE)
    before, first = gallery.status().table_version, error(gallery)
    again = gallery.upgrade("v2", transform=learned.short_id, backfill=0.2, learn=IMPROVE)
    assert (again.transformed, again.backfilled) == (0, 0)
    assert gallery.status().table_version == before
    learned_before = len(lessons(gallery))
    gallery.upgrade("v2", backfill=0.5, learn=IMPROVE)
    assert len(lessons(gallery)) > learned_before
    assert error(gallery) < 1.2 * first
    with pytest.raises(UpgradeError, match="applies it"):
        gallery.artifacts.unlink(learned.id)


def test_an_upgrade_that_was_begun_without_it_may_be_improved(tmp_path, learned):
    gallery = make(tmp_path / "g.lance", learned)
    gallery.upgrade("v2", backfill=0.2)
    before = error(gallery)
    result = gallery.upgrade("v2", backfill=0.2, learn=IMPROVE)
    assert (result.backfilled, result.missing) == (0, 0)
    assert error(gallery) < 0.8 * before


def test_a_stopped_improvement_goes_on_to_the_state_of_an_uninterrupted_one(tmp_path, learned):
    whole, gallery = make(tmp_path / "whole.lance", learned), make(tmp_path / "stopped.lance", learned)
    asked = {"backfill": cs.Backfill(share=0.3, order="sigma"), "learn": IMPROVE}
    whole.upgrade("v2", **asked)
    with pytest.raises(Interrupted):
        gallery.upgrade("v2", **asked, should_stop=lambda: bool(lessons(gallery)))
    assert set(origins(gallery)) != set(origins(whole))
    gallery.upgrade("v2", **asked)
    np.testing.assert_array_equal(origins(gallery) == "native", origins(whole) == "native")
    np.testing.assert_array_equal(gallery.vectors(IDS, "v2"), whole.vectors(IDS, "v2"))


def test_a_transform_that_has_nothing_to_learn_is_kept(tmp_path):
    """The best linear transform gains nothing by a linear correction."""
    exact = Ridge().fit(Pairs(SOURCE, NATIVE, source_version=V1, target_version=V2))
    silent = cs.Artifact.create(
        exact.kind,
        source=exact.manifest.source,
        target=exact.manifest.target,
        networks=exact.manifest.networks,
        tensors=exact.tensors,
    )  # it does not say which rows it has seen
    gallery = make(tmp_path / "g.lance", silent)
    gallery.upgrade("v2", backfill=0.1, learn=IMPROVE)
    assert len(gallery.artifacts) == 1
    assert lessons(gallery)[-1].startswith("kept after")


def test_where_it_has_seen_nearly_all_pairs_it_is_kept(tmp_path):
    exact = Ridge().fit(Pairs(SOURCE, NATIVE, source_version=V1, target_version=V2))
    gallery = make(tmp_path / "g.lance", exact)
    result = gallery.upgrade("v2", backfill=0.1, learn=cs.Learn(improve=True, first=150, candidates=(Procrustes(),)))
    assert result.state == "ready"
    assert lessons(gallery)[-1].startswith("kept: too few pairs")
    assert len(gallery.artifacts) == 1


def test_a_plan_names_the_lessons(tmp_path, learned):
    gallery = make(tmp_path / "g.lance", learned)
    plan = gallery.upgrade("v2", backfill=0.25, learn=IMPROVE, dry_run=True)
    assert {step.name: step.rows for step in plan.steps}["learn"] == len(IDS) - int(0.25 * len(IDS))
    assert "learn" not in [step.name for step in gallery.upgrade("v2", backfill=0.25, dry_run=True).steps]
