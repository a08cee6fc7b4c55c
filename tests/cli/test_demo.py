"""The demo's verb: what it shows of a report, and what it refuses. The demo itself is tested with its package."""

from __future__ import annotations

from pathlib import Path

from compatstore.cli import views
from compatstore.cli.output import Output
from compatstore.demo import DemoReport, DemoRow


def test_a_folder_that_holds_something_is_left_alone(run, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    refused = run("demo", tmp_path, "--json")
    assert (refused.code, refused.json["error"]) == (4, "AlreadyExists")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_negative_seed(run, tmp_path):
    assert run("demo", tmp_path, "--seed", -1).code == 2


def test_the_report_is_shown_in_percent(capsys):
    row = DemoRow(name="status quo", notation="s/s", cmc1=0.5, cmc5=1.0, map=0.25, note="how")
    report = DemoReport(
        rows=(row,),
        files=(Path("report.md"),),
        gallery=Path("gallery.lance"),
        items=1,
        queries=1,
        seed=0,
        seconds=1.0,
        next_commands=("compatstore status gallery.lance",),
    )
    Output(as_json=False).show(report, views.demo)
    shown = capsys.readouterr().out
    assert shown.splitlines()[1].split() == ["status", "quo", "s/s", "50.0", "100.0", "25.0", "how"]
    assert "report.md" in shown
    assert "  compatstore status gallery.lance" in shown
