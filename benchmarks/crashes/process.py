"""A victim seen from outside: started, listened to, killed, suspended and woken up."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

from benchmarks.crashes.place import Place
from benchmarks.crashes.script import Aim

ROOT = Path(__file__).parents[2]
PIPE_SECONDS = 0.1  # for what a stopped process has written to arrive


class Victim:
    """A process that runs the script, started ahead of time so that a killed one is replaced at once."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "benchmarks.crashes.victim"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        self.pid = self._process.pid
        self._announced: SimpleQueue[Aim | None] = SimpleQueue()
        self._errors: list[str] = []
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._listen, self._hear_errors)]
        for thread in self._threads:
            thread.start()

    def start(self, path: Place, position: int) -> None:
        """Run from a command on; `announced` gives what it says."""
        self._tell(json.dumps([str(path), position]))

    def go_on(self) -> None:
        """Begin the next command, after one is done."""
        with contextlib.suppress(BrokenPipeError):  # it was the last
            self._tell("")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def announced(self) -> Iterator[Aim]:
        """What it announces and nobody has heard, until it ends."""
        while (announced := self._announced.get()) is not None:
            yield announced

    def kill(self) -> list[Aim]:
        """Kill it; gives what it had announced and nobody had heard."""
        self._process.send_signal(signal.SIGKILL)
        unheard = list(self.announced())
        self._end()
        return unheard

    def hold(self) -> None:
        """Suspend it; what it has announced is heard later."""
        self._process.send_signal(signal.SIGSTOP)

    def suspend(self) -> list[Aim]:
        """Suspend it; gives what it had announced and nobody had heard."""
        self.hold()
        time.sleep(PIPE_SECONDS)
        unheard = []
        while True:
            try:
                announced = self._announced.get_nowait()
            except Empty:
                return unheard
            if announced is None:  # it had come to its end
                self._announced.put(None)
                return unheard
            unheard.append(announced)

    def wake(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def failure(self, seconds: float | None = None) -> str:
        """Wait for its end, and give why it ended before it was done, "" where it did not."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"it did not end within {seconds:g} s"
        self._end()
        return "".join(self._errors) if self._process.returncode else ""

    def _end(self) -> None:
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            position, _, step = line.strip().partition(" ")
            self._announced.put((int(position), step))
        self._announced.put(None)

    def _hear_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors += self._process.stderr
