"""Sizes and times of a gallery that many small writes made: single adds, cycles of an upgrade, idle calls.

Searches are those of a gallery to which items came one by one and of one to which the same came at once, by turns. The
last part counts the bytes that upgrade, plan and cutover read (`/proc/self/io`) if nothing or little changed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import compatstore as cs
from benchmarks.bounds import bound
from benchmarks.measuring import by_turns, filled, transform
from benchmarks.record import Row

FILES, MANIFEST_BYTES = 1_280, 50_000
LAST = 32  # single adds after which searches are compared: from one merge of fragments to the next


def files(path: Path) -> int:
    """Number of files of a table."""
    return sum(file.is_file() for file in path.rglob("*"))


def largest_manifest(path: Path) -> int:
    """Bytes of the largest manifest that is there."""
    return max(file.stat().st_size for file in (path / "_versions").glob("*.manifest"))


def make(path: Path, rows: int, dim: int) -> cs.Gallery:
    """A gallery with a target and a transform, before the hop."""
    gallery = filled(path, rows, dim)
    gallery.register(cs.EmbeddingVersion("v2", dim=dim, metric="l2", encoder=ones(dim)))
    gallery.artifacts.link(transform(gallery))
    return gallery


def ones(dim: int) -> cs.encoders.Function:
    """An encoder that costs nothing."""
    return cs.encoders.Function(lambda ids: np.ones((len(ids), dim), np.float32), dim, fingerprint="ones", reads="id")


def single_adds(folder: Path, adds: int, dim: int, queries: int) -> Iterator[Row]:
    """Items one by one, beside the same items at once."""
    vectors = np.random.default_rng(0).normal(size=(adds, dim)).astype(np.float32)
    ids, path = [str(n) for n in range(adds)], folder / "single.lance"
    v1 = cs.EmbeddingVersion("v1", dim=dim, metric="l2")
    single, at_once = (cs.Gallery.create(str(each), v1) for each in (path, folder / "at_once.lance"))
    at_once.add({"id": ids, "vector": vectors})
    most, worst = 0, 0.0
    for n in range(adds):
        single.add({"id": [ids[n]], "vector": vectors[n : n + 1]})
        if n % 50 == 49:
            most = max(most, files(path))
        if n >= adds - LAST:
            ways = {"one by one": lambda q: single.search(q, k=10), "at once": lambda q: at_once.search(q, k=10)}
            took = {name: np.median(each) for name, each in by_turns(ways, np.resize(vectors, (queries, dim))).items()}
            worst = max(worst, float(took["one by one"] / took["at once"]))
    yield bound(f"search p50 after {adds:,} single adds / the same items added at once", worst, 2)
    yield bound(f"files after {adds:,} single adds, at the most", most, FILES)
    yield bound("bytes of the largest manifest after single adds", largest_manifest(path), MANIFEST_BYTES)


def cycles(folder: Path, count: int, dim: int) -> Iterator[Row]:
    """Upgrade, cut over, roll back, abort, again and again."""
    path = folder / "cycles.lance"
    gallery, found, manifests = make(path, 1000, dim), [], []
    for _ in range(count):
        gallery.upgrade("v2", backfill=0.1)
        gallery.cutover("v2")
        gallery.rollback()
        gallery.abort("v2")
        found.append(files(path))
        manifests.append(largest_manifest(path))
    quarter = max(count // 4, 1)
    yield bound(f"files in {count} cycles of upgrade, cutover, rollback, abort", max(found), FILES)
    yield bound("bytes of the largest manifest in these cycles", max(manifests), MANIFEST_BYTES)
    grown = max(manifests[-quarter:]) / max(manifests[:quarter])
    yield bound("largest manifest of the last cycles / of the first", grown, 1.5)


def second_looks(folder: Path, rows: int, dim: int) -> Iterator[Row]:
    """Bytes that calls read if nothing, or one item, changed since the last call."""
    path = folder / "looks.lance"
    gallery = make(path, rows, dim)
    gallery.upgrade("v2")

    def read(name: str, call: Callable[[cs.Gallery], object]) -> Row:
        opened = cs.Gallery.open(str(path), encoders={"v2": ones(dim)})
        before = _bytes_read()
        call(opened)
        part = (_bytes_read() - before) / (4 * dim * rows)
        return bound(f"bytes read by {name} / the vectors'", part, 0.02, "%", group="bytes read if nothing changed")

    yield read("a no-op upgrade", lambda each: each.upgrade("v2"))
    yield read("a plan", lambda each: each.upgrade("v2", dry_run=True))
    gallery.upgrade("v2", backfill=0.01)
    yield read("a no-op upgrade after a backfill", lambda each: each.upgrade("v2"))
    yield read("a plan after it", lambda each: each.upgrade("v2", dry_run=True))
    yield read("a status after it", lambda each: each.status())
    gallery.add({"id": ["new"], "vector": np.ones((1, dim), np.float32)})
    yield read("an upgrade after one add", lambda each: each.upgrade("v2"))
    yield read("a cutover", lambda each: each.cutover("v2"))


def _bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def run(
    *, adds: int = 1000, cycle_count: int = 200, rows: int = 1_000_000, dim: int = 32, queries: int = 100
) -> Iterator[Row]:
    """All three parts."""
    with tempfile.TemporaryDirectory() as name:
        yield from single_adds(Path(name), adds, dim, queries)
        yield from cycles(Path(name), cycle_count, dim)
        if Path("/proc/self/io").exists():
            yield from second_looks(Path(name), rows, dim)


SMOKE = {"adds": 8, "cycle_count": 1, "rows": 600, "dim": 8, "queries": 2}
