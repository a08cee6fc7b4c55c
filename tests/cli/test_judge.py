"""judge: in a pseudo-terminal to its end, on a page, by clicks, and with input that is wrong."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time

import numpy as np
import pytest

import compatstore as cs
from compatstore.upgrade.estimates.side_by_side import preference_of

QUERIES = 30
CLEAR = b"\x1b[2J\x1b[H"
PROGRAM = "from compatstore.cli.app import main; main()"


@pytest.fixture(scope="module")
def questions(digits, tmp_path_factory):
    """Items that are queries."""
    folder = tmp_path_factory.mktemp("questions")
    with np.load(digits / "v1.npz") as file:
        ids = file["id"][1 : 2 * QUERIES : 2]
    (folder / "q.jsonl").write_text("".join(json.dumps({"id": f"q{n}", "item": i}) + "\n" for n, i in enumerate(ids)))
    (folder / "clicks.csv").write_text(
        "query-id,item-id,count\n"
        + "".join(f"q{n},digit-{item:04d},1\n" for n in range(QUERIES) for item in range(300))
    )
    (folder / "none.csv").write_text("query-id,item-id,count\nq1,nothing,1\n")
    return folder


@pytest.fixture
def upgraded(run, linked):
    assert run("upgrade", linked, "v2").code == 0
    return linked


def preference(path):
    return preference_of(cs.Gallery.open(str(path))._catalog, "v2")


class Terminal:
    """The program in a terminal of 80 columns, and what it shows there."""

    def __init__(self, *words, lines=24):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 80, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"}
        environment = {name: value for name, value in environment.items() if name not in ("LINES", "COLUMNS")}
        command = [sys.executable, "-c", PROGRAM, "judge", *map(str, words)]
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a child inherits what is ignored, as under nohup
        self.process = subprocess.Popen(
            command, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, env=environment, text=True
        )
        signal.signal(signal.SIGHUP, before)
        os.close(theirs)
        self.seen, self._closed = b"", threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._wait(lambda: CLEAR in self.seen)

    def _read(self):
        with contextlib.suppress(OSError):  # how Linux tells that the other side is closed
            part = b"-"
            while part and not self._closed.is_set():
                if select.select([self.ours], [], [], 0.05)[0]:
                    part = os.read(self.ours, 65536)
                    self.seen += part

    def _wait(self, done, seconds=60.0):
        end = time.monotonic() + seconds
        while not done() and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        return done() or self.process.poll() is not None

    def press(self, *keys):
        """Press keys, each after the screen that the one before leads to; one that comes too early is pressed again."""
        for key in keys:
            screens = self.seen.count(CLEAR)
            assert self._wait(lambda: not termios.tcgetattr(self.ours)[3] & termios.ICANON)
            os.write(self.ours, key.encode())
            while not self._wait(lambda before=screens: self.seen.count(CLEAR) > before, 5.0):
                os.write(self.ours, key.encode())
        return self

    def close(self):
        """Close the terminal, as a window is closed or a connection lost."""
        self._closed.set()
        self._reader.join()
        os.close(self.ours)

    def end(self):
        """(exit code, stdout, screens) after the end of the program."""
        out, _ = self.process.communicate(timeout=60)
        self._reader.join()
        self.close()
        text = re.sub(r"\x1b\[[0-9;]*m", "", self.seen.decode()).replace("\r\n", "\n")
        return self.process.returncode, out, text.split(CLEAR.decode())[1:]


@pytest.mark.full
def test_keys_answer_to_the_end_and_the_result_is_printed(upgraded, questions):
    terminal = Terminal(upgraded, "v2", "--queries", questions / "q.jsonl", "--num", 4)
    code, out, screens = terminal.press("l", "xb", "s", "r", "l", "s").end()
    assert code == 0
    assert [re.match(r"Query (\d) of 4\n", screen)[1] for screen in screens] == ["1", "2", "1", "2", "3", "4"]
    assert re.match(r"v2 preferred in (25|50|75) % of 4 answers \(95 % CI \d+ to \d+ %; 2 same, counted half\)", out)
    found = preference(upgraded)
    assert (found.answered, found.same, out.strip()) == (4, 2, str(found))
    for screen in screens:
        lines = screen.splitlines()
        assert max(map(len, lines)) <= 80
        assert len(lines) <= 24
        assert re.search(r"^LEFT +RIGHT", screen, re.MULTILINE)
        assert "digit-" in screen
        assert not re.search(r"\bv[12]\b", screen)


@pytest.mark.full
def test_a_tall_terminal_has_two_lines_for_an_item(upgraded, questions):
    _, _, screens = Terminal(upgraded, "v2", "--queries", questions / "q.jsonl", lines=50).press("q").end()
    assert len(screens[0].splitlines()) > 24


@pytest.mark.full
def test_a_stop_keeps_the_answers_and_the_next_call_goes_on(upgraded, questions):
    words = (upgraded, "v2", "--queries", questions / "q.jsonl", "--num", 5)
    code, out, _ = Terminal(*words).press("l", "l", "q").end()
    assert (code, preference(upgraded).answered) == (0, 2)
    assert out.startswith("v2 preferred in ")
    code, _, screens = Terminal(*words).press("s", "\x03").end()
    assert screens[0].startswith("Query 3 of 5")
    assert "3 answers stored" in screens[-1]
    assert (code, preference(upgraded).answered) == (130, 3)


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_answers_outlive_a_signal(upgraded, questions, number):
    terminal = Terminal(upgraded, "v2", "--queries", questions / "q.jsonl").press("l", "r", "s")
    terminal.process.send_signal(number)
    assert terminal.end()[0] == 128 + number
    assert preference(upgraded).answered == 3


@pytest.mark.full
def test_answers_outlive_the_terminal(upgraded, questions):
    terminal = Terminal(upgraded, "v2", "--queries", questions / "q.jsonl").press("l", "r", "s")
    terminal.close()
    terminal.process.communicate(timeout=60)
    assert terminal.process.returncode != 0
    assert preference(upgraded).answered == 3


@pytest.mark.full
def test_no_answer_stores_nothing(upgraded, questions):
    code, out, screens = Terminal(upgraded, "v2", "--queries", questions / "q.jsonl", "--json").press("q").end()
    assert (code, out.strip()) == (0, "null")
    assert "0 answers stored" in screens[-1]
    assert preference(upgraded) is None


def test_a_page_and_its_answers(run, upgraded, questions, tmp_path):
    words = ("judge", upgraded, "v2", "--queries", questions / "q.jsonl")
    page, answers = tmp_path / "judge.html", tmp_path / "answers.json"
    written = run(*words, "--page", page, "--num", 6)
    assert written.out == f"wrote {page}: 6 queries to judge\n"
    assert written.err.strip() == (
        f"Store its answers: compatstore judge {upgraded} v2 --queries {questions / 'q.jsonl'} --answers FILE"
    )
    assert preference(upgraded) is None
    text = page.read_text(encoding="utf-8")
    names = re.findall(r'data-query="(\w+)"', text)
    assert len(names) == 6
    digest = re.search(r'data-digest="(\w+)"', text)[1]
    answers.write_text(json.dumps({"digest": digest, "answers": dict.fromkeys(names, "same")}))
    ended = run(*words, "--answers", answers, "--json")
    assert ended.json["same"] == 6
    assert ended.json["win_rate"]["value"] == 0.5
    assert ended.json["better"] is None
    answers.write_text(json.dumps({"digest": digest, "answers": {names[0]: "neither"}}))
    wrong = run(*words, "--answers", answers)
    assert wrong.code == 2
    assert "'left' or 'right' or 'same'" in wrong.err


def test_clicks_answer_in_place_of_a_person(run, upgraded, questions):
    words = ("judge", upgraded, "v2", "--queries", questions / "q.jsonl", "--clicks")
    ended = run(*words, questions / "clicks.csv", "--json")
    assert ended.code == 0
    assert ended.json["differing"] == ended.json["target_wins"] + ended.json["source_wins"] + ended.json["same"]
    assert "judge " in run("history", upgraded).out
    wrong = run(*words, questions / "none.csv")
    assert (wrong.code, "a click on an item of either top 10; found none" in wrong.err) == (2, True)


def test_wrong_input_is_refused(run, linked, questions, tmp_path):
    words = ("judge", linked, "v2", "--queries", questions / "q.jsonl")
    for more, code, said in (
        ((), 2, "needs a terminal: name --page, --answers or --clicks"),
        (("--page", tmp_path / "p.html", "--clicks", questions / "clicks.csv"), 2, "--page and --clicks: name one"),
        (("--clicks", questions / "clicks.csv"), 7, "an upgrade under way; found none"),
    ):
        ended = run(*words, *more)
        assert (ended.code, said in ended.err) == (code, True), ended.err
    assert run("judge", linked, "v2", "--clicks", questions / "clicks.csv").code == 2
    assert run("upgrade", linked, "v2").code == 0
    for more, code, said in (
        (("--page", tmp_path / "p.html", "--num", 0), 2, "num >= 1; found 0"),
        (("--page", tmp_path), 6, "write a page"),
        (("--answers", tmp_path / "gone.json"), 3, "expected a file"),
        (("--clicks", tmp_path / "gone.csv"), 3, "expected a file"),
    ):
        ended = run(*words, *more)
        assert (ended.code, said in ended.err) == (code, True), ended.err
    assert preference(linked) is None
