"""How an upgrade that learns as it goes on is searched by the target alone, where gates ask for that."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import GateFailed
from compatstore.storage.shrinkage import has_shrinkage
from compatstore.trainers import Pairs, Procrustes, Ridge
from compatstore.upgrade.estimates.estimate import load_estimate
from lazily import Lazy
from tests.questions import ASKED, ITEMS, Questions

metrics = Lazy("sklearn.metrics")

LEARN = cs.Learn(first=100, candidates=(Ridge(penalties=(0.1,)),))
SAYS_NOTHING = cs.Learn(first=100, candidates=(Procrustes(),))


@pytest.fixture
def world():
    return Questions(unit=True)


@pytest.fixture
def partly_known():
    """A world in which shrunk distances find other items: a transform tells what the source does not know."""
    return Questions(unit=True, unknown=0.3)


def gallery_of(world, folder, by=1, **options):
    """With labels: an item's class is the largest value that one of the models sees in it, the target by default."""
    encoder = cs.encoders.Function(world.encode, 16, fingerprint="native", reads="id")
    options = {"metric": "cosine", "normalised": True} | options
    gallery = cs.Gallery.create(str(folder / "g.lance"), cs.EmbeddingVersion("v1", dim=12, **options))
    classes = np.abs(world.spaces[by][:ITEMS]).argmax(axis=1)
    gallery.add(
        {"id": [f"item-{n:04d}" for n in range(ITEMS)], "vector": world.spaces[0][:ITEMS], "class": classes.tolist()}
    )
    gallery.register(cs.EmbeddingVersion("v2", dim=16, encoder=encoder, **options))
    return gallery


def gates(**asked):
    return cs.Gates(serving="target", **asked)


@pytest.mark.full
def test_it_is_judged_promised_and_searched_so(world, tmp_path):
    gallery = world.gallery(tmp_path)
    asked = world.queries()
    ended = gallery.upgrade("v2", backfill=0.4, gates=gates(labels=asked), learn=LEARN)
    assert ended.served.startswith("searches go on in v1 alone; after a cutover in v2 alone")
    assert ended.served.endswith(" (no significant gain)") == (ended.waves[-1].gain.low <= 0)
    assert gallery.search(world.spaces[0][ITEMS:][:1], k=1)["_version"].to_pylist() == ["v1"]
    wave, estimate = ended.waves[-1], load_estimate(gallery._catalog, "v2")
    assert estimate.row.notation == "t/h+t"
    assert (wave.served, wave.gain, wave.weight) == (estimate.row.figures["map"], estimate.row.gains["map"], 1.0)
    assert gallery.cutover("v2").changed
    assert gallery.status().upgrades[0].serving == "target"
    found = gallery.search(world.spaces[1][ITEMS:], k=ITEMS, columns=["id"])
    ids = np.reshape(found["id"].to_pylist(), (ASKED, ITEMS))
    precision = [
        metrics.average_precision_score(np.isin(row, [f"item-{item:04d}" for item in own]), -np.arange(ITEMS))
        for row, own in zip(ids, world.correct, strict=True)
    ]
    assert wave.served.value == pytest.approx(np.mean(precision), abs=1e-5)
    assert gallery.maintenance.verify().findings == ()


@pytest.mark.full
@pytest.mark.parametrize("told", [False, True])
def test_pairs_judge_it_so(partly_known, tmp_path, told):
    gallery = gallery_of(partly_known, tmp_path)
    quality, figure = (0.7, "map") if told else (0.5, "agreement")
    asked = gates(labels="class" if told else None, target_quality=quality)
    ended = gallery.upgrade("v2", backfill=cs.Backfill(max_rows=400), gates=asked, learn=LEARN)
    estimate = load_estimate(gallery._catalog, "v2")
    assert (ended.ended_by, estimate.terms.serving) == ("target_quality", "target")
    assert 0 < ended.backfilled < ITEMS
    assert estimate.row.notation == "t/h+t"
    assert estimate.row.kept[figure].low >= quality
    assert all(promise.native_share > estimate.share for promise in ended.waves[-1].ahead)
    assert len(ended.waves[-1].ahead) > 0
    choice = gallery._catalog.registry().fusion_of("v2").choice
    if told:
        assert choice.target_gain.value == pytest.approx(estimate.row.gains["map"].value, abs=1e-5)
    else:
        assert (choice.target_gain, estimate.row.gains) == (None, {})


@pytest.mark.full
def test_a_gate_that_is_not_reached_leaves_searches_as_they_are(world, tmp_path):
    gallery = gallery_of(world, tmp_path)
    with pytest.raises(GateFailed, match=r"map>=0.999"):
        gallery.upgrade("v2", backfill=0.2, gates=gates(labels="class", require=("map>=0.999",)), learn=LEARN)
    assert gallery.active == "v1"
    assert len(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()) == round(
        0.2 * ITEMS
    )


@pytest.mark.full
def test_a_transform_that_says_nothing_of_its_errors_is_judged_as_it_is(world, tmp_path):
    gallery = gallery_of(world, tmp_path)
    ended = gallery.upgrade("v2", backfill=0.2, gates=gates(labels="class"), learn=SAYS_NOTHING)
    estimate = load_estimate(gallery._catalog, "v2")
    assert estimate.terms.serving == "target"
    assert ended.state == "ready"
    gallery.cutover("v2")
    assert not gallery.explain(world.native[:1]).shrinkage
    assert gallery.search(world.native[:1], k=3, columns=["id"]).num_rows == 3


@pytest.mark.full
@pytest.mark.parametrize("learn", [LEARN, SAYS_NOTHING])
def test_a_later_call_that_asks_for_it_needs_no_other_lesson(world, tmp_path, learn):
    gallery = gallery_of(world, tmp_path)
    asked = {"backfill": 0.2, "learn": learn}
    lessons = len(gallery.upgrade("v2", gates=cs.Gates(labels="class"), **asked).waves)
    with pytest.raises(GateFailed, match=r"map>=0.999"):
        gallery.upgrade("v2", gates=gates(labels="class", require=("map>=0.999",)), **asked)
    ended = gallery.upgrade("v2", gates=gates(labels="class"), **asked)
    estimate = load_estimate(gallery._catalog, "v2")
    assert (len(ended.waves), ended.rounds) == (lessons, ())
    assert (estimate.row.notation, estimate.terms.serving) == ("t/h+t", "target")
    assert gallery.explain(version="v2").shrinkage == (learn is LEARN)
    before = gallery._catalog.store.snapshot().version
    gallery.upgrade("v2", gates=gates(labels="class"), **asked)
    assert gallery._catalog.store.snapshot().version == before


@pytest.mark.full
def test_a_correction_of_the_given_transform_is_searched_by_shrunk_distances(world, tmp_path):
    gallery = gallery_of(world, tmp_path)
    v1, v2 = (gallery.version(name) for name in ("v1", "v2"))
    some = np.random.default_rng(0).permutation(ITEMS)[:100]
    gallery.artifacts.link(
        Ridge(penalties=(10.0,), holdout=0.5).fit(
            Pairs(world.spaces[0][some], world.native[some], source_version=v1, target_version=v2)
        )
    )
    gallery.upgrade(
        "v2",
        backfill=cs.Backfill(share=0.4, order="random"),
        gates=gates(labels="class", sample=200),
        learn=cs.Learn(first=100, candidates=(Ridge(penalties=(0.1,)),), improve=True),
    )
    run = gallery._catalog.registry().runs["v2"]
    assert run.given not in ("", *run.path)
    assert has_shrinkage(gallery._catalog, gallery._catalog.registry().record("v2"), run.path)
    assert gallery.explain(version="v2").shrinkage


@pytest.mark.full
def test_what_was_measured_to_be_below_the_status_quo_is_said(world, tmp_path):
    """The target sees hardly anything: its searches are below the source's."""
    world.native[:] = 0.05 * world.native + 0.95 * np.random.default_rng(1).normal(size=world.native.shape) / 4
    world.native /= np.linalg.norm(world.native, axis=1, keepdims=True)
    gallery = gallery_of(world, tmp_path, by=0)
    gallery.upgrade("v2", backfill=0.2, gates=gates(labels="class"), learn=LEARN)
    change = gallery.cutover("v2")
    assert change.changed
    warned = "v2 alone is below the status quo: -"
    assert warned in str(gallery.explain(world.native[:1]))
    assert gallery.status().upgrades[0].warnings[0].startswith(warned)
