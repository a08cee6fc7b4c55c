"""Progress where stderr is no terminal: a line at each change of step and now and then, with rate and time left."""

from __future__ import annotations

import subprocess
import sys

import pytest
from rich.progress import Progress

from compatstore.cli.progress import DrawnBars, Lines


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def said():
    return []


@pytest.fixture
def lines(clock, said):
    return Lines(said.append, "upgrade", clock)


def test_each_step_is_said_once_and_what_it_came_to(lines, clock, said):
    for done in (100, 200, 300):
        lines.update("hop", done, 300)
        clock.now += 1
    lines.update("backfill", 10, 40)
    lines.close()
    assert said == [
        "hop: 100 of 300, 0 s so far",
        "hop: 300 of 300, 67/s, 3 s so far",
        "backfill: 10 of 40, 0 s so far",
    ]


def test_a_step_that_ends_at_once_is_not_worth_a_line(lines, said):
    lines.update("add", 300, 300)
    lines.update("hop", 20, 20)
    lines.close()
    assert said == []


def test_now_and_then_a_line_has_the_rate_and_the_time_left(lines, clock, said):
    lines.update("backfill", 1_000, 61_000)
    for _ in range(3):
        clock.now += 10
        lines.update("backfill", 1_000 + int(clock.now) * 100, 61_000)
        lines.tick()
    assert said[1:] == [
        "backfill: 2,000 of 61,000, 100/s, 590 s left, 10 s so far",
        "backfill: 3,000 of 61,000, 100/s, 580 s left, 20 s so far",
        "backfill: 4,000 of 61,000, 100/s, 570 s left, 30 s so far",
    ]


def test_a_step_that_reports_nothing_is_said_to_be_alive(lines, clock, said):
    clock.now = 10
    lines.tick()
    lines.update("index", 0, 5_000)
    clock.now = 30
    lines.tick()
    assert said == ["upgrade: 10 s so far", "index: 0 of 5,000, 0 s so far", "index: 0 of 5,000, 20 s so far"]


def test_the_same_step_from_its_beginning_is_a_step_of_its_own(lines, clock, said):
    for candidate in range(2):
        for epoch in (1, 2, 3):
            clock.now += 1
            lines.update("train h, epochs", epoch, 3, f"loss {candidate}.{epoch}")
    lines.close()
    assert [line.partition(", loss")[2].partition(",")[0] for line in said] == [" 0.1", " 0.3", " 1.1", " 1.3"]


@pytest.mark.full
def test_an_upgrade_without_a_terminal_says_what_it_does(gallery):
    program = "from compatstore.cli.app import main; main()"
    words = ("upgrade", str(gallery), "v2", "--backfill", "1.0", "--set", "run.batch_rows=100")
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("backfill: ")
    assert lines[-1].startswith("backfill: 300 of 300, ")


def test_a_thread_writes_lines_while_nothing_is_reported(monkeypatch, capsys):
    import threading

    from compatstore.cli import progress

    written = threading.Event()
    monkeypatch.setattr(progress, "_write", lambda line: written.set())
    with progress.progress_bars("plan", interval=0.001):
        assert written.wait(60)


def test_the_rate_of_a_bar_is_of_what_was_done_while_it_was_watched(clock):
    drawn = Progress(auto_refresh=False, get_time=clock)
    bars, notes = DrawnBars(drawn, "upgrade"), []
    for at, done in ((0, 1_000), (2, 1_020), (3, 10), (5, 50)):  # the third begins the next wave
        clock.now = float(at)
        bars.update("backfill", done, 2_000)
        notes.append(drawn.tasks[-1].fields["note"])
    assert notes == ["", "10/s", "", "20/s"]
