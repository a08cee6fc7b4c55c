"""Galleries of random items, seconds of calls that take turns, and what a call costs."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import compatstore as cs
from benchmarks.record import Row
from compatstore.artifacts import Architecture, Artifact, Space

ADDED_AT_ONCE = 50_000
Work = Callable[[], Row]


def near(rng: np.random.Generator, centres: Any, rows: int) -> Any:
    """(rows, dim) float32 around centres, each of them as likely."""
    noise = 0.6 * rng.standard_normal((rows, centres.shape[1]), np.float32)
    return centres[rng.integers(0, len(centres), rows)] + noise


def filled(
    path: str | Path, rows: int, dim: int, *, unit: bool = False, encoder: Any = None, centres: Any = None
) -> cs.Gallery:
    """A gallery of random vectors in v1, l2; each item's source is its id.

    Args:
        path: Of the table.
        rows: Items.
        dim: Length of the vectors.
        unit: True for vectors of unit length.
        encoder: Of v1.
        centres: (n, dim) float32 that items are near; none by default.
    """
    version = cs.EmbeddingVersion("v1", dim=dim, metric="l2", normalised=unit, encoder=encoder)
    gallery, rng = cs.Gallery.create(str(path), version), np.random.default_rng(0)
    for start in range(0, rows, ADDED_AT_ONCE):
        ids = [f"{number:09d}" for number in range(start, min(start + ADDED_AT_ONCE, rows))]
        vectors = (
            rng.normal(size=(len(ids), dim)).astype(np.float32) if centres is None else near(rng, centres, len(ids))
        )
        if unit:
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        gallery.add({"id": ids, "vector": vectors, "source": ids})
    return gallery


def ones(dim: int) -> cs.encoders.Function:
    """An encoder that costs nothing."""
    return cs.encoders.Function(lambda ids: np.ones((len(ids), dim), np.float32), dim, fingerprint="ones", reads="id")


def transform(gallery: cs.Gallery, **layers: Any) -> Artifact:
    """A transform from v1 to v2 with a sigma head, weights at random; by default a small one."""
    dim = gallery.version("v1").dim
    shape = Architecture(source_dim=dim, output_dim=dim, **(layers or {"mixer": (64,), "uncertainty": True}))
    spaces = {role: Space.of(gallery.version(name)) for role, name in (("source", "v1"), ("target", "v2"))}
    rng = np.random.default_rng(2)
    sizes = shape.shapes().items()
    named = {f"h.{name}": rng.normal(0, size[-1] ** -0.5, size).astype(np.float32) for name, size in sizes}
    return Artifact.create("ForwardTransform", networks={"h": shape}, tensors=named, **spaces)


def by_turns(
    ways: Mapping[str, Callable[[Any], object]], inputs: Iterable[Any], clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """Seconds of each way for each input: way -> (n,) float64. A busy machine slows all, as they take turns."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for each in inputs:
        for name, way in ways.items():
            started = clock()
            way(each)
            taken[name].append(clock() - started)
    return {name: np.array(seconds) for name, seconds in taken.items()}


def cost(work: Work) -> Row:
    """Seconds, peak of memory and bytes of a call, in this process."""
    read, cpu, started = _bytes(), _cpu_seconds(), time.perf_counter()
    figures = work()
    wall, used, now = time.perf_counter() - started, _cpu_seconds() - cpu, _bytes()
    took = {"wall_s": wall, "cpu_s": used, "read_mb": (now[0] - read[0]) / 1e6, "written_mb": (now[1] - read[1]) / 1e6}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if (status := Path("/proc/self/status")).exists():  # `ru_maxrss` can be that of the process which started this one
        peak = next(int(line.split()[1]) for line in status.read_text().splitlines() if "VmHWM" in line) / 1024
    return {key: round(value, 3) for key, value in took.items()} | {"peak_mib": round(peak)} | figures


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _bytes() -> tuple[int, int]:
    """Bytes that calls have read, and that went to the disk."""
    if not (counted := Path("/proc/self/io")).exists():
        return 0, 0
    found = dict(line.split(": ") for line in counted.read_text().splitlines())
    return int(found["rchar"]), int(found["write_bytes"])
