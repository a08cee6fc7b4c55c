"""Galleries, an artifact and a model of earlier code open, verify, upgrade and cut over; `data/write.py` wrote them."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import lance
import numpy as np
import pytest
from PIL import Image

import compatstore as cs
from compatstore.artifacts import Artifact
from compatstore.encoders import Precomputed
from compatstore.trainers.images.trained_model import TrainedModel

ARCHIVE = Path(__file__).parent / "data" / "27dda41.tar.xz"
GALLERIES = ("backfilling", "cutover", "app/photos", "estimated")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The archive's folder; only what copies of its parts are made from."""
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "earlier"


@pytest.fixture
def earlier(tmp_path):
    """A folder of one's own with all that the archive holds."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "earlier"


def natives(folder):
    """Id -> target vector."""
    with np.load(folder / "natives.npz") as found:
        return dict(zip(found["id"].tolist(), found["vector"], strict=True))


def opened(folder, name):
    return cs.Gallery.open(str(folder / f"{name}.lance"), encoders={"v2": Precomputed(natives(folder))})


def version(gallery, name):
    return next(version for version in gallery.status().versions if version.name == name)


@pytest.mark.full
def test_a_backfill_with_staged_natives_goes_on(earlier):
    gallery = opened(earlier, "backfilling")
    assert [(finding.check, finding.severity) for finding in gallery.maintenance.verify().findings] == [
        ("staged natives", "note")
    ]
    (run,) = gallery.status().upgrades
    assert (run.state, run.staged, run.spent.rows, run.left.rows) == ("backfill", 48, 48, 96)
    report = gallery.upgrade("v2")
    assert (report.state, report.backfilled, report.missing) == ("ready", 144, 0)
    (run,) = gallery.status().upgrades
    assert (run.staged, run.spent.rows) == (0, 144)  # what was staged is not embedded again
    assert version(gallery, "v2").native == 144
    assert gallery.maintenance.verify().clean
    assert gallery.cutover("v2").active == "v2"
    given = natives(earlier)
    ids = gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()
    np.testing.assert_array_equal(gallery.vectors(ids, "v2"), np.stack([given[item] for item in ids]))


@pytest.mark.full
def test_a_gallery_that_was_cut_over_serves_both_versions_and_goes_back(earlier):
    gallery = opened(earlier, "cutover")
    assert gallery.active == "v2"
    assert gallery.maintenance.verify().clean
    given = natives(earlier)
    native = gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()
    assert len(native) == 72
    assert gallery.search(given[native[0]], k=1)["id"].to_pylist() == [native[0]]
    assert gallery.upgrade("v2", backfill=1.0).backfilled == 287 - len(native)
    assert gallery.rollback().active == "v1"
    assert gallery.upgrade("v2").state == "ready"
    assert gallery.cutover("v2").active == "v2"
    assert gallery.retire("v1").dropped
    assert gallery.maintenance.verify().clean


@pytest.mark.full
def test_an_apps_table_is_caught_up_with_and_cut_over(earlier):
    gallery = opened(earlier, "app/photos")
    assert version(gallery, "v2").missing == 1
    assert gallery.maintenance.verify().clean
    report = gallery.upgrade("v2")
    assert (report.state, report.missing, report.transformed) == ("ready", 0, 1)
    assert gallery.cutover("v2").active == "v2"
    assert gallery.maintenance.verify().clean


@pytest.mark.full
def test_an_estimate_and_a_history_are_read_back(earlier):
    gallery = opened(earlier, "estimated")
    assert gallery.maintenance.verify().clean
    assert [entry.step for entry in gallery.maintenance.history()][-5:] == [
        "estimate",
        "expand",
        "hop",
        "backfill",
        "ready",
    ]
    report = gallery.report("v2", measure=False)
    assert report.estimate is not None
    assert gallery.upgrade("v2").backfilled == 0
    assert gallery.cutover("v2").active == "v2"
    assert gallery.maintenance.verify().clean


@pytest.mark.full
def test_what_the_registry_stores_keeps_its_names(earlier):
    for name in GALLERIES:
        path = str(earlier / f"{name}.lance")
        gallery = opened(earlier, name)
        before = json.loads(lance.dataset(path).config()["compatstore.registry"])
        gallery.upgrade("v2")
        after = json.loads(lance.dataset(path).config()["compatstore.registry"])
        assert before["versions"]["v2"]["basis_of"] == after["versions"]["v2"]["basis_of"] == "v1"
        assert after["versions"]["v2"]["columns"].keys() >= before["versions"]["v2"]["columns"].keys()
        assert after["versions"]["v2"]["columns"]["basis"] == "v2__basis"


def test_an_artifact_makes_the_vectors_that_it_made(unpacked):
    artifact = Artifact.load(unpacked / "fastfill.compat")
    assert artifact.manifest.method == "FastFill"
    gallery = opened(unpacked, "estimated")
    with np.load(unpacked / "natives.npz") as found:
        ids, source = found["id"].tolist(), found["source"]
    made = artifact.apply(source)
    hopped = ~np.isin(ids, gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist())
    np.testing.assert_allclose(gallery.vectors(ids, "v2")[hopped], made.vectors[hopped], rtol=1e-4, atol=1e-5)
    assert made.uncertainty is not None
    assert gallery.artifacts[0].id == artifact.id


def test_a_model_embeds_images(unpacked):
    model = TrainedModel.load(unpacked / "small.model")
    assert (model.encoder.dim, model.head.shape, model.class_names) == (6, (3, 6), ("0", "1", "2"))
    pixels = np.random.default_rng(5).integers(0, 255, (60, 12, 12)).astype(np.uint8)
    with np.load(unpacked / "model.npz") as written:
        vectors = model.encoder.encode([Image.fromarray(image) for image in pixels])
        np.testing.assert_allclose(vectors, written["vectors"], rtol=1e-4, atol=1e-5)
    assert model.version("v9").dim == 6
