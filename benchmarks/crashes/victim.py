"""The process that is killed: reads which gallery and from which command on, and says on stdout where it is.

    echo '["PATH", 0]' | python -m benchmarks.crashes.victim

Each line is the number of a command and the step that begins, or "done".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.crashes.script import SCRIPT
from benchmarks.crashes.truth import ENCODERS, SIDE_ENCODERS, Model
from compatstore import Gallery


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


def main() -> None:
    path, first = json.loads(sys.stdin.readline())
    announcer = Announcer()
    encoders = {**ENCODERS, "v2": HeardModel(announcer.say)}
    gallery = Gallery.open(path, encoders=encoders, side_encoders=SIDE_ENCODERS)
    for position, command in enumerate(SCRIPT[first:], first):
        announcer.position = position
        announcer.say(command.steps[0])
        command.run(gallery, announcer.progress)
        announcer.say("done")


if __name__ == "__main__":
    main()
