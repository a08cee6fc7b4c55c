"""A backfill: its time outside the encoder, what it writes for a vector, and searches of the source after it.

The encoder sleeps, to take what a real one takes at `rate` items a second. Each file that appears is counted, also
those that are gone at the end, in multiples of the vectors' own bytes: rows are moved, or columns are rewritten, which
is what a gallery does whose rows may not move. Natives come in the order of the predicted error.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import lance
import numpy as np

import compatstore as cs
from benchmarks.bounds import bound
from benchmarks.measuring import by_turns, filled, transform
from benchmarks.pages import markdown
from benchmarks.record import Record, Row

WAYS = ("move_rows", "rewrite_columns")
QUERIES = 110


class Sleeper:
    """An encoder of a steady rate.

    Args:
        dim: Length of its vectors.
        rate: Items a second.
    """

    def __init__(self, dim: int, rate: float) -> None:
        self.seconds, self._dim, self._rate = 0.0, dim, rate

    def encode(self, sources: Sequence[str]) -> np.ndarray:
        """Embed n texts: (n, dim) float32."""
        started = time.perf_counter()
        time.sleep(len(sources) / self._rate)
        vectors = np.random.default_rng(len(sources)).normal(size=(len(sources), self._dim)).astype(np.float32)
        self.seconds += time.perf_counter() - started
        return vectors


def files_of(folder: Path) -> dict[str, int]:
    """Path -> bytes of all files."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # it was there for a moment only
                found[os.path.join(place, name)] = os.path.getsize(os.path.join(place, name))
    return found


def make(path: Path, rows: int, dim: int, encoder: Sleeper, *, indexed: bool) -> cs.Gallery:
    """A gallery that was hopped by a transform with a sigma head."""
    gallery = filled(path, rows, dim)
    if indexed:
        gallery.maintenance.index("v1").create(kind="IVF_PQ", num_partitions=max(rows // 800, 1), num_sub_vectors=16)
    function = cs.encoders.Function(encoder.encode, dim, fingerprint="sleeper")
    gallery.register(cs.EmbeddingVersion("v2", dim=dim, metric="l2", encoder=function))
    gallery.artifacts.link(transform(gallery))
    gallery.upgrade("v2")
    return gallery


def measured(gallery: cs.Gallery, path: Path, backfill: cs.Backfill) -> tuple[int, float, int]:
    """Natives of a backfill, its seconds, and the bytes of all files that it wrote."""
    before, seen, started = files_of(path), dict[str, int](), time.perf_counter()
    done = gallery.upgrade("v2", backfill=backfill, progress=lambda _: seen.update(files_of(path)))
    seconds = time.perf_counter() - started
    written = sum(size for name, size in {**seen, **files_of(path)}.items() if name not in before)
    return done.backfilled, seconds, written


def search_ms(path: Path, dim: int) -> float:
    """Median milliseconds of Lance's own search of the source column."""
    table, queries = lance.dataset(str(path)), np.random.default_rng(1).normal(size=(QUERIES, dim)).astype(np.float32)
    ways = {"Lance": lambda query: table.to_table(columns=["id"], nearest={"column": "v1", "q": query, "k": 10})}
    return 1e3 * float(np.median(by_turns(ways, queries)["Lance"][10:]))


def run(
    *,
    rows: int = 200_000,
    dim: int = 128,
    shares: tuple[float, ...] = (0.01, 0.1, 0.5),
    paced_rows: int = 20_000,
    rate: float = 200.0,
) -> Iterator[Row]:
    """A tenth of `paced_rows` at a rate, then shares of `rows` as fast as they are stored."""
    with tempfile.TemporaryDirectory() as folder:
        encoder, path = Sleeper(dim, rate), Path(folder, "paced.lance")
        gallery = make(path, paced_rows, dim, encoder, indexed=False)
        _, seconds, _ = measured(gallery, path, cs.Backfill(share=0.1))
        yield bound(f"time outside the encoder at {rate:g} items a second", 1 - encoder.seconds / seconds, 0.05, "%")
    for part in shares:
        for way in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "gallery.lance")
                gallery = make(path, rows, dim, Sleeper(dim, 1e9), indexed=True)
                before = search_ms(path, dim)
                natives, seconds, written = measured(
                    gallery, path, cs.Backfill(share=part, order="sigma", write_mode=way)
                )
                ratio, after = written / natives / (4 * dim), search_ms(path, dim)
            row = {"way": way, "share": part, "bytes_ratio": round(ratio, 2)}
            yield row | {"us": round(1e6 * seconds / natives), "search_ratio": round(after / before, 2)}
            yield bound(f"bytes for a vector / its own, {part:.0%}, {way}", ratio, 3.0, group=f"bytes, {way}")


def ways(record: Record) -> str:
    """What each way writes, and what searches of the source pay for it."""
    rows = [row for row in record.rows if "way" in row]
    head = ("way", "share", "bytes / the vectors' own", "µs a vector", "search of the source / before")
    cells = [(row["way"], f"{row['share']:.0%}", row["bytes_ratio"], row["us"], row["search_ratio"]) for row in rows]
    return markdown(head, cells)


SMOKE = {"rows": 1000, "dim": 16, "shares": (0.1,), "paced_rows": 300, "rate": 1e6}
TABLES = {"ways": ways}
