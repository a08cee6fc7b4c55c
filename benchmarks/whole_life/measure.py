"""What one piece of work takes of the machine: time, processor, memory, bytes; and what others took meanwhile."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.pairs.journal import Record

HERTZ = os.sysconf("SC_CLK_TCK")
IDLE = (3, 4)  # columns of /proc/stat: idle, waiting for a disk


def measured(work: Callable[[], Record], folder: Path) -> Record:
    """Do the work, and say what it took.

    Args:
        work: What to measure; gives figures of its own.
        folder: Whose growth is measured too.

    Returns:
        `wall_s`; `cpu_s` of this process and its children; `before_mib` and `peak_mib`, the peak of memory until the
        work and until its end; `read_mb`, what was read by calls, and `written_mb`, what goes to the disk (where the
        system counts them); `grown_mb` of the folder; `others`, cores that other programs had meanwhile; `load`, the
        system's own figure; and the work's own figures.
    """
    size, (read, written), before = size_of(folder), _bytes(), _peak_mib()
    busy, cpu, started = _busy_seconds(), _cpu_seconds(), time.perf_counter()
    figures = work()
    wall, cpu, busy = time.perf_counter() - started, _cpu_seconds() - cpu, _busy_seconds() - busy
    now = _bytes()
    return {
        "wall_s": wall,
        "cpu_s": cpu,
        "before_mib": before,
        "peak_mib": _peak_mib(),
        "read_mb": (now[0] - read) / 1e6,
        "written_mb": (now[1] - written) / 1e6,
        "grown_mb": (size_of(folder) - size) / 1e6,
        "others": max(0.0, (busy - cpu) / wall),
        "load": os.getloadavg()[0],
        **figures,
    }


def size_of(folder: Path) -> int:
    """Bytes of its files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _peak_mib() -> float:
    """Of this process; `ru_maxrss` can be that of the process which started it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def _bytes() -> tuple[int, int]:
    counted = Path("/proc/self/io")
    if not counted.exists():
        return 0, 0
    found = dict(line.split(": ") for line in counted.read_text().splitlines())
    return int(found["rchar"]), int(found["write_bytes"])


def _busy_seconds() -> float:
    """Of all cores, since the machine was started."""
    counted = Path("/proc/stat")
    if not counted.exists():
        return 0.0
    columns = [int(number) for number in counted.read_text().split("\n", 1)[0].split()[1:9]]
    return sum(number for at, number in enumerate(columns) if at not in IDLE) / HERTZ
