"""Galleries of which only some items can be embedded: the share is of the gallery, and the next in order steps in."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import GateFailed, Interrupted, SourceError
from compatstore.report.files import to_markdown
from compatstore.upgrade.backfilling.policies import order
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows
from compatstore.upgrade.requests.run_settings import RunSettings
from galleries import SOURCE, artifact, items

ITEMS = 400
IDS = [f"item-{number:06d}" for number in range(ITEMS)]
KIND = np.random.default_rng(5).choice(["good", "none", "unreadable", "poison"], ITEMS, p=[0.4, 0.35, 0.2, 0.05])
GOOD = {item for item, kind in zip(IDS, KIND, strict=True) if kind == "good"}
POLICIES = ["random", "spread", "sigma", "spread-sigma", "column:number"]
AT_ONCE = RunSettings(batch_rows=20, retries=0)


def encode(sources):
    """Reads sources called KIND/NUMBER, and fails as the kind says."""
    if any(source.startswith("poison") for source in sources):
        raise RuntimeError("cannot take one of these")
    unreadable = [i for i, source in enumerate(sources) if source.startswith("unreadable")]
    if unreadable:
        raise SourceError("read", dict.fromkeys(unreadable, "no such file"))
    numbers = np.array([int(source.split("/")[1]) for source in sources])
    return np.cos(numbers[:, None] * np.arange(1, 41)).astype(np.float32)


def target(encoder=None):
    encoder = encoder or cs.encoders.Function(encode, 40, fingerprint="partly")
    return cs.EmbeddingVersion("v2", dim=40, metric="l2", encoder=encoder)


def make(path, version):
    """All items, of which those of the kind "none" have no source."""
    gallery = cs.Gallery.create(str(path), SOURCE)
    sources = [None if kind == "none" else f"{kind}/{number}" for number, kind in enumerate(KIND)]
    for start in (0, 250):
        part = items(start, min(250, ITEMS - start))
        gallery.add({**part, "source": sources[start : start + 250]})
    gallery.register(version)
    gallery.artifacts.link(artifact(SOURCE, version))
    return gallery


@pytest.fixture
def gallery(tmp_path):
    return make(tmp_path / "partly.lance", target())


@pytest.fixture
def known(tmp_path):
    """A gallery whose encoder has vectors of some ids."""
    vectors = dict(zip(IDS, np.cos(np.arange(ITEMS)[:, None] * np.arange(1, 41)).astype(np.float32), strict=True))
    encoder = cs.encoders.Precomputed({item: vectors[item] for item in GOOD})
    return make(tmp_path / "known.lance", target(encoder))


def natives(gallery):
    return set(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist())


def first_good(policy, count):
    """The first of the order that can be embedded."""
    parts = items(0, 250), items(250, 150)
    made = [artifact(SOURCE, target()).apply(part["vector"], part["side"]) for part in parts]
    sigma2 = np.concatenate([values.uncertainty for values in made])
    source = np.concatenate([part["vector"] for part in parts])
    rows = ArrayRows(ids=IDS, sigma2=sigma2, columns={"number": np.arange(ITEMS)}, source=source)
    return {IDS[row] for row in [row for row in order(policy, rows) if IDS[row] in GOOD][:count]}


@pytest.mark.full
@pytest.mark.parametrize("policy", POLICIES)
def test_the_next_in_order_takes_the_place_of_what_cannot_be_embedded(gallery, policy):
    report = gallery.upgrade("v2", backfill=cs.Backfill(share=0.25, order=policy), run=AT_ONCE)
    assert (report.backfilled, report.ended_by) == (100, "backfill")
    assert natives(gallery) == first_good(policy, 100)


@pytest.mark.full
@pytest.mark.parametrize("policy", POLICIES)
def test_calls_that_were_stopped_end_with_the_same_items(gallery, policy):
    batches = []
    for stop_after in (2, 5):
        with pytest.raises(Interrupted):
            gallery.upgrade(
                "v2",
                backfill=cs.Backfill(share=0.25, order=policy),
                run=AT_ONCE,
                progress=lambda at: batches.append(at) if at.step == "backfill" else None,
                should_stop=lambda: len(batches) >= stop_after,  # noqa: B023
            )
    gallery.upgrade("v2", run=AT_ONCE)
    assert natives(gallery) == first_good(policy, 100)


@pytest.mark.full
def test_a_backfill_in_steps_ends_with_the_items_of_one_in_one_go(gallery):
    for share in (0.05, 0.1, 0.25):
        gallery.upgrade("v2", backfill=cs.Backfill(share=share, order="sigma"), run=AT_ONCE)
    assert natives(gallery) == first_good("sigma", 100)


@pytest.mark.full
@pytest.mark.parametrize("share", [0.25, 0.9])
def test_the_same_command_again_is_a_no_op(gallery, share):
    first = gallery.upgrade("v2", backfill=share, run=AT_ONCE)
    version = gallery.status().table_version
    again = gallery.upgrade("v2", backfill=share, run=AT_ONCE)
    assert (again.backfilled, gallery.status().table_version) == (0, version)
    assert again.ended_by == first.ended_by == ("backfill" if share < 0.4 else "")


@pytest.mark.full
def test_a_share_beyond_what_can_be_embedded_takes_all_of_it_and_says_so(gallery):
    report = gallery.upgrade("v2", backfill=0.9, run=AT_ONCE)
    assert natives(gallery) == GOOD
    assert (report.backfilled, report.embeddable) == (len(GOOD), len(GOOD))
    assert report.num_unbackfillable == ITEMS - len(GOOD)
    listed = gallery.maintenance.unbackfillable("v2")
    assert set(listed["id"].to_pylist()) == set(IDS) - GOOD
    assert listed["reason"].to_pylist().count("it has no source") == (KIND == "none").sum()
    assert gallery.status().upgrades[0].embeddable == len(GOOD)
    told = gallery.report("v2")
    assert (told.embeddable, told.unbackfillable) == (len(GOOD), ITEMS - len(GOOD))
    assert f"{len(GOOD)} can be embedded at all" in to_markdown(told)


@pytest.mark.full
def test_items_without_a_source_are_counted_before_anything_is_tried(gallery):
    sourceless = int((KIND == "none").sum())
    gallery.upgrade("v2", backfill=cs.Backfill(max_rows=1), run=RunSettings(batch_rows=1, retries=0))
    assert gallery.status().upgrades[0].embeddable <= ITEMS - sourceless


def test_plan_embeds_a_sample_to_say_how_many_can_be(gallery):
    planned = gallery.upgrade("v2", backfill=0.9, dry_run=True)
    step = {step.name: step for step in planned.steps}["backfill"]
    assert step.rows == planned.embeddable == pytest.approx(len(GOOD), abs=45)
    assert any("have no source" in warning and "before its share is reached" in warning for warning in planned.warnings)
    assert {step.name: step.rows for step in gallery.upgrade("v2", backfill=0.25, dry_run=True).steps}[
        "backfill"
    ] == 100
    assert gallery.upgrade("v2", dry_run=True).embeddable is None


@pytest.mark.full
def test_an_encoder_that_knows_its_ids_is_planned_with_exactly(known):
    planned = known.upgrade("v2", backfill=0.9, dry_run=True)
    assert planned.embeddable == len(GOOD)
    assert {step.name: step.rows for step in planned.steps}["backfill"] == len(GOOD)
    assert known.upgrade("v2", backfill=0.25).backfilled == 100
    assert known.upgrade("v2", backfill=0.9, dry_run=True).embeddable == len(GOOD)
    assert known.upgrade("v2", backfill=0.9).backfilled == len(GOOD) - 100
    assert [step.name for step in known.upgrade("v2", backfill=0.9, dry_run=True).steps] == ["cutover"]


@pytest.mark.full
def test_a_target_quality_beyond_what_can_be_embedded_is_refused(known):
    planned = known.upgrade("v2", gates=cs.Gates(target_quality=1.0, sample=300), dry_run=True)
    assert not planned.estimate.passed
    assert any(str(len(GOOD)) in gate.name for gate in planned.estimate.gates)
    before = known.status()
    with pytest.raises(GateFailed, match=f"{len(GOOD)} of {ITEMS} items can be embedded natively"):
        known.upgrade("v2", gates=cs.Gates(target_quality=1.0, sample=300))
    assert known.status() == before


@pytest.mark.full
def test_an_upgrade_begun_again_lists_what_it_cannot_embed(known):
    """After a rollback all that can be embedded is native; that the rest fails does not speak against the encoder."""
    known.upgrade("v2", backfill=1.0)
    known.cutover("v2")
    known.rollback()
    again = known.upgrade("v2", backfill=1.0)
    assert (again.backfilled, again.num_unbackfillable) == (0, ITEMS - len(GOOD))
