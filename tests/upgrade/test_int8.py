"""A hop in int8: near float32, the same whoever goes on with it, and refused where it cannot be or changes much."""

from __future__ import annotations

import json
import pickle

import lance
import numpy as np
import pytest

import compatstore as cs
from compatstore.devices.fixed_int8 import FixedInt8, calibrated
from compatstore.errors import CompatStoreWarning, Interrupted, InvalidInput, MissingExtra
from compatstore.storage.int8_scales import load_int8
from compatstore.storage.location import locate
from compatstore.storage.vector_form import to_matrix
from compatstore.trainers import Refit
from compatstore.upgrade import int8
from compatstore.upgrade.resolve import resolve_run
from compatstore.upgrade.transform import transformer_of
from galleries import artifact, cancelling, items, make

INT8 = cs.RunSettings(precision="int8")
DIMS = {"v1": 24, "v1__side": 8, "v2": 40}
IDS = [f"item-{number:06d}" for number in range(1, 97)]


def linked(gallery):
    """The artifact of the gallery's upgrade."""
    catalog = gallery._catalog
    return catalog.artifact(catalog.registry().runs["v2"].path[-1])


def calibrated_now(gallery):
    """The scales that would be taken from the gallery as it is."""
    context = resolve_run(gallery._catalog, "v2")
    sample = int8.sample_all_over(context, transformer_of(context.catalog, context.run))
    return calibrated(linked(gallery), sample.vectors[::2], sample.side[::2]).scales


@pytest.fixture
def gallery(tmp_path):
    return make(str(tmp_path / "gallery.lance"), fragments=2)


def upgraded(gallery):
    with pytest.warns(CompatStoreWarning, match="hop in int8 changes vectors: cosine with float32 0.99"):
        return gallery.upgrade("v2", run=INT8)


@pytest.mark.full
def test_it_is_near_float32_and_says_how_near(gallery, tmp_path):
    hop = next(step for step in gallery.upgrade("v2", run=INT8, dry_run=True).steps if step.name == "hop")
    assert "in int8, cosine with float32 0.999" in hop.note
    record = tmp_path / "gallery.lance" / "_compatstore" / "int8-v2.json"
    assert not record.exists(), "a plan writes nothing"
    report = upgraded(gallery)
    assert (report.precision, report.missing) == ("int8", 0)
    assert "at the least" in report.warnings[0]
    assert record.exists()
    near = gallery.vectors(IDS, "v2")
    assert gallery.maintenance.verify().clean
    gallery.retire("v2")
    assert not record.exists()
    gallery.upgrade("v2")
    exact = gallery.vectors(IDS, "v2")
    cosines = (near * exact).sum(axis=1) / np.linalg.norm(near, axis=1) / np.linalg.norm(exact, axis=1)
    assert (near != exact).any()
    assert cosines.mean() > 0.999


def test_a_row_comes_out_the_same_in_whatever_company_and_process():
    rows = items(0, 700)
    vectors, side = rows["vector"], rows["side"]
    fixed = calibrated(artifact(), vectors[:100], side[:100])
    made = fixed.apply(vectors, side)
    few = pickle.loads(pickle.dumps(fixed)).apply(vectors[650:655], side[650:655])
    np.testing.assert_array_equal(few.vectors, made.vectors[650:655])
    np.testing.assert_array_equal(few.uncertainty, made.uncertainty[650:655])
    assert made.uncertainty.shape == (700,)
    assert fixed.apply(vectors[:0], side[:0]).vectors.shape == (0, 40)


@pytest.mark.full
def test_who_goes_on_with_a_stopped_hop_uses_the_same_scales(gallery, tmp_path):
    path, asked = str(tmp_path / "gallery.lance"), []

    def stop():
        asked.append(1)
        return len(asked) > 1

    with pytest.warns(CompatStoreWarning, match="int8"), pytest.raises(Interrupted):
        gallery.upgrade("v2", run=INT8, should_stop=stop)
    transform = linked(gallery)
    record = load_int8(locate(path), "v2", transform.id)
    gallery.delete(IDS)
    assert calibrated_now(gallery) != record.scales, "from what is left other scales would be taken"
    with pytest.warns(CompatStoreWarning, match="int8"):
        cs.Gallery.open(path).upgrade("v2", run=INT8)
    stored = lance.dataset(path).to_table(columns=["v1", "v1__side", "v2"])
    read, side, made = (to_matrix(stored[name].combine_chunks(), dim)[0] for name, dim in DIMS.items())
    expected = FixedInt8(transform, record.scales).apply(read, side).vectors
    np.testing.assert_array_equal(made, expected)


@pytest.mark.full
@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"0\n{}", b"null", b"[" * 100_000])
def test_a_damaged_record_is_none(gallery, tmp_path, content):
    upgraded(gallery)
    record = tmp_path / "gallery.lance" / "_compatstore" / "int8-v2.json"
    record.write_bytes(content)
    assert load_int8(locate(str(record.parents[1])), "v2", linked(gallery).id) is None
    assert upgraded(gallery).precision == "int8"
    assert json.loads(record.read_text().partition("\n")[2])["artifact"] == linked(gallery).id


def test_what_changes_much_is_refused_before_a_row_is_written(tmp_path):
    source, target = cs.EmbeddingVersion("v1", dim=24, metric="l2"), cs.EmbeddingVersion("v2", dim=6, metric="l2")
    gallery = cs.Gallery.create(str(tmp_path / "gallery.lance"), source)
    made = items(0, 300)
    gallery.add({"id": made["id"], "vector": made["vector"]})
    gallery.register(target)
    gallery.artifacts.link(cancelling(source, target))
    for dry_run in (True, False):
        with pytest.raises(InvalidInput, match=r"a cosine of 0\.999 with those of float32.*found cosine with float32"):
            gallery.upgrade("v2", run=INT8, dry_run=dry_run)
    assert gallery.status().versions[1].missing == 300
    assert gallery.upgrade("v2").missing == 0


def test_what_cannot_be_is_refused_before_anything_is_written(gallery, monkeypatch):
    before = gallery.status().table_version
    with pytest.raises(InvalidInput, match="found device cuda"):
        gallery.upgrade("v2", run=cs.RunSettings(precision="int8", device="cuda"))
    with pytest.raises(InvalidInput, match="learns its artifact as it goes on"):
        gallery.upgrade("v2", backfill=0.1, learn=Refit(), run=INT8)
    with pytest.raises(InvalidInput, match="a chain of 2"):
        int8.require_int8((artifact(), artifact()), None, relearns=False)
    monkeypatch.setattr(int8, "find_spec", lambda name: None)
    for dry_run in (True, False):
        with pytest.raises(MissingExtra, match="onnx"):
            gallery.upgrade("v2", run=INT8, dry_run=dry_run)
    assert gallery.status().table_version == before
