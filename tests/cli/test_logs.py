"""`--log json`: everything that a verb says on stderr is one JSON object a line."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import warnings
from datetime import datetime

import click
import pytest

from compatstore.cli.logs import Log, brief, printed_aside
from compatstore.cli.output import Output
from compatstore.errors import CompatStoreWarning

LOUD_ENCODER = """
import logging
import numpy as np
from compatstore.encoders import Function

def fn(ids):
    print("loading\\nweights", end="")
    logging.getLogger("models").warning("slow %s", "disk")
    return np.ones((len(ids), 3), np.float32)

encoder = Function(fn, 3, fingerprint="slow", reads="id", spec="python:slow_encoder:encoder")
"""


def events(text):
    found = [json.loads(line) for line in text.splitlines()]
    for event in found:
        assert event["level"] in ("info", "warning", "error")
        assert datetime.fromisoformat(event["time"]).utcoffset().total_seconds() == 0
    return found


def named(found, name):
    return [event for event in found if event["event"] == name]


@pytest.mark.full
def test_an_upgrade_tells_where_it_is_and_how_it_ended(run, slow):
    words = ("upgrade", slow.gallery, "v2", "--backfill", 1.0, "--price-per-item", "0.01", "--trust-code")
    ran = run(*words, "--log", "json")
    assert ran.code == 0
    assert "v2 is ready" in ran.out, "stdout is as ever"
    found = events(ran.err)
    assert {event["gallery"] for event in found} == {str(slow.gallery)}
    assert {(event["verb"], event["target"]) for event in found} == {("upgrade", "v2")}
    assert [found[0]["event"], found[-1]["event"]] == ["started", "ended"]
    backfill = [event for event in named(found, "progress") if event["state"] == "backfill"]
    assert 0 == backfill[0]["rows"] < backfill[1]["rows"] <= backfill[0]["total"] == slow.items
    assert all(event["cost"] >= 0.01 * event["rows"] - 1e-6 for event in backfill)
    assert (backfill[-1]["rows"], backfill[-1]["cost"]) == (slow.items, pytest.approx(0.01 * slow.items))
    assert backfill[-1]["rate"] > 0
    ended = found[-1]
    assert (ended["exit_code"], ended["level"]) == (0, "info")
    result = ended["result"]
    assert (result["state"], result["backfilled"], result["missing"]) == ("ready", slow.items, 0)
    assert result["spent"]["cost"] == pytest.approx(0.01 * slow.items)
    assert "unbackfillable" not in result, "lists, which may be long, are left out"


def test_results_on_stdout_and_the_log_are_apart(run, linked):
    ran = run("upgrade", linked, "v2", "--json", "--log=json", "--cutover")
    assert ran.json["cutover"]["active"] == "v2"
    assert events(ran.err)[-1]["result"]["cutover"]["active"] == "v2"
    said = run("status", linked, "--log", "text")
    assert said.err == ""


def test_errors_are_events(run, tmp_path, gallery):
    ran = run("upgrade", tmp_path / "none.lance", "v2", "--log", "json")
    failed, ended = events(ran.err)[-2:]
    assert (failed["event"], failed["level"], failed["error"]) == ("failed", "error", "NotFound")
    assert failed["fix"].startswith("Make one")
    assert (ended["event"], ended["exit_code"], ended["level"]) == ("ended", ran.code, "error")
    assert ran.code == 3
    ran = run("upgrade", gallery, "--log", "json", "--no-such-option", "1")
    assert [event["error"] for event in named(events(ran.err), "failed")] == ["UsageError"]
    assert ran.code == 2
    ran = run("no-such-verb", "--log", "json")
    assert [event["error"] for event in named(events(ran.err), "failed")] == ["UsageError"]
    assert ran.out == ""


def test_another_kind_of_log_is_refused(run, gallery):
    ran = run("status", gallery, "--log", "xml")
    assert (ran.code, "'xml' is not one of" in ran.err) == (2, True)


def test_a_word_behind_two_dashes_is_no_option(run, tmp_path):
    ran = run("status", "--", "--log=json")
    assert ran.code == 3
    assert ran.err.startswith("Error:")


@pytest.mark.full
def test_a_stop_is_an_event(slow):
    slow.hold(512)
    process = slow.upgrade("--log", "json")
    slow.wait(process, 512)
    process.send_signal(signal.SIGTERM)
    slow.release_when_asked_to_stop()
    slow.release()
    _, err = process.communicate()
    found = events(err)
    assert [event["signal"] for event in named(found, "stopping")] == [signal.SIGTERM]
    assert [event["error"] for event in named(found, "failed")] == ["Interrupted"]
    assert (found[-1]["event"], found[-1]["exit_code"]) == ("ended", 143)


@pytest.mark.full
def test_lance_is_silent_unless_it_was_told_to_speak(linked):
    program = "from compatstore.cli.app import main; main()"
    words = [sys.executable, "-c", program, "upgrade", str(linked), "v2", "--log", "json"]
    clean = {name: value for name, value in os.environ.items() if name != "LANCE_LOG"}
    for more, silent in (({}, True), ({"LANCE_LOG": "debug"}, False)):
        ran = subprocess.run(words, env={**clean, **more}, capture_output=True, text=True, check=True)
        assert all(line.startswith("{") for line in ran.stderr.splitlines()) == silent
        assert "ended" in ran.stderr


def test_what_an_encoder_prints_and_logs_is_told_as_events(run, slow, monkeypatch):
    monkeypatch.delitem(sys.modules, "slow_encoder")
    (slow.gallery.parent / "slow_encoder.py").write_text(LOUD_ENCODER)
    ran = run("upgrade", slow.gallery, "v2", "--backfill", 1.0, "--trust-code", "--json", "--log", "json")
    assert ran.json["state"] == "ready"
    found = events(ran.err)
    assert "loading" in {event["message"] for event in named(found, "printed")}
    assert ("models", "slow disk") in {(event["logger"], event["message"]) for event in named(found, "logged")}


def test_a_warning_is_an_event(capsys):
    with Output(as_json=False, log=Log()).noting_warnings():
        warnings.warn("that is a bad choice", CompatStoreWarning, stacklevel=1)
    (event,) = events(capsys.readouterr().err)
    assert (event["event"], event["level"], event["message"]) == ("warning", "warning", "that is a bad choice")


def test_an_unexpected_error_keeps_its_traceback(capsys):
    log, handlers = Log(), len(logging.getLogger().handlers)
    with pytest.raises(click.exceptions.Exit), log.until_end():
        raise ZeroDivisionError("by nought")
    failed, ended = events(capsys.readouterr().err)
    assert failed["error"] == "ZeroDivisionError"
    assert "by nought" in failed["traceback"].splitlines()[-1]
    assert ended["exit_code"] == 1
    assert len(logging.getLogger().handlers) == handlers


def test_characters_that_steer_a_terminal_are_spelt_out(capsys):
    with printed_aside(Log()):
        sys.stdout.write("a\x1b[31m b\u2028 c\n")
    (line,) = capsys.readouterr().err.splitlines()
    assert "\x1b" not in line
    assert json.loads(line)["message"] == "a\x1b[31m b\u2028 c"


@pytest.mark.parametrize(
    ("result", "expected"),
    [([1, 2], {"rows": 2}), ({"a": 1, "b": [2], "c": {"d": [3], "e": 4}}, {"a": 1, "c": {"e": 4}}), (None, None)],
)
def test_a_result_is_told_without_its_lists(result, expected):
    assert brief(result) == expected
