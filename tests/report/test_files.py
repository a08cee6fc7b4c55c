"""Where a report goes: one page by the name of a file, else a folder."""

from __future__ import annotations

import json

import pytest

import compatstore as cs
from compatstore.report.files import write_report


def test_a_name_that_ends_in_html_is_one_page(pictured, tmp_path):
    for name in ("a/report.html", "b.HTM"):
        [written] = write_report(pictured, tmp_path / name)
        assert written == tmp_path / name
        assert written.read_text(encoding="utf-8").startswith("<!doctype html>\n<html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b.HTM"]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["report.html"]


def test_any_other_name_is_a_folder_whose_json_has_the_details(taught, tmp_path):
    files = write_report(taught, tmp_path / "out")
    assert [file.name for file in files] == ["report.md", "report.json", "waves.svg"]
    picture = "![Gain of each wave over its own status quo, and its estimates](waves.svg)"
    assert picture in files[0].read_text(encoding="utf-8")
    kept = json.loads(files[1].read_text(encoding="utf-8"))
    assert kept["details"]["changes"]["worst"][0]["query"]["id"] == taught.details.changes.worst[0].query.id
    assert kept["waves"][1]["ahead"][0]["native_share"] == 0.75


def test_a_page_that_cannot_be_written_leaves_nothing(pictured, tmp_path):
    (tmp_path / "report.html").mkdir()
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "report.html", tmp_path / "file" / "report.html"):
        with pytest.raises(cs.errors.StorageError, match="a file to write"):
            write_report(pictured, place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "report.html"]
