"""The process that is killed: reads which gallery and from which command on, and says on stdout where it is.

    echo '["PATH", 0]' | python -m benchmarks.crashes.victim

Each line is the number of a command and the step that begins, or "done". After "done" it waits for a line before it
begins the next command: how fast it is decides nothing. Where another process holds the lease it asks again until that
one has not answered for a term. It begins no further command once it has a successor.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.crashes.place import Place, place_of
from benchmarks.crashes.script import DONE, LEASE_TERM, SCRIPT, Command
from benchmarks.crashes.truth import ENCODERS, SIDE_ENCODERS, Model
from compatstore import Gallery
from compatstore.errors import LeaseHeld
from compatstore.upgrade.backfilling import backfill, natives

PATIENCE_SECONDS = 60.0
WAVES = "CRASHES_WAVES"  # environment variable: set to have rows move in waves


class Announcer:
    """Says each step when it begins."""

    def __init__(self) -> None:
        self.position = 0
        self._last = ""

    def say(self, step: str) -> None:
        """Announce a step, unless it was the last that was announced."""
        if step != self._last:
            print(self.position, step, flush=True)
        self._last = step

    def progress(self, progress: Any) -> None:
        """Announce the step of a running upgrade; after the last batch of a backfill comes the fold."""
        ended = progress.step == "backfill" and progress.done >= progress.total
        self.say("fold" if ended else progress.step)


class HeardModel(Model):
    """The target's encoder, which says when it is called: progress comes only after the first batch."""

    def __init__(self, call: Callable[[str], None]) -> None:
        super().__init__("v2")
        self._call = call

    def encode(self, sources: Sequence[Any]) -> np.ndarray:
        """Embed: n texts -> (n, dim) float32."""
        self._call("backfill")
        return super().encode(sources)


def succeed(pid: int, path: Place) -> None:
    """Tell a victim that its successor goes on from here."""
    _successor(pid, path).touch()


def has_successor(path: Place) -> bool:
    """Whether another process goes on with the script of this one."""
    return _successor(os.getpid(), path).exists()


def _successor(pid: int, path: Place) -> Place:
    return path.parent / f"successor-of-{pid}"


def run_when_free(command: Command, gallery: Gallery, announcer: Announcer, path: Place) -> None:
    """Run a command, once nobody else holds the lease."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            command.run(gallery, announcer.progress)
        except LeaseHeld:
            if has_successor(path) or time.monotonic() > ends:
                raise
            time.sleep(LEASE_TERM / 10)
        else:
            return


def store_as_in_a_large_gallery() -> None:
    """Have a small gallery stage its natives and move them in waves, as one of many fragments and batches does."""
    backfill.BATCH_ROWS, natives.MARKED = 4, 0
    natives.SMALL_ROWS, natives.LARGEST_ROWS = 24, 48


def main() -> None:
    if os.environ.get(WAVES):
        store_as_in_a_large_gallery()
    name, first = json.loads(sys.stdin.readline())
    path = place_of(name)
    announcer = Announcer()
    encoders = {**ENCODERS, "v2": HeardModel(announcer.say)}
    gallery = Gallery.open(name, encoders=encoders, side_encoders=SIDE_ENCODERS, lease_term=LEASE_TERM)
    for position, command in enumerate(SCRIPT[first:], first):
        if has_successor(path) or (position > first and not sys.stdin.readline()):
            return
        announcer.position = position
        announcer.say(command.steps[0])
        run_when_free(command, gallery, announcer, path)
        announcer.say(DONE)


if __name__ == "__main__":
    main()
