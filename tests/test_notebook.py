"""Results in a notebook: the same lines and tables as on the command line, escaped; and progress below the cell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import nbclient
import nbformat
import numpy as np
import pytest
from digit_galleries import DIGITS, gallery_of
from pseudo_terminal import read_to_the_end

import compatstore as cs
from compatstore.html import visible
from compatstore.shown import Table, html_of, table, view
from compatstore.upgrade.estimates.estimate import WaveMeasurement, Waves
from compatstore.upgrade.progress import Progress

NOISY = DIGITS[:, ::3] + np.random.default_rng(0).normal(0, 3, (len(DIGITS), 22)).astype(np.float32)
EVIL = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</td></table>", "&lt;", "\x1b[2J\u202ex")
ITEMS = 400


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    made = gallery_of(tmp_path_factory.mktemp("notebook") / "<b>&", NOISY[:ITEMS], DIGITS[:ITEMS])
    made.result = made.upgrade("v2", backfill=0.2)
    return made


def shown_by(gallery):
    return {
        "Gallery": gallery,
        "Status": gallery.status(),
        "RunStatus": gallery.status().upgrades[0],
        "Plan": gallery.upgrade("v2", backfill=0.5, dry_run=True),
        "DecisionTable": gallery.evaluate("v2", sample=200, labels="digit"),
        "UpgradeReport": gallery.report("v2", sample=200, labels="digit", details=cs.Details()),
        "UpgradeResult": gallery.result,
        "UpgradeEstimate": gallery.upgrade(
            "v2", backfill=0.5, gates=cs.Gates(sample=200, labels="digit"), dry_run=True
        ).estimate,
        "Fusion": gallery.evaluate("v2", sample=200, labels="digit", weight="best"),
        "Scan": gallery.scan(),
    }


@pytest.fixture
def taught_waves():
    found = cs.evaluation.Estimate(value=0.5, low=0.4, high=0.6)
    wave = {
        "cost": 0.0,
        "seconds": 1.0,
        "weight": 0.5,
        "criterion": "map",
        "truth": "labels",
        "num_queries": 90,
        "ahead": (),
    }
    return Waves(
        WaveMeasurement(
            native=50 * number, native_share=0.1 * number, status_quo=found, served=found, gain=found, **wave
        )
        for number in (1, 2)
    )


class Cells(HTMLParser):
    """Rows of cells and paragraphs, in their order."""

    def __init__(self, markup):
        super().__init__(convert_charrefs=True)
        self.rows, self.tags, self._text = [], [], None
        self.feed(markup)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag in ("tr", "p"):
            self.rows.append([])
        if tag in ("td", "th", "p"):
            self._text = ""

    def handle_endtag(self, tag):
        if tag in ("td", "th", "p"):
            self.rows[-1].append(self._text)
            self._text = None

    def handle_data(self, data):
        if self._text is not None:
            self._text += data


def rows_of(parts):
    for part in parts:
        if isinstance(part, Table):
            yield list(part.headings)
            yield from map(list, part.rows)
        elif part:
            yield [visible(part.strip())]


@pytest.mark.full
def test_each_result_shows_what_the_command_line_shows(gallery):
    for name, result in shown_by(gallery).items():
        html = result._repr_html_()
        found = Cells(html)
        expected = list(rows_of(view(gallery.status() if name == "Gallery" else result)))
        assert found.rows == expected, name
        assert any(tag == "table" for tag, _ in found.tags) or name in ("RunStatus", "UpgradeResult"), name
        assert {tag for tag, _ in found.tags} <= {"div", "p", "table", "caption", "thead", "tbody", "tr", "th", "td"}


def test_waves_are_a_table(taught_waves):
    rows = Cells(taught_waves._repr_html_()).rows
    assert rows == list(rows_of(view(taught_waves)))
    assert [row[:3] for row in rows] == [["wave", "native", "share"], ["1", "50", "10.0%"], ["2", "100", "20.0%"]]


def test_text_from_elsewhere_is_escaped():
    html = str(html_of([*EVIL, table(EVIL, [EVIL], caption=EVIL[0])]))
    found = Cells(html)
    assert {tag for tag, _ in found.tags} <= {"div", "p", "table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert {name for _, attributes in found.tags for name in attributes} <= {"scope", "style"}
    texts = [visible(text) for text in EVIL]
    assert found.rows == [*([text] for text in texts), texts, texts]
    assert "\x1b" not in html
    assert unescape(re.sub("<[^>]*>", "", str(html_of([EVIL[0]])))) == EVIL[0]


def test_what_has_no_view_is_not_shown():
    with pytest.raises(TypeError, match="no view of object"):
        view(object())


def test_progress_of_an_upgrade_is_a_table(tmp_path, capsys):
    gallery = gallery_of(tmp_path, NOISY[:ITEMS], DIGITS[:ITEMS])
    shown = cs.ShowProgress()
    gallery.upgrade("v2", backfill=0.2, progress=shown)
    assert {"hop", "backfill"} <= {step.step for step in shown.steps}
    assert all(step.done == step.total for step in shown.steps if step.step in ("hop", "backfill"))
    rows = Cells(shown._repr_html_()).rows
    assert rows[0] == ["step", "done", "of", "rows/s", "seconds left"]
    assert ["hop", f"{ITEMS}", f"{ITEMS}"] in [row[:3] for row in rows]
    lines = capsys.readouterr().err.splitlines()
    assert f"hop: {ITEMS} of {ITEMS}" in lines


def test_progress_is_drawn_at_turns_and_now_and_then(capsys):
    shown = cs.ShowProgress(interval=3600.0)
    for done in range(1, 101):
        shown(Progress("hop", done, 100, 1.0))
    shown(Progress("backfill", 0, 0, 0.0, "a lesson <b>"))
    assert capsys.readouterr().err.splitlines() == ["hop: 1 of 100", "hop: 100 of 100", "backfill: 0 of 0"]
    assert Cells(shown._repr_html_()).rows[-1] == ["a lesson <b>"]


@pytest.mark.full
@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_an_interactive_interpreter_shows_progress_on_its_terminal(tmp_path):
    ours, theirs = os.openpty()
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    lines = [*NOTEBOOK.format(folder=str(tmp_path)).strip().splitlines(), "_ = gallery.upgrade('v2', backfill=0.2)"]
    with subprocess.Popen(
        [sys.executable, "-q"], stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "PYTHONPATH": path}
    ) as interpreter:
        os.write(ours, ("\n".join([*lines, "print('end', 3 * 14)", "exit()"]) + "\n").encode())
        shown = read_to_the_end(ours, theirs).decode()
    assert interpreter.returncode == 0
    assert "end 42" in shown
    assert re.search(r"\r\x1b\[Khop: 400 of 400\r?\n", shown)
    assert "Traceback" not in shown


NOTEBOOK = """
import numpy as np, compatstore as cs
from digit_galleries import DIGITS, gallery_of
from pathlib import Path
gallery = gallery_of(Path({folder!r}), DIGITS[:400, ::2], DIGITS[:400])
"""
CELLS = (
    "result = gallery.upgrade('v2', backfill=0.2, progress=cs.ShowProgress(interval=0.0))",
    "gallery",
    "gallery.scan().to_polars()",
    "gallery.report('v2', sample=150, labels='digit')",
)


@pytest.mark.slow
def test_a_notebook_shows_tables_and_one_table_of_progress(tmp_path, monkeypatch):
    cells = [NOTEBOOK.format(folder=str(tmp_path)), *CELLS]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    nbclient.NotebookClient(book, timeout=600, kernel_name="python3").execute()
    outputs = [cell.outputs for cell in book.cells]
    assert outputs[0] == []
    [progress] = outputs[1]  # one display, drawn again; nothing on stderr
    assert progress.output_type == "display_data"
    assert "hop" in progress.data["text/html"]
    assert "backfill" in progress.data["text/html"]
    for shown in outputs[2:]:
        assert "<table" in shown[-1].data["text/html"]
        assert all(output.output_type == "execute_result" for output in shown)
