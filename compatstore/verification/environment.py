"""The environment: Python, libraries and their versions, processors, threads and memory."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import threadpoolctl
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from compatstore import next_step
from compatstore.errors import StorageError
from compatstore.storage.probe import read_each_other

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """One thing that was looked at.

    Attributes:
        topic: What it is.
        level: "ok"; "warning": something is slow, missing or may go wrong; "problem": something cannot work.
        what: What was found.
        fix: What to do about it; with "ok", how to have more.
    """

    topic: str
    level: Level
    what: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class Examination:
    """All that was looked at, in order."""

    diagnoses: tuple[Diagnosis, ...]

    @property
    def fit(self) -> bool:
        """Whether there is no problem."""
        return all(diagnosis.level != "problem" for diagnosis in self.diagnoses)


PACKAGE = "compatstore"
FOR_DEVELOPERS = "dev"


def python_version() -> Iterator[Diagnosis]:
    """Python is one that the package supports."""
    found, wanted = platform.python_version(), metadata.metadata(PACKAGE)["Requires-Python"]
    if found in SpecifierSet(wanted):
        yield Diagnosis(topic="Python", level="ok", what=found)
    else:
        yield Diagnosis(topic="Python", level="problem", what=found, fix=f"Use Python {wanted}.")


def needed_libraries() -> Iterator[Diagnosis]:
    """Libraries that the package cannot work without."""
    for requirement in _requirements(""):
        found = _version(requirement.name)
        if found is not None and found in requirement.specifier:
            yield Diagnosis(topic=requirement.name, level="ok", what=found)
            continue
        what = f"{found or 'not installed'}, needed: {requirement.specifier}"
        yield Diagnosis(topic=requirement.name, level="problem", what=what, fix=f'Run: pip install "{requirement}"')


def lance_libraries() -> Iterator[Diagnosis]:
    """Each of pylance and lancedb has a Lance of its own; each reads a small table that the other wrote."""
    topic = "pylance and lancedb"
    try:
        with TemporaryDirectory() as folder:
            read_each_other(folder)
    except StorageError as error:
        yield Diagnosis(topic=topic, level="problem", what=error.found, fix=error.fix)
    else:
        yield Diagnosis(topic=topic, level="ok", what="each reads a table that the other wrote")


def optional_libraries() -> Iterator[Diagnosis]:
    """Extras: what is not installed, and what is in a version that is not supported."""
    for extra in metadata.metadata(PACKAGE).get_all("Provides-Extra") or []:
        if extra != FOR_DEVELOPERS:
            yield _extra(extra, [r for r in _requirements(extra) if r.name != PACKAGE])


def _extra(extra: str, requirements: Iterable[Requirement]) -> Diagnosis:
    found = [(requirement, _version(requirement.name)) for requirement in requirements]
    missing = [str(requirement) for requirement, version in found if version is None]
    other = [f"{r.name} {version}" for r, version in found if version is not None and version not in r.specifier]
    fix = f'Run: pip install "{PACKAGE}[{extra}]"'
    topic = f"extra {extra}"
    if missing:
        return Diagnosis(topic=topic, level="ok", what=f"not installed: {', '.join(missing)}", fix=fix)
    if other:
        return Diagnosis(topic=topic, level="warning", what=f"unsupported versions: {', '.join(other)}", fix=fix)
    return Diagnosis(topic=topic, level="ok", what="installed")


def _requirements(extra: str) -> list[Requirement]:
    """What the package needs, or what an extra adds to that."""
    found = []
    for requirement in map(Requirement, metadata.requires(PACKAGE) or []):
        marker = requirement.marker
        always = marker is None or marker.evaluate({"extra": ""})
        if always != bool(extra) and (always or (marker is not None and marker.evaluate({"extra": extra}))):
            requirement.marker = None
            found.append(requirement)
    return found


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


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
        fix = (
            ""
            if speed >= 1
            else "Transform in float32 on this machine: "
            f"{next_step.option('precision', 'float32', within='RunSettings')} (the default) or auto."
        )
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
