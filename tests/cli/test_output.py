"""Data and nothing else on stdout, as tables or JSON; errors in one form; nothing cut."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from compatstore import errors
from compatstore.cli.app import app
from compatstore.cli.exit_codes import exit_code
from compatstore.cli.output import Output, plain, table


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
    ("error", "code"),
    [
        (errors.InvalidInput("x"), 2),
        (errors.DimensionMismatch("x"), 2),
        (errors.UnknownVersion("x"), 3),
        (errors.AlreadyExists("x"), 4),
        (errors.FingerprintMismatch("x"), 4),
        (errors.CorruptArtifact("x"), 5),
        (errors.CommitConflict("x"), 6),
        (errors.SourceError("x", {0: "y"}), 6),
        (errors.RowsMissing("x"), 7),
        (errors.MissingExtra("torch", "train"), 8),
        (errors.Interrupted("x"), 130),
        (errors.CompatStoreError("x"), 1),
    ],
)
def test_exit_codes(error, code):
    assert exit_code(error) == code


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
    assert set(answer.json) == {"error", "message", "asked", "expected", "found", "fix", "exit_code"}


def test_what_nobody_expected_keeps_its_traceback(gallery, monkeypatch):
    monkeypatch.setattr("compatstore.gallery.Gallery.status", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        app(["status", str(gallery)], standalone_mode=False)


def test_ctrl_c_ends_any_verb_without_a_traceback(run, gallery, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("compatstore.gallery.Gallery.status", interrupted)
    stopped = run("status", gallery)
    assert (stopped.code, stopped.out, stopped.err) == (130, "", "\nStopped.\n")


def test_a_real_process_keeps_stdout_clean(gallery):
    program = "from compatstore.cli.app import main; main()"
    words = ("upgrade", str(gallery), "v2", "--backfill", "1.0")
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("v2 is ready: 0 items transformed, 300 embedded natively, 0 missing, ")
    assert done.stderr == ""
