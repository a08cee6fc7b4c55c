"""Stores of apps: speed beside their own scans and bulk writes, memory of a large one, quality by their own indexes.

    python -m benchmarks stores --texts glosses.npz --queries-file nouns.npz --large-rows 1000000

Each engine is a real database (`tests/stores/engines`). A mirror and a push take turns with the app's own client: a
scan of ids, vectors and texts into arrays, a bulk write of second vectors into a column, collection, table or file of
their own, and Lance's own append of the same rows with an index of ids. A push is one of all rows to an empty place.
The large collection is one of PostgreSQL: each step is a process of its own, whose peak of memory counts; that of the
server does not. Quality is `benchmarks/store_quality.py`.
"""

from __future__ import annotations

import importlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from benchmarks.dots import chart_of
from benchmarks.measuring import ADDED_AT_ONCE, by_turns
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from benchmarks.seeds import Interval, values_of, where
from benchmarks.sets.embedded import QuerySet, read
from benchmarks.store_life import large, other_model, rows_of
from benchmarks.store_quality import mirrored, quality
from compatstore.stores.link import syncing
from compatstore.stores.store import vector_column
from compatstore.upgrade.progress import Observer

ENGINES = ("postgres", "sqlite_vec", "faiss_file", "chroma", "qdrant", "milvus")
EMULATED = ("qdrant", "milvus")  # emulations of a server by its client: their speed is no database's
LARGE_FROM = 40_000  # rows from which only the first three are measured
SHOWN = ("own scan", "append", "mirror", "own write", "push")


def label(name: str) -> str:
    """Name of an engine in tables."""
    return name.removesuffix("_file").replace("_", "-")


def throughput(name: str, count: int, dim: int, turns: int, folder: Path) -> Row:
    """Medians of seconds of a mirror and a push, and of the store's own."""
    engine = importlib.import_module(f"tests.stores.engines.{name}").Engine(folder)
    ids, vectors, texts = rows_of(0, count, dim)
    engine.create("docs", dim)
    engine.load("docs", ids, vectors, texts)
    gallery = mirrored(engine, folder / "known.lance")
    gallery.upgrade(other_model(dim), backfill=1.0, learn=None)
    wanted = gallery.vectors(ids, "v2")
    stack, again, plain = ExitStack(), folder / "again.lance", folder / "plain.lance"

    def clear(_: object) -> None:
        """Empty the target's place."""
        nonlocal stack
        shutil.rmtree(again)
        shutil.rmtree(plain)
        stack, held = ExitStack(), gallery._catalog
        sync = stack.enter_context(syncing(held, Observer()))
        sync.store.drop("v2")
        sync.ledger.displace("v2")
        sync.ledger.note("pushed v2", "")
        sync.ledger.place("v2")
        sync.store.prepare("v2", dim, "cosine")
        stack.callback(partial(sync.push, "v2"))

    def empty(_: object) -> None:
        engine.displace("docs")
        engine.place("docs", dim)

    ways: dict[str, Callable[[Any], object]] = {
        "own scan": lambda _: [*engine.scan("docs")],
        "append": lambda _: append(plain, ids, vectors, texts),
        "mirror": lambda _: mirrored(engine, again),
        "empty": empty,
        "own write": lambda _: engine.write("docs", ids, wanted, texts),
        "displace": lambda _: engine.displace("docs"),
        "clear": clear,
        "push": lambda _: stack.close(),  # files are written as a store is closed
    }
    taken = by_turns(ways, range(turns))
    engine.close()
    return {way: round(float(np.median(taken[way])), 3) for way in SHOWN}


def append(path: Path, ids: list[str], vectors: Any, texts: list[str]) -> None:
    """Lance's own append of rows in blocks, and an index of their ids."""
    for at in range(0, len(ids), ADDED_AT_ONCE):
        part = slice(at, at + ADDED_AT_ONCE)
        table = pa.table({"id": ids[part], "v1": vector_column(vectors[part], vectors.shape[1]), "source": texts[part]})
        lance.write_dataset(table, str(path), mode="append")
    lance.dataset(str(path)).create_scalar_index("id", "BTREE")


def run(
    *,
    engines: tuple[str, ...] = ENGINES,
    rows: tuple[int, ...] = (20_000, 100_000),
    dim: int = 384,
    turns: int = 3,
    large_rows: int = 0,
    texts: Path | None = None,
    queries_file: Path | None = None,
    seeds: int = 3,
    items: int = 3000,
    queries: int = 200,
    done: tuple[Row, ...] = (),
) -> Iterator[Row]:
    """Throughput of each engine and size, memory of a large collection, quality of a set of texts; digits without."""
    known = {(row["part"], row.get("store"), row.get("rows")) for row in done}
    for count in rows:
        for name in engines if count < LARGE_FROM else engines[:3]:
            about = {"part": "throughput", "store": label(name), "rows": count}
            if name not in EMULATED and tuple(about.values()) not in known:
                with tempfile.TemporaryDirectory() as folder:
                    yield about | {"dim": dim, **throughput(name, count, dim, turns, Path(folder))}
    if large_rows and ("large", None, large_rows) not in known:
        with tempfile.TemporaryDirectory() as folder:
            found = list(large(large_rows, dim, Path(folder)))
        yield from ({"part": "large", "rows": large_rows, "dim": dim, **row} for row in found)
    (data,) = read([texts] if texts else [])
    given = QuerySet.load(queries_file) if queries_file else None
    for name in engines:
        if ("quality", label(name), None) not in known:
            found = list(quality(name, data, given, seeds, items, queries))
            yield from ({"part": "quality", "store": label(name), **row} for row in found)


def speed_table(record: Record) -> str:
    """Seconds of a mirror and of a push, and the speed of each beside the store's own."""
    head = ("store", "rows", "own scan, s", "mirror, s", "mirror / own scan", "/ scan and append")
    lines = []
    for row in where(record.rows, part="throughput"):
        scan, append, mirror, write, push = (row[way] for way in SHOWN)
        cells = [f"{scan:.2f}", f"{mirror:.2f}", f"{scan / mirror:.2f}", f"{(scan + append) / mirror:.2f}"]
        cells += [f"{write:.2f}", f"{push:.2f}", f"{write / push:.2f}"]
        lines.append([row["store"], f"{row['rows']:,}", *cells])
    return markdown([*head, "own write, s", "push, s", "push / own write"], lines)


def memory_table(record: Record) -> str:
    """Seconds and peak memory of each step in a large collection."""
    rows = where(record.rows, part="large")
    cells = [[row["step"], f"{row['rows']:,}", f"{row['wall_s']:,.0f}", f"{row['peak_mib']:,}"] for row in rows]
    return markdown(["step", "rows", "seconds", "peak, MiB"], cells)


def quality_table(record: Record) -> str:
    """nDCG@10 of each way to search, and its gain over the old model with 95 % intervals."""
    rows = where(record.rows, part="quality")
    names = values_of(rows, "way")
    lines = []
    for store in values_of(rows, "store"):
        first, *others = (where(rows, store=store, way=name)[0] for name in names)
        gains = [f"{row['gain']:+.1f} ({row['low']:+.1f} to {row['high']:+.1f})" for row in others]
        lines.append([store, f"{first['ndcg@10']:.1f}", *gains])
    return markdown(["store", *names], lines)


def chart(record: Record) -> Figure:
    """Gain in nDCG@10 of each way to search, by store."""
    rows = where(record.rows, part="quality")
    stores, series = values_of(rows, "store"), dict[str, list[Interval | None]]()
    for name in values_of(rows, "way")[1:]:
        found = [where(rows, store=store, way=name)[0] for store in stores]
        series[name] = [Interval(row["gain"], (row["high"] - row["low"]) / 2, 2) for row in found]
    label = "nDCG@10 over the old model, points"
    return chart_of(stores, series, height=0.7 * len(stores) + 1.3, label=label)


SMOKE = {"engines": ("faiss_file",), "rows": (300,), "dim": 8, "turns": 1, "seeds": 1, "items": 1100, "queries": 8}
TABLES = {"speed": speed_table, "memory": memory_table, "quality": quality_table}
