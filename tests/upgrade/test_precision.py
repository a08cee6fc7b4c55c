"""The precision of a hop: what "auto" takes."""

from __future__ import annotations

import pytest

import compatstore as cs
from compatstore.errors import InvalidInput
from compatstore.upgrade import transform
from compatstore.upgrade.resolve import resolve_run
from compatstore.upgrade.transform import Transformer, choose_precision, sample_source, try_precisions
from galleries import artifact, cancelling, items, make

IDS = [f"item-{number:06d}" for number in range(1, 97)]


@pytest.fixture
def gallery(tmp_path, monkeypatch):
    """A small gallery, every hop of which is worth a trial."""
    monkeypatch.setattr(transform, "FEWEST_ROWS", 1)
    return make(str(tmp_path / "gallery.lance"), fragments=2)


@pytest.mark.parametrize(
    ("speed", "cosine", "taken"),
    [(2.7, 0.9999, "bfloat16"), (0.41, 0.9999, "float32"), (2.7, 0.99, "float32")],
)
def test_auto_takes_bfloat16_only_where_it_is_faster_and_as_exact(gallery, monkeypatch, speed, cosine, taken):
    monkeypatch.setattr(transform, "try_precisions", lambda *_: (speed, cosine))
    context = resolve_run(gallery._catalog, "v2")
    assert choose_precision(context, Transformer((artifact(),)), "auto", 96) == taken


@pytest.mark.full
def test_auto_gives_what_float32_gives(gallery):
    gallery.upgrade("v2")
    exact = gallery.vectors(IDS, "v2")
    gallery.retire("v2")
    report = gallery.upgrade("v2", run=cs.RunSettings(precision="auto"))
    assert report.precision in ("float32", "bfloat16")
    assert (exact * gallery.vectors(IDS, "v2")).sum(axis=1).min() > 0.999


@pytest.mark.full
def test_what_bfloat16_cannot_hold_is_not_taken_by_auto(tmp_path, monkeypatch):
    monkeypatch.setattr(transform, "FEWEST_ROWS", 1)
    source, target = cs.EmbeddingVersion("v1", dim=24, metric="l2"), cs.EmbeddingVersion("v2", dim=6, metric="l2")
    gallery = cs.Gallery.create(str(tmp_path / "gallery.lance"), source)
    made = items(0, 300)
    gallery.add({"id": made["id"], "vector": made["vector"]})
    gallery.register(target)
    gallery.artifacts.link(cancelling(source, target))
    assert gallery.upgrade("v2", run=cs.RunSettings(precision="auto")).precision == "float32"


@pytest.mark.full
def test_a_trial_measures_both_on_rows_of_the_gallery(gallery):
    context = resolve_run(gallery._catalog, "v2")
    transformer = Transformer((artifact(),))
    sample = sample_source(context, transformer, 100)
    assert len(sample.valid) == 100
    speed, cosine = try_precisions(transformer, sample)
    assert speed > 0
    assert 0.999 < cosine <= 1.0000001


def test_few_rows_are_not_tried(tmp_path):
    gallery = make(str(tmp_path / "gallery.lance"), fragments=1)
    assert gallery.upgrade("v2", run=cs.RunSettings(precision="auto")).precision == "float32"


@pytest.mark.full
def test_the_plan_says_which_precision_its_seconds_are_of(gallery):
    hop = next(
        step
        for step in gallery.upgrade("v2", run=cs.RunSettings(precision="bfloat16"), dry_run=True).steps
        if step.name == "hop"
    )
    assert hop.note.endswith("in bfloat16")


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_precision_that_does_not_exist_is_refused_before_anything_is_written(gallery, dry_run):
    before = gallery.status().table_version
    with pytest.raises(InvalidInput, match="'auto' or 'float32' or 'bfloat16'; found 'float8'"):
        gallery.upgrade("v2", run=cs.RunSettings(precision="float8"), dry_run=dry_run)
    assert gallery.status().table_version == before
