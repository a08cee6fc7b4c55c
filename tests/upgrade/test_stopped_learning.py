"""An upgrade that teaches itself and is stopped goes on to the same end."""

from __future__ import annotations

import pytest

import compatstore as cs
from compatstore.errors import Interrupted
from tests.taught_galleries import CHEAP, FIRST, IDS, World, registry_of, served

pytestmark = pytest.mark.full

IN_BATCHES = {"backfill": 0.4, "learn": FIRST, "run": cs.RunSettings(batch_rows=20)}


@pytest.fixture
def world():
    return World()


def end_of(gallery):
    """The natives, vectors, serving and weights that an upgrade leaves."""
    registry = registry_of(gallery)
    weights = registry.artifacts[registry.runs["v2"].path[-1]].weights
    return (
        set(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()),
        gallery.vectors(IDS, "v2").tobytes(),
        served(gallery),
        weights,
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The end of an upgrade that nothing stops."""
    gallery = World().gallery(tmp_path_factory.mktemp("undisturbed"))
    gallery.upgrade("v2", **IN_BATCHES)
    return end_of(gallery)


@pytest.mark.parametrize("stop_at", [1, 7, 13])
def test_a_stopped_call_goes_on_to_the_same_end(world, tmp_path, undisturbed, stop_at):
    gallery, reports = world.gallery(tmp_path), []
    with pytest.raises(Interrupted):
        gallery.upgrade("v2", progress=reports.append, should_stop=lambda: len(reports) >= stop_at, **IN_BATCHES)
    gallery.upgrade("v2", **IN_BATCHES)
    assert end_of(gallery) == undisturbed


def test_a_call_that_was_stopped_in_a_lesson_says_after_how_many_steps(world, tmp_path):
    gallery, reports = world.gallery(tmp_path), []

    def first_tried():
        return reports[-1:] != [] and (reports[-1].step, reports[-1].done) == ("learn", 1)

    with pytest.raises(Interrupted) as stopped:
        gallery.upgrade("v2", progress=reports.append, should_stop=first_tried, **IN_BATCHES)
    assert str(stopped.value).startswith("run the training round; found a stop was requested after 1 step")


def test_what_was_learned_is_served_though_the_call_was_stopped_before_that(world, tmp_path):
    gallery = world.gallery(tmp_path)
    asked = {"backfill": 0.25, "learn": cs.Learn(first=100, candidates=CHEAP)}

    def learned():
        run = registry_of(gallery).runs.get("v2")
        return run is not None and run.learned_at > 0

    with pytest.raises(Interrupted):
        gallery.upgrade("v2", should_stop=learned, **asked)
    assert served(gallery)[0] == "target"
    said = "queries that carry both embeddings are ranked by the fusion of v1 and v2 (weight "
    assert gallery.upgrade("v2", **asked).served.startswith(said)
    assert served(gallery)[0] == "fused"
