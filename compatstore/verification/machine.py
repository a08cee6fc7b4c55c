"""The machine: its processors, their threads, and the memory that is left."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import threadpoolctl

from compatstore.verification.diagnosis import Diagnosis

MEMORY_NEEDED = 2 << 30  # what a hop and a backfill stay under
GROUP = Path("/sys/fs/cgroup")  # limits of a container


def accelerator() -> Iterator[Diagnosis]:
    """Torch, CUDA, and whether bfloat16 is worth asking for."""
    if find_spec("torch") is None:
        fix = 'To train, use a GPU or bfloat16: pip install "compatstore[train]"'
        yield Diagnosis(topic="torch", level="ok", what="not installed; hops in float32 on the CPU need none", fix=fix)
        return
    try:
        import torch
    except (ImportError, OSError) as error:
        fix = "Run: pip install --force-reinstall torch"
        yield Diagnosis(topic="torch", level="warning", what=f"installed, but it cannot be loaded: {error}", fix=fix)
        return
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
        precision = "with bfloat16" if torch.cuda.is_bf16_supported() else "without bfloat16"
        yield Diagnosis(topic="torch", level="ok", what=f"{torch.__version__} on {names}, {precision}")
    else:
        speed = bfloat16_speed()
        what = f"{torch.__version__}, no CUDA; products in bfloat16 run at {speed:.2f} times the speed of float32 here"
        fix = "" if speed >= 1 else "Transform in float32 on this machine: --precision float32 (the default) or auto."
        yield Diagnosis(topic="torch", level="ok", what=what, fix=fix)


def bfloat16_speed() -> float:
    """Speed of a matrix product in bfloat16, as a multiple of float32's."""
    import torch

    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        left, right = torch.ones(512, 1024, dtype=dtype), torch.ones(1024, 1024, dtype=dtype)
        seconds[dtype] = min(_seconds(left, right) for _ in range(5))
    return seconds[torch.float32] / seconds[torch.bfloat16]


def _seconds(left: Any, right: Any) -> float:
    started = time.perf_counter()
    left @ right
    return time.perf_counter() - started


def threads() -> Iterator[Diagnosis]:
    """NumPy's products use as many threads as there are cores to run them."""
    import numpy as np

    np.ones((2, 2)) @ np.ones((2, 2))  # so that its BLAS is loaded
    cores = _cores()
    used = max([library["num_threads"] for library in threadpoolctl.threadpool_info()], default=1)
    what = f"{used} BLAS threads on {cores} cores"
    if used > cores:
        fix = f"They wait for each other: export OMP_NUM_THREADS={cores} OPENBLAS_NUM_THREADS={cores}"
        yield Diagnosis(topic="threads", level="warning", what=what, fix=fix)
    else:
        more = "" if used == cores else "To use all cores, unset OMP_NUM_THREADS and OPENBLAS_NUM_THREADS."
        yield Diagnosis(topic="threads", level="ok", what=what, fix=more)


def _cores() -> int:
    """Cores that this process may use: those of the machine, or of its container."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read(GROUP / "cpu.max").partition(" ")
    return max(1, min(available, round(int(quota) / int(period)))) if quota.isdigit() else available


def memory() -> Iterator[Diagnosis]:
    """A hop and a backfill have room."""
    available = _available_memory()
    if available is None:
        yield Diagnosis(topic="memory", level="ok", what="cannot be told on this system")
        return
    what = f"{available / 2**30:.1f} GiB free"
    if available < MEMORY_NEEDED:
        fix = f"Free some: an upgrade may take up to {MEMORY_NEEDED / 2**30:.0f} GiB."
        yield Diagnosis(topic="memory", level="warning", what=what, fix=fix)
    else:
        yield Diagnosis(topic="memory", level="ok", what=what)


def _available_memory() -> int | None:
    """Bytes that can be had without swapping, on the machine and in its container."""
    lines = [line.split() for line in _read(Path("/proc/meminfo")).splitlines()]
    free = [int(line[1]) * 1024 for line in lines if line[0] == "MemAvailable:"]
    limit, used = _read(GROUP / "memory.max"), _read(GROUP / "memory.current")
    if limit.isdigit() and used.isdigit():
        free.append(int(limit) - int(used))
    return min(free, default=None)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
