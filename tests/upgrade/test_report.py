"""The report of an upgrade: its life, its estimate beside what other items measure, and files for people."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from digit_galleries import DIGITS, IDS, gallery_of

import compatstore as cs
from compatstore.report.files import to_page, write_report
from compatstore.shown import view
from compatstore.upgrade import resolve

NOISY = DIGITS[:, ::3] + np.random.default_rng(0).normal(0, 3, (len(DIGITS), 22)).astype(np.float32)
TERMS = {"labels": "digit", "sample": 600, "target_quality": 0.82}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """The folder of a gallery that was upgraded to its target quality."""
    folder = tmp_path_factory.mktemp("upgraded")
    gallery_of(folder, NOISY, DIGITS).upgrade("v2", gates=cs.Gates(require=["map>=0.3"], **TERMS))
    return folder


@pytest.fixture
def upgraded(template, tmp_path):
    shutil.copytree(template / "g.lance", tmp_path / "g.lance")
    encoder = cs.encoders.Precomputed(dict(zip(IDS, DIGITS, strict=True)))
    return cs.Gallery.open(str(tmp_path / "g.lance"), encoders={"v2": encoder})


@pytest.mark.full
def test_what_was_estimated_stands_beside_what_other_items_measure(upgraded):
    before = upgraded.status().table_version
    report = upgraded.report()
    assert upgraded.status().table_version == before
    assert (report.target, report.state, report.rows, report.missing) == ("v2", "ready", len(IDS), 0)
    assert report.native == report.embedded == int(len(IDS) * report.backfill) > 0
    assert [step.step for step in report.history][-5:] == ["estimate", "expand", "hop", "backfill", "ready"]
    assert report.measured.num_queries == 600
    compared = {row.what: row for row in report.compared}
    kept = compared["map kept of a full backfill"]
    assert kept.estimated == report.estimate.row.kept["map"]
    assert kept.measured.value != kept.estimated.value  # other items
    assert sum(row.agrees for row in report.compared) >= len(report.compared) - 1
    assert compared["after a cutover: map"].measured.value > compared["status quo: map"].measured.value
    change = report.measured.change(report.measured.row("t/h"))
    assert report.advice == f"Cut over: {change}, {report.embedded} items embedded."


@pytest.mark.full
def test_before_a_cutover_nothing_is_called_served(upgraded):
    """Searches go on in the source: what was measured of the target is what they find after a cutover."""
    before = upgraded.report(details=cs.Details())
    upgraded.cutover("v2")
    after = upgraded.report(details=cs.Details())
    for report, called, said in (
        (before, "after a cutover", "After a cutover, map of "),
        (after, "as served", "As the gallery is served now, map of "),
    ):
        assert report.served == called
        assert f"{called}: map" in [row.what for row in report.compared]
        assert any(isinstance(part, str) and part.startswith(said) for part in view(report))
        assert called in to_page(report)
    assert "as served" not in to_page(before)


@pytest.mark.full
def test_what_is_served_is_measured_not_what_was_planned(upgraded):
    upgraded.upgrade("v2", backfill=1.0)
    report = upgraded.report()
    assert report.native == report.rows
    [kept] = [row for row in report.compared if row.what == "map kept of a full backfill"]
    assert kept.estimated.value < 0.9
    assert kept.measured.value == 1.0
    assert not kept.agrees
    assert report.advice.startswith("Look before you cut over: mAP ")
    assert "; not as estimated: " in report.advice
    assert "map kept of a full backfill" in report.advice


@pytest.mark.full
def test_a_report_begins_with_its_own_upgrade(upgradable, monkeypatch):
    """Also where an earlier one ended in the same second."""
    upgradable.upgrade("v2")
    began = upgradable._catalog.registry().runs["v2"].started_at
    monkeypatch.setattr(resolve, "now", lambda: began)
    upgradable.abort("v2")
    upgradable.upgrade("v2")
    assert [step.step for step in upgradable.report("v2", measure=False).history] == ["expand", "hop", "ready"]


@pytest.mark.full
def test_without_an_estimate_a_sample_has_to_be_named(tmp_path):
    gallery = gallery_of(tmp_path, NOISY, DIGITS)
    gallery.upgrade("v2", backfill=0.1)
    silent = gallery.report("v2")
    assert (silent.estimate, silent.measured, silent.compared) == (None, None, ())
    measured = gallery.report("v2", sample=400, labels="digit")
    assert measured.compared == ()
    assert measured.measured.row("t/h").gains["map"].low > 0


@pytest.mark.full
def test_it_is_told_while_rows_are_missing_and_after_the_source_is_retired(upgraded):
    upgraded.cutover("v2")
    upgraded.retire("v1")
    report = upgraded.report("v2")
    assert report.measured is None
    assert report.estimate is not None


def test_no_upgrade_no_report(tmp_path):
    gallery = gallery_of(tmp_path, NOISY, DIGITS)
    for target in (None, "v2"):
        with pytest.raises(cs.errors.NotFound, match=r"gallery\.upgrade"):
            gallery.report(target)


@pytest.mark.full
def test_an_estimate_that_saw_everything_leaves_nothing_to_measure_with(tmp_path):
    gallery = gallery_of(tmp_path, NOISY[:500], DIGITS[:500])
    gallery.upgrade("v2", gates=cs.Gates(sample=493), backfill=0.1)
    with pytest.raises(cs.errors.UpgradeError, match="measure=False"):
        gallery.report()


@pytest.mark.full
def test_the_files(upgraded, tmp_path):
    report = upgraded.report()
    files = write_report(report, tmp_path / "out")
    assert [file.name for file in files] == ["report.md", "report.json", "budgets.svg"]
    text = files[0].read_text()
    assert text.startswith("# Upgrade of v1 to v2: ready\n\nCut over: mAP ")
    assert "passed: map>=0.3, estimated " in text
    assert "| figure | estimated % | measured % | agree |" in text
    assert report.estimate.promise in text
    assert "![The curve of the backfill as estimated, and as measured](budgets.svg)" in text
    assert json.loads(files[1].read_text())["native"] == report.native
    picture = files[2].read_text()
    assert ">measured afterwards<" in picture
    assert ">estimated<" in picture
    assert ">status quo, estimated (" in picture


@pytest.mark.full
def test_a_folder_that_cannot_be_made(upgraded, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(cs.errors.StorageError, match="a folder to write in"):
        write_report(upgraded.report(measure=False), tmp_path / "file")
