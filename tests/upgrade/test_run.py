"""One upgrade from plan to retirement, step by step, on real digits."""

from __future__ import annotations

import lance
import numpy as np
import pytest

import compatstore as cs
from compatstore.upgrade.retire import _without
from digits import load_digits
from galleries import TARGET, artifact, items, make

DIGITS = load_digits().data.astype(np.float32)
IDS = [f"digit-{number}" for number in range(len(DIGITS))]
NATIVE = DIGITS @ np.random.default_rng(1).normal(size=(64, 6)).astype(np.float32)


@pytest.fixture
def gallery(tmp_path):
    """Digits by their upper half; the target sees all of them, through vectors computed elsewhere."""
    source = cs.EmbeddingVersion("v1", dim=32, metric="l2")
    gallery = cs.Gallery.create(str(tmp_path / "digits.lance"), source)
    for start in range(0, len(DIGITS), 500):
        part = slice(start, start + 500)
        gallery.add({"id": IDS[part], "vector": DIGITS[part, :32], "source": [f"mem:{i}" for i in IDS[part]]})
    encoder = cs.encoders.Precomputed(dict(zip(IDS, NATIVE, strict=True)))
    target = cs.EmbeddingVersion("v2", dim=6, metric="l2", encoder=encoder)
    gallery.register(target)
    gallery.artifacts.link(artifact(source, target))
    return gallery


def table_version(gallery):
    return gallery.status().table_version


@pytest.mark.full
def test_a_plan_writes_nothing_and_is_what_the_upgrade_does(gallery):
    before = table_version(gallery)
    plan = gallery.upgrade("v2", backfill=0.25, dry_run=True)
    assert table_version(gallery) == before
    assert [step.name for step in plan.steps] == ["expand", "hop", "backfill", "catch-up", "cutover"]
    rows = {step.name: step.rows for step in plan.steps}
    report = gallery.upgrade("v2", backfill=0.25)
    assert (report.transformed, report.backfilled) == (rows["hop"], rows["backfill"]) == (1797, 449)
    assert report.state == "ready"
    assert [step.name for step in gallery.upgrade("v2", dry_run=True).steps] == ["cutover"]


@pytest.mark.full
def test_natives_are_the_encoders_and_the_rest_is_transformed(gallery):
    gallery.upgrade("v2", backfill=0.25)
    table = gallery.get(IDS, ["v2__origin"])
    native = np.array([origin == "native" for origin in table["v2__origin"].to_pylist()])
    assert native.sum() == 449
    vectors = gallery.vectors(IDS, "v2")
    np.testing.assert_array_equal(vectors[native], NATIVE[native])
    h = artifact(gallery.version("v1"), gallery.version("v2"))
    np.testing.assert_allclose(vectors[~native], h.apply(DIGITS[~native, :32]).vectors, atol=1e-5)
    np.testing.assert_array_equal(gallery.vectors(IDS, "v1"), DIGITS[:, :32])


@pytest.mark.full
def test_a_larger_backfill_keeps_what_is_native_and_reaches_the_whole(gallery):
    gallery.upgrade("v2", backfill=0.25)
    first = origins(gallery)
    assert gallery.upgrade("v2", backfill=0.5).backfilled == 898 - 449
    second = origins(gallery)
    assert first <= second
    assert gallery.upgrade("v2", backfill=1.0).backfilled == 1797 - 898
    np.testing.assert_array_equal(gallery.vectors(IDS, "v2"), NATIVE)
    assert gallery.upgrade("v2", backfill=1.0).backfilled == 0


def origins(gallery):
    table = gallery.get(IDS, ["id", "v2__origin"]).to_pylist()
    return {row["id"] for row in table if row["v2__origin"] == "native"}


@pytest.mark.full
def test_a_full_backfill_needs_no_artifact(tmp_path):
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=32))
    gallery.add({"id": IDS, "vector": DIGITS[:, :32]})
    encoder = cs.encoders.Precomputed(dict(zip(IDS, NATIVE, strict=True)))
    gallery.register(cs.EmbeddingVersion("v2", dim=6, encoder=encoder))
    with pytest.raises(cs.errors.NotFound, match="find a path"):
        gallery.upgrade("v2", backfill=0.5, learn=None, dry_run=True)
    assert gallery.upgrade("v2", backfill=1.0, learn=None).missing == 0
    assert gallery.cutover("v2").active == "v2"


def test_a_stop_keeps_finished_batches_and_the_same_call_goes_on(gallery):
    calls = []
    with pytest.raises(cs.errors.Interrupted, match="goes on from here"):
        gallery.upgrade("v2", backfill=1.0, progress=calls.append, should_stop=lambda: len(calls) >= 7)
    assert calls[-1].step == "backfill"
    run = gallery.status().upgrades[0]
    assert (run.state, run.waiting_for) == ("backfill", "the backfill to finish")
    report = gallery.upgrade("v2")
    assert report.backfilled == 1797, "what was staged before the stop is folded, not embedded again"
    np.testing.assert_array_equal(gallery.vectors(IDS, "v2"), NATIVE)


@pytest.mark.full
def test_staged_vectors_are_not_embedded_twice(gallery, monkeypatch):
    calls, asked = [], []
    encode = cs.encoders.Precomputed.encode
    monkeypatch.setattr(cs.encoders.Precomputed, "encode", lambda self, ids: asked.extend(ids) or encode(self, ids))
    with pytest.raises(cs.errors.Interrupted):
        gallery.upgrade("v2", backfill=1.0, progress=calls.append, should_stop=lambda: len(calls) >= 6)
    assert 0 < len(asked) < 1797
    gallery.upgrade("v2")
    assert sorted(asked) == sorted(IDS)


@pytest.mark.full
def test_items_without_a_reachable_source_are_reported(gallery):
    gallery.add({"id": ["stranger"], "vector": np.ones((1, 32), np.float32)})
    report = gallery.upgrade("v2", backfill=1.0)
    assert report.num_unbackfillable == 1
    assert report.unbackfillable[0][0] == "stranger"
    assert report.missing == 0, "it keeps its transformed vector"
    status = gallery.status()
    assert status.upgrades[0].unbackfillable == 1
    assert (status.versions[1].native, status.versions[1].transformed) == (1797, 1)


@pytest.mark.full
def test_cutover_is_refused_while_rows_are_missing_unless_forced(tmp_path):
    gallery = make(str(tmp_path / "g.lance"), fragments=2, rows=40)
    late = items(1000, 1)
    del late["side"]
    gallery.upgrade("v2")
    gallery.add(late)
    assert gallery.cutover("v2", dry_run=True).missing == 1
    with pytest.raises(cs.errors.UpgradeError, match=r"1 items without one.*force=True"):
        gallery.cutover("v2")
    assert gallery.active == "v1"
    switched = gallery.cutover("v2", force=True)
    assert (switched.active, switched.missing) == ("v2", 1)
    assert gallery.status().missing == 1


def test_a_cutover_before_the_upgrade_is_refused(tmp_path):
    gallery = make(str(tmp_path / "g.lance"), fragments=1, rows=10)
    with pytest.raises(cs.errors.UpgradeError, match=r'gallery\.upgrade\("v2"\)'):
        gallery.cutover("v2")
    with pytest.raises(cs.errors.NotFound, match=r"gallery\.register"):
        gallery.cutover("v9")


@pytest.mark.full
def test_rollback_loses_no_row_written_since(gallery):
    gallery.upgrade("v2")
    gallery.cutover("v2")
    gallery.add({"id": ["new"], "vector": np.ones((1, 6), np.float32)})
    switched = gallery.rollback()
    assert (switched.active, switched.missing) == ("v1", 1)
    assert gallery.get(["new"])["id"].to_pylist() == ["new"]
    assert gallery.status().missing == 1
    assert gallery.upgrade("v2").state == "ready"
    assert gallery.cutover("v2").missing == 0
    assert gallery.vectors(["new"], "v2").tolist() == [[1] * 6]


@pytest.mark.full
def test_retire_drops_what_the_version_needs_and_refuses_the_active_one(gallery):
    gallery.upgrade("v2")
    with pytest.raises(cs.errors.UpgradeError, match="searches use"):
        gallery.retire("v1")
    gallery.cutover("v2")
    assert gallery.retire("v1").dropped == ("v1", "v1__origin", "v1__uncertainty", "v1__input_hash", "v2__input_hash")
    assert gallery.retire("v1").changed is False
    with pytest.raises(cs.errors.UpgradeError, match=r"one upgrade.*none"):
        gallery.rollback()
    assert gallery.search(NATIVE[0], k=1).num_rows == 1
    assert [entry.step for entry in gallery.maintenance.history()][-2:] == ["cutover", "retire"]
    with pytest.raises(cs.errors.NotFound, match="retired"):
        gallery.vectors(IDS[:1], "v1")


@pytest.mark.full
def test_a_retire_that_was_killed_is_finished_by_the_next_one(gallery):
    gallery.upgrade("v2")
    gallery.cutover("v2")
    from compatstore.storage.registry import edit

    edit(gallery._catalog.store, lambda registry: _without(registry, "v1"))
    assert "v1" in lance.dataset(gallery.status().gallery).schema.names
    assert gallery.retire("v1").dropped == ("v1", "v1__origin", "v1__uncertainty", "v1__input_hash", "v2__input_hash")


@pytest.mark.full
def test_an_abandoned_upgrade_can_be_begun_again(gallery):
    gallery.upgrade("v2", backfill=0.1)
    gallery.retire("v2")
    assert gallery.status().versions[1].state == "retired"
    assert gallery.upgrade("v2").transformed == 1797
    assert gallery.status().versions[1].native == 0


@pytest.mark.full
def test_rows_that_come_during_the_hop_are_caught_up(tmp_path):
    path = str(tmp_path / "g.lance")
    gallery = make(path, fragments=4, rows=50)
    other = cs.Gallery.open(path)
    came = []

    def interfere(_):
        if len(came) < 3:
            came.append(items(5000 + 10 * len(came), 5))
            other.add(came[-1])
            other.delete([f"item-{60 + len(came):06d}"])

    report = gallery.upgrade("v2", progress=interfere)
    assert report.missing == 0
    assert gallery.status().versions[1].transformed == len(gallery)
    ids = [item for part in came for item in part["id"]]
    expected = [artifact().apply(part["vector"], part["side"]).vectors for part in came]
    np.testing.assert_allclose(gallery.vectors(ids, "v2"), np.concatenate(expected), rtol=1e-5, atol=1e-6)


def test_settings_out_of_range_are_refused_before_anything_is_written(gallery):
    before = table_version(gallery)
    with pytest.raises(cs.errors.InvalidInput, match="0 to 1"):
        gallery.upgrade("v2", backfill=1.5)
    with pytest.raises(cs.errors.InvalidInput, match="random"):
        gallery.upgrade("v2", backfill=cs.Backfill(order="alphabetical"))
    with pytest.raises(cs.errors.InvalidInput, match="is active"):
        gallery.upgrade("v1")
    with pytest.raises(cs.errors.NotFound, match="version"):
        gallery.upgrade("v7")
    assert table_version(gallery) == before


def test_a_backfill_without_an_encoder_says_how_to_give_one(tmp_path):
    gallery = make(str(tmp_path / "g.lance"), fragments=1, rows=30)
    assert any("no encoder" in warning for warning in gallery.upgrade("v2", backfill=0.5, dry_run=True).warnings)
    with pytest.raises(cs.errors.UpgradeError, match="encoders="):
        gallery.upgrade("v2", backfill=0.5)
    assert gallery.upgrade("v2", backfill=0.0).state == "ready"


@pytest.mark.full
def test_reading_the_state_never_writes(gallery):
    gallery.upgrade("v2", backfill=0.1)
    before = table_version(gallery)
    (
        gallery.status(),
        gallery.maintenance.history(),
        gallery.versions(),
        gallery.upgrade("v2", backfill=0.3, dry_run=True),
    )
    gallery.cutover("v2", dry_run=True).missing, gallery.explain(), len(gallery), repr(gallery)
    assert table_version(gallery) == before


@pytest.mark.full
def test_the_target_metric_is_used_for_the_target(gallery):
    gallery.upgrade("v2", backfill=1.0)
    gallery.cutover("v2")
    found = gallery.search(NATIVE[3], k=1)
    assert found["id"].to_pylist() == ["digit-3"]
    assert found["_origin"].to_pylist() == ["native"]
    assert TARGET.metric == "cosine"


@pytest.mark.full
def test_a_hop_in_bfloat16_finds_what_one_in_float32_finds(gallery):
    gallery.upgrade("v2")
    exact = gallery.vectors(IDS, "v2")
    gallery.retire("v2")
    gallery.upgrade("v2", run=cs.RunSettings(precision="bfloat16"))
    cosines = (exact * gallery.vectors(IDS, "v2")).sum(axis=1)
    assert cosines.min() > 0.999
    assert gallery.upgrade("v2").transformed == 0
