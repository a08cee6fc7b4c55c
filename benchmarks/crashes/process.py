"""A victim seen from outside: started, listened to, killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.crashes.script import Aim

ROOT = Path(__file__).parents[2]


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

    def start(self, path: Path, position: int) -> Iterator[Aim]:
        """Run from a command on; gives what it announces."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(path), position]), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            yield _read(line)

    def kill(self) -> list[Aim]:
        """Kill it; gives what it had announced and nobody had read."""
        assert self._process.stdout is not None
        self._process.send_signal(signal.SIGKILL)
        unread = [_read(line) for line in self._process.stdout]
        self._process.communicate()
        return unread

    def failure(self) -> str:
        """Why it ended by itself before the end, "" when it did not."""
        error = self._process.communicate()[1]
        return error if self._process.returncode else ""


def _read(line: str) -> Aim:
    position, _, step = line.strip().partition(" ")
    return int(position), step
