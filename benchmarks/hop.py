"""The hop, end to end, beside a bare loop of the same matrix products.

Rows a second of both, of the hop in bfloat16 and by Ray, and of reading the source's vectors alone; ratios and peak
memory with their limits. A processor without instructions for bfloat16 has no limit of that ratio. A derivation cuts
stored vectors off and scales them, in place of a hop.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import numpy as np

import compatstore as cs
from benchmarks.bounds import bound, bounds_table
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.artifacts.network import Precision

BATCH, ADDED_AT_ONCE = 512, 50_000
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")


def network(dim: int) -> tuple[Architecture, dict[str, np.ndarray]]:
    """The paper's transformation without side-information, weights at random."""
    architecture = Architecture(source_dim=dim, output_dim=dim, source_branch=(256, 256), mixer=(2048, 2048))
    return architecture, _random(architecture, seed=0)


def sigma_transform(gallery: cs.Gallery) -> Artifact:
    """A small transform from v1 to v2 with a sigma head, weights at random."""
    dim = gallery.version("v1").dim
    shape = Architecture(source_dim=dim, output_dim=dim, mixer=(64,), uncertainty=True)
    return _artifact(gallery, shape, _random(shape, seed=2))


def _random(shape: Architecture, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, size[-1] ** -0.5, size).astype(np.float32) for name, size in shape.shapes().items()}


def _artifact(gallery: cs.Gallery, shape: Architecture, tensors: dict[str, np.ndarray]) -> Artifact:
    spaces = {role: Space.of(gallery.version(name)) for role, name in (("source", "v1"), ("target", "v2"))}
    named = {f"h.{name}": tensor for name, tensor in tensors.items()}
    return Artifact.create("ForwardTransform", networks={"h": shape}, tensors=named, **spaces)


def bfloat16_speed() -> float:
    """Speed of a matrix product in bfloat16, as a multiple of float32's."""
    import torch

    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        left, right = torch.ones(512, 1024, dtype=dtype), torch.ones(1024, 1024, dtype=dtype)
        seconds[dtype] = min(timeit.repeat(lambda: left @ right, number=1, repeat=5))  # noqa: B023
    return seconds[torch.float32] / seconds[torch.bfloat16]


def products(tensors: dict[str, np.ndarray], dim: int, rows: int) -> float:
    """Seconds of the bare matrix products for that many rows."""
    weights = [tensor.T for name, tensor in tensors.items() if name.endswith("weight")]
    inputs = [np.random.default_rng(1).normal(size=(BATCH, w.shape[0])).astype(np.float32) for w in weights]
    outputs = [np.empty((BATCH, w.shape[1]), np.float32) for w in weights]
    started = time.perf_counter()
    for _ in range(rows // BATCH):
        for x, w, y in zip(inputs, weights, outputs, strict=True):
            np.matmul(x, w, out=y)
    return (time.perf_counter() - started) * rows / (rows // BATCH * BATCH)


def make(folder: Path, rows: int, dim: int) -> cs.Gallery:
    """A gallery of random vectors, ready to hop."""
    source, target = cs.EmbeddingVersion("v1", dim=dim), cs.EmbeddingVersion("v2", dim=dim)
    gallery = cs.Gallery.create(str(folder / "gallery.lance"), source)
    rng = np.random.default_rng(2)
    for start in range(0, rows, ADDED_AT_ONCE):
        size = min(ADDED_AT_ONCE, rows - start)
        ids = [f"{start + i:09d}" for i in range(size)]
        gallery.add({"id": ids, "vector": rng.normal(size=(size, dim)).astype(np.float32)})
    gallery.register(target)
    gallery.artifacts.link(_artifact(gallery, *network(dim)))
    return gallery


def read(folder: Path) -> None:
    """Read the vectors of the source, batch by batch."""
    for _ in lance.dataset(str(folder / "gallery.lance")).to_batches(columns=["v1"]):
        pass


def timed(work: Callable[[], object]) -> float:
    """Seconds of the clock."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def derivation(rows: int, dim: int, shorter: int) -> float:
    """Time of an upgrade to the first values as they are, over that of one which scales them to unit length."""
    with tempfile.TemporaryDirectory() as folder:
        encoder = cs.encoders.Function(lambda ids: np.eye(len(ids), dim, dtype=np.float32), dim, fingerprint="ones")
        v1 = cs.EmbeddingVersion("v1", dim=dim, normalised=True, encoder=encoder)
        gallery = cs.Gallery.create(str(Path(folder, "gallery.lance")), v1)
        rng = np.random.default_rng(3)
        for start in range(0, rows, 50_000):
            vectors = rng.normal(size=(min(50_000, rows - start), dim)).astype(np.float32)
            ids = [f"{start + row:09d}" for row in range(len(vectors))]
            gallery.add({"id": ids, "vector": vectors / np.linalg.norm(vectors, axis=1, keepdims=True)})
        gallery.register("cut", dim=shorter, normalised=False)
        gallery.register("short", dim=shorter)
        return timed(lambda: gallery.upgrade("cut")) / timed(lambda: gallery.upgrade("short"))


def run(
    *, rows: int = 60_000, dim: int = 128, repeats: int = 5, derived_rows: int = 1_000_000, ray: bool = False
) -> Iterator[Row]:
    """Hop a gallery again and again: in float32, in bfloat16 and by Ray; then derive shorter vectors."""
    ways = {precision: cs.RunSettings(precision=precision) for precision in PRECISIONS}
    ways |= {"by Ray": cs.RunSettings(engine="ray")} if ray else {}
    seconds: dict[str, list[float]] = {name: [] for name in ("bare products", "reading", *ways)}
    tensors = network(dim)[1]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        gallery = make(folder, rows, dim)
        for _ in range(repeats):
            seconds["bare products"].append(products(tensors, dim, rows))
            seconds["reading"].append(timed(lambda: read(folder)))
            for name, settings in ways.items():
                seconds[name].append(timed(lambda: gallery.upgrade("v2", run=settings)))  # noqa: B023
                gallery.retire("v2")
    median = {name: statistics.median(each) for name, each in seconds.items()}
    fragments = -(-rows // ADDED_AT_ONCE)
    for name, each in median.items():
        row = {"step": name, "rows_per_second": round(rows / each), "items": rows, "fragments": fragments}
        yield row | ({"seconds": round(each, 3)} if ray and name in ("float32", "by Ray") else {})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    ratio = median["bare products"] / median["float32"]
    yield bound("hop / bare matrix products, float32", ratio, 0.90, least=True)
    if bfloat16_speed() > 1:
        yield bound("hop in bfloat16 / in float32", median["float32"] / median["bfloat16"], 2.5, least=True)
    yield bound("peak memory of the hop, torch included", peak, 2048, "MiB")
    ratio = derivation(derived_rows, 6 * dim, 2 * dim)
    yield bound("a derivation to shorter vectors / the same upgrade with nothing computed", ratio, 0.90, least=True)


def engines(record: Record) -> str:
    """A hop by Ray beside the local engine."""
    sizes: dict[tuple[int, int], list[float]] = {}
    for row in record.rows:
        if "seconds" in row:
            sizes.setdefault((row["items"], row["fragments"]), []).append(row["seconds"])
    cells = [(f"{n:,}", m, *both, f"{both[1] / both[0]:.2f}") for (n, m), both in sizes.items() if len(both) == 2]
    return markdown(("items", "fragments", "local engine, s", "by Ray, s", "ratio"), cells)


SMOKE = {"rows": 600, "repeats": 1, "derived_rows": 600}
TABLES = {"bounds": lambda record: bounds_table(record.rows), "engines": engines}
