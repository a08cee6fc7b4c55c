"""report on the command line."""

from __future__ import annotations


def test_a_report_for_people_for_programs_and_as_files(run, linked, tmp_path):
    run("upgrade", linked, "v2", "--target-quality", 0.7, "--sample", 120)
    told = run("report", linked, "--out", tmp_path / "report")
    assert told.code == 0
    assert told.out.startswith("v1 -> v2: ready\n300 items: ")
    assert "map kept of a full backfill" in told.out
    assert (tmp_path / "report" / "report.md").is_file()
    assert told.err.count("wrote ") == 3
    report = run("report", linked, "v2", "--no-measure", "--json").json
    assert (report["measured"], report["state"]) == (None, "ready")
    assert report["estimate"]["terms"]["target_quality"] == 0.7
    measured = run("report", linked, "v2", "--sample", 100, "--labels", "label", "--criterion", "cmc@1", "--json").json
    assert measured["measured"]["criterion"] == "cmc@1"
    asked = measured["measured"]["num_queries"]
    left = f"{asked} queries from 100 items drawn of 300 ({100 - asked} were learned from by the artifact)."
    assert measured["measured"]["provenance"] == left


def test_what_cannot_be_reported(run, linked):
    assert run("report", linked).code == 3
    assert run("report", linked, "--encoder", "precomputed:x").code == 2
