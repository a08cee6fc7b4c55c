"""What a gallery grows to: items that come one by one, and cycles of upgrade, cutover, rollback and abort.

    python -m benchmarks.growth [--adds 1000] [--cycles 200] [--rows 100000] [--dim 32] [--queries 100]

Prints each figure with its limit and their ratio. Searches are those of a gallery to which items came one by one and
of one to which the same came at once, by turns. The last part counts the bytes that upgrade, plan and cutover read when
nothing or little changed, where the system counts them (`/proc/self/io`).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.storage.compaction import FEWEST, MOST

SEARCHES = 2.0  # times as long as when all came at once
FRAGMENTS = 16
FILES = 5 * MOST  # a version has a manifest, a transaction and, where rows came, a file or two of them
MANIFEST_BYTES = 50_000
READ_SHARE = 0.02  # of the vectors' bytes


def show(name: str, figure: float, limit: float) -> bool:
    """Print a figure beside its limit; gives whether it holds."""
    print(f"{name}: {figure:,.2f}, limit {limit:,.2f}, ratio {figure / limit:.3f}", flush=True)
    return figure <= limit


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def files(path: Path) -> int:
    return sum(1 for file in path.rglob("*") if file.is_file())


def manifests(path: Path) -> list[int]:
    """Bytes of the manifests that are there."""
    return [file.stat().st_size for file in (path / "_versions").glob("*.manifest")]


def versions(dim: int) -> tuple[cs.EmbeddingVersion, cs.EmbeddingVersion]:
    encoder = cs.encoders.Function(
        lambda ids: np.ones((len(ids), dim), np.float32), dim, fingerprint="ones", reads="id"
    )
    return cs.EmbeddingVersion("v1", dim=dim, metric="l2"), cs.EmbeddingVersion(
        "v2", dim=dim, metric="l2", encoder=encoder
    )


def transform(source: cs.EmbeddingVersion, target: cs.EmbeddingVersion) -> Artifact:
    """A random linear transform."""
    architecture = Architecture(source_dim=source.dim, output_dim=target.dim)
    rng = np.random.default_rng(0)
    tensors = {f"h.{name}": rng.normal(size=shape) / source.dim for name, shape in architecture.shapes().items()}
    spaces = {"source": Space.of(source), "target": Space.of(target)}
    return Artifact.create("ForwardTransform", **spaces, networks={"h": architecture}, tensors=tensors)


def compare(single: cs.Gallery, at_once: cs.Gallery, queries: np.ndarray, what: str) -> float:
    """Median time of a search in the one over that in the other, query by query by turns."""
    took: tuple[list[float], list[float]] = ([], [])
    for query in queries:
        for gallery, times in zip((single, at_once), took, strict=True):
            times.append(seconds(lambda: gallery.search(query, k=10)))  # noqa: B023
    one_by_one, together = (statistics.median(times) for times in took)
    print(f"{what} fragments: search p50 {one_by_one * 1e3:.2f} ms, of all at once {together * 1e3:.2f} ms")
    return one_by_one / together


def single_adds(folder: Path, adds: int, dim: int, queries: int) -> list[bool]:
    """Items one by one, beside the same items at once."""
    vectors = np.random.default_rng(0).normal(size=(adds, dim)).astype(np.float32)
    ids = [str(n) for n in range(adds)]
    source, _ = versions(dim)
    single, at_once = (cs.Gallery.create(str(folder / name), source) for name in ("single.lance", "at_once.lance"))
    at_once.add({"id": ids, "vector": vectors})
    most, fragments, ratios = 0, 0, []
    for n in range(adds):
        single.add({"id": [ids[n]], "vector": vectors[n : n + 1]})
        if n % 50 == 49:
            most = max(most, files(folder / "single.lance"))
        if n >= adds - FEWEST:  # from just before one merge to just before the next
            there = len(lance.dataset(str(folder / "single.lance")).get_fragments())
            fragments = max(fragments, there)
            ratios.append(compare(single, at_once, np.resize(vectors, (queries, dim)), f"{n + 1} items in {there}"))
    return [
        show("search p50, one by one over at once", max(ratios), SEARCHES),
        show("fragments", fragments, FRAGMENTS),
        show("files, at the most", most, FILES),
        show("bytes of the largest manifest", max(manifests(folder / "single.lance")), MANIFEST_BYTES),
    ]


def cycles(folder: Path, count: int, dim: int) -> list[bool]:
    """Upgrade, cut over, roll back, abort, again and again."""
    path, (source, target) = folder / "cycles.lance", versions(dim)
    gallery = cs.Gallery.create(str(path), source)
    rng = np.random.default_rng(0)
    for part in range(4):
        ids = [f"{part}-{n}" for n in range(250)]
        gallery.add({"id": ids, "vector": rng.normal(size=(250, dim)).astype(np.float32)})
    gallery.register(target)
    gallery.artifacts.link(transform(source, target))
    found, manifest = [], []
    for _ in range(count):
        gallery.upgrade("v2", backfill=0.1)
        gallery.cutover("v2")
        gallery.rollback()
        gallery.abort("v2")
        found.append(files(path))
        manifest.append(max(manifests(path)))
    quarter = max(count // 4, 1)
    steps = len(gallery.maintenance.history())
    print(f"{count} cycles, {steps} steps of history: files after the first {found[0]}, after the last {found[-1]}")
    return [
        show("files, at the most", max(found), FILES),
        show("bytes of the largest manifest", max(manifest), MANIFEST_BYTES),
        show(
            "largest manifest of the last quarter over the first",
            max(manifest[-quarter:]) / max(manifest[:quarter]),
            1.5,
        ),
    ]


def bytes_read() -> int:
    """What this process has read so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def second_looks(folder: Path, rows: int, dim: int) -> list[bool]:
    """What is read where nothing, or one item, changed since the last look."""
    path, (source, target) = folder / "looks.lance", versions(dim)
    gallery = cs.Gallery.create(str(path), source)
    rng = np.random.default_rng(0)
    for start in range(0, rows, 50_000):
        size = min(50_000, rows - start)
        ids = [str(start + n) for n in range(size)]
        gallery.add({"id": ids, "vector": rng.normal(size=(size, dim)).astype(np.float32)})
    gallery.register(target)
    gallery.artifacts.link(transform(source, target))
    gallery.upgrade("v2")
    vectors = 4 * dim * rows

    def measured(name: str, call: Callable[[], object]) -> bool:
        before = bytes_read()
        call()
        read = bytes_read() - before
        print(f"{name} read {read:,} bytes; the vectors are {vectors:,}")
        return show(f"share of the vectors that {name} read", read / vectors, READ_SHARE)

    def again() -> cs.Gallery:
        return cs.Gallery.open(str(path), encoders={"v2": target.encoder})

    held = [
        measured("a no-op upgrade", lambda: again().upgrade("v2")),
        measured("a plan", lambda: again().upgrade("v2", dry_run=True)),
    ]
    again().upgrade("v2", backfill=0.01)
    held += [
        measured("a no-op upgrade after a backfill", lambda: again().upgrade("v2")),
        measured("a plan after it", lambda: again().upgrade("v2", dry_run=True)),
        measured("a status after it", lambda: again().status()),
    ]
    gallery.add({"id": ["new"], "vector": np.ones((1, dim), np.float32)})
    return [
        *held,
        measured("an upgrade after one add", lambda: again().upgrade("v2")),
        measured("a cutover", lambda: again().cutover("v2")),
        measured("a cutover again", lambda: again().cutover("v2")),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adds", type=int, default=1000)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--queries", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        held = single_adds(folder, arguments.adds, arguments.dim, arguments.queries)
        held += cycles(folder, arguments.cycles, arguments.dim)
        if Path("/proc/self/io").exists():
            held += second_looks(folder, arguments.rows, arguments.dim)
    if not all(held):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
