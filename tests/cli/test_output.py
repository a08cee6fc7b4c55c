"""Data and nothing else on stdout, as tables or JSON; errors in one form; nothing cut."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from pseudo_terminal import read_to_the_end
from rich.console import Console

from compatstore.cli.app import app
from compatstore.cli.output import Output, fitted, plain
from compatstore.shown import cell, table


@dataclass(frozen=True)
class Thing:
    name: str
    values: tuple[float, ...]


def test_plain_is_what_json_knows(tmp_path):
    result = {"thing": Thing("a", (1.5, float("nan"))), "rows": pa.table({"x": [1, None]}), 3: np.arange(2)}
    assert plain(result) == {
        "thing": {"name": "a", "values": [1.5, None]},
        "rows": [{"x": 1}, {"x": None}],
        "3": [0, 1],
    }
    assert plain(tmp_path) == str(tmp_path)


def test_a_table_is_neither_cut_nor_read_as_markup(capsys):
    long = "[red]" + "x" * 500
    Output(as_json=False).show([long], lambda rows: [table(("name", "number"), [(row, 1.25) for row in rows])])
    assert capsys.readouterr().out.splitlines() == ["name" + " " * 503 + "number", f"{long}    1.25"]


@pytest.mark.parametrize(
    "words", [("no-such-verb",), ("status",), ("search", "g", "-k", "many"), ("upgrade", "g", "v2", "--no-such")]
)
def test_wrong_command_lines(run, words):
    refused = run(*words)
    assert (refused.code, refused.out) == (2, "")
    answer = run(*words, "--json")
    assert (answer.code, answer.err) == (2, "")
    assert answer.json["error"] == "UsageError"
    assert answer.json["exit_code"] == 2


def test_errors_are_json_too(run, tmp_path):
    answer = run("status", tmp_path / "none.lance", "--json")
    assert (answer.code, answer.err) == (3, "")
    assert set(answer.json) == {"error", "message", "operation", "expected", "found", "fix", "kind", "exit_code"}
    assert answer.json["kind"] == "gallery"


def test_an_unexpected_error_keeps_its_traceback(gallery, monkeypatch):
    monkeypatch.setattr("compatstore.gallery.Gallery.status", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        app(["status", str(gallery)], standalone_mode=False)


def test_ctrl_c_ends_any_verb_without_a_traceback(run, gallery, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("compatstore.gallery.Gallery.status", interrupted)
    stopped = run("status", gallery)
    assert (stopped.code, stopped.out, stopped.err) == (130, "", "\nStopped.\n")


@pytest.mark.full
def test_a_real_process_keeps_stdout_clean(gallery):
    program = "from compatstore.cli.app import main; main()"
    words = ("upgrade", str(gallery), "v2", "--backfill", "1.0")
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("v2 is ready: 0 items transformed, 300 embedded natively, 0 missing, ")
    assert all(line.startswith("backfill: ") for line in done.stderr.splitlines())


LONG = "word " * 30


ROWS = [("v1", 128, LONG, 0.25), ("v2-of-a-long-name", 7, "short", 1234.5)]


def drawn(width, columns=("name", "dim", "note", "value"), rows=ROWS):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(fitted(table(columns, rows), width))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [20, 50, 80, 200])
def test_a_table_keeps_each_cell_whole_at_any_width(width):
    lines = drawn(width)
    assert max(map(len, lines)) <= width
    words = " ".join(" ".join(lines).split())
    assert words.count("word") == 30
    for whole in ("dim", "128"):
        assert whole in words.split(), "a heading or a number is never taken apart"
    if width >= 50:
        assert "v2-of-a-long-name" in words


def test_a_table_too_wide_for_its_terminal_becomes_records():
    columns = [f"column-{number}" for number in range(9)]
    lines = drawn(50, columns, [list(range(9)), list(range(9, 18))])
    assert lines[0].split() == ["column-0", "0"]
    assert lines[10].split() == ["column-0", "9"]
    assert drawn(200, columns, [list(range(9))])[0].split() == columns


def test_cells_are_read_by_people():
    assert cell({"ridge": {"mse": 0.123456, "cos": 1.0}, "best": True}) == "ridge=mse=0.1235, cos=1, best=True"
    assert (cell(0.00001234), cell(0.0), cell(2.0), cell((1, None, "a"))) == ("1.234e-05", "0", "2", "1, , a")


@pytest.mark.full
@pytest.mark.parametrize(("no_color", "styled"), [("1", False), ("", True)])
def test_no_color_leaves_no_style_at_all(gallery, no_color, styled):
    """In a terminal, as NO_COLOR is about what a terminal shows."""
    import pty

    ours, theirs = pty.openpty()
    program = "from compatstore.cli.app import main; main()"
    environment = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm-256color", "COLUMNS": "200"}
    words = [sys.executable, "-c", program, "versions", str(gallery)]
    with subprocess.Popen(words, stdout=theirs, stderr=subprocess.PIPE, env=environment) as process:
        seen = read_to_the_end(ours, theirs)
    assert process.returncode == 0
    assert (b"\x1b[" in seen) == styled, seen


@pytest.mark.full
@pytest.mark.parametrize("words", ["status", "history --json", "versions"])
def test_a_reader_that_has_gone_ends_a_verb_without_a_word(gallery, words):
    program = "from compatstore.cli.app import main; main()"
    verb, *more = words.split()
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", program, verb, str(gallery), *more], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.full
def test_a_terminal_without_unicode_ends_no_verb(gallery, tmp_path):
    program = "from compatstore.cli.app import main; main()"
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    words = [sys.executable, "-c", program, "status", str(tmp_path / "文.lance")]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 3
    assert r"\u6587.lance" in done.stderr


@pytest.mark.full
def test_commands_that_are_advised_name_the_gallery(run, linked):
    told = run("upgrade", linked, "v2")
    assert f"next: compatstore cutover {linked} v2" in told.out
    assert "GALLERY" not in run("cutover", linked, "v9").err
    assert "GALLERY" in run("cutover", linked, "v9", "--json").json["fix"], "JSON is what the API says"
    assert "next:" not in run("upgrade", linked, "v2", "--cutover").out
