"""Seconds and memory that a block of work takes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STATM = Path("/proc/self/statm")
_INTERVAL = 0.005  # seconds between two looks at the memory


class Footprint:
    """Seconds and memory that a block of work took; to be read after the block.

    Attributes:
        seconds: Wall time.
        peak_mib: Largest growth of the resident memory since the start, in MiB, read 200 times a second; None
            where the system does not tell (other than Linux).
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.peak_mib: float | None = 0.0 if _STATM.exists() else None


@contextmanager
def footprint() -> Iterator[Footprint]:
    """Measure a block of work."""
    measured, done = Footprint(), threading.Event()
    watcher = threading.Thread(target=_watch, args=(measured, done), daemon=True)
    start = time.perf_counter()
    if measured.peak_mib is not None:
        watcher.start()
    try:
        yield measured
    finally:
        measured.seconds = time.perf_counter() - start
        done.set()
        if watcher.is_alive():
            watcher.join()


def _watch(measured: Footprint, done: threading.Event) -> None:
    before, peak = _resident_mib(), 0.0
    while True:
        peak = max(peak, _resident_mib() - before)
        measured.peak_mib = peak
        if done.wait(_INTERVAL):
            return


def _resident_mib() -> float:
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
