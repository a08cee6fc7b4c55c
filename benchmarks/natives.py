"""Ways to store natives: bytes and seconds for each vector, and what searches of the source cost afterwards.

    python benchmarks/natives.py [--rows 200000] [--dim 128] [--shares 0.01 0.1 0.5] [--batch 1024] [--ways rows]
    python benchmarks/natives.py --unindexed 1000 5000 20000

Natives come in sigma order, in batches; each way starts from the same hopped gallery, whose source has an IVF_PQ index.
Every file that ever appears is counted, in multiples of the vectors' own bytes: `data` (of the table), `staged` (beside
it), `marks` (of deleted rows), `indexes`, `commits` (manifests, transactions). Searches are Lance's own, on the source.
The second form moves that number of rows and searches before and after the indexes have them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import compatstore as cs
from compatstore.artifacts import Architecture, Space
from compatstore.storage import indexes
from compatstore.storage.catalog import Catalog
from compatstore.storage.ids import ADDRESS, read_rows
from compatstore.storage.indexes import UNINDEXED_ROWS, update_index
from compatstore.storage.location import locate
from compatstore.storage.moves import Move, commit_move, write_rows
from compatstore.storage.staging import NativeBatch
from compatstore.storage.store import Store
from compatstore.upgrade.backfilling.natives import NativeColumns, NativeRows, staging_of
from compatstore.upgrade.backfilling.policies import order
from compatstore.upgrade.backfilling.policy_inputs import TableRows
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.indexing import take_in_late_rows
from compatstore.upkeep.optimize import tend

KINDS = {"data": "data", "_compatstore": "staged", "_deletions": "marks", "_indices": "indexes"}
HEADINGS = ("way", "share", "all", *KINDS.values(), "commits", "us a vector", "search ms", "fragments", "manifest KiB")
QUERIES, WARM_UP = 100, 10
FEW = 10


class Case:
    """A copy of the hopped gallery, and the natives that are to be stored in it."""

    def __init__(self, template: Path, folder: Path, ids: Sequence[str], batch: int, dim: int) -> None:
        self.path = folder / "gallery.lance"
        shutil.copytree(template, self.path, copy_function=os.link)
        self.store = Store.open(locate(str(self.path)))
        catalog = Catalog(self.store)
        self.context = UpgradeContext.of(catalog, catalog.registry().runs["v2"])
        self.batches = [ids[start : start + batch] for start in range(0, len(ids), batch)]
        self.dim = dim
        self.seen = self._files()
        self.written: Counter[str] = Counter()

    def natives(self, ids: Sequence[str]) -> tuple[Sequence[str], np.ndarray, np.ndarray]:
        """What an engine hands over for a batch: ids, vectors, and the input hash of the rows as they are."""
        snapshot = self.store.snapshot()
        rows = read_rows(snapshot, "id", ids)
        keys = rows["id"].to_pylist()
        vectors = np.random.default_rng(len(keys)).normal(size=(len(keys), self.dim)).astype(np.float32)
        return keys, vectors, rows["v2__input_hash"].to_numpy()

    def look(self) -> None:
        """Count the files that appeared since the last look."""
        now = self._files()
        for path in now.keys() - self.seen.keys():
            self.written[KINDS.get(path.split("/")[0], "commits")] += now[path]
        self.seen |= now

    def _files(self) -> dict[str, int]:
        found = {}
        for folder, _, names in os.walk(self.path):
            for name in names:
                path = Path(folder, name)
                found[str(path.relative_to(self.path))] = path.stat().st_size
        return found


def staged(case: Case, put: Callable[[NativeBatch], int], wave: int | None = None) -> float:
    """Staged beside the table, and folded every `wave` natives or all at the end."""
    way, waiting, seconds = staging_of(case.context), 0, 0.0
    for ids in case.batches:
        batch = case.natives(ids)
        started = time.perf_counter()
        waiting += way.store(NativeBatch.of(*batch))
        case.look()
        if wave is not None and waiting >= wave:
            put(way.read())
            way.clear()
            waiting = 0
        seconds += time.perf_counter() - started
        case.look()
    started = time.perf_counter()
    put(way.read())
    way.clear()
    return seconds + time.perf_counter() - started


def by_columns(case: Case, wave: int | None) -> float:
    """Staged, and folded into the target's columns."""
    return staged(case, NativeColumns(case.context).put, wave)


def by_waves(case: Case) -> float:
    """Staged; rows move a wave at a time, and indexes get their deltas then."""
    way = NativeRows(case.context)

    def put(natives: NativeBatch) -> int:
        moved = way.put(natives)
        way.fold()
        return moved

    return staged(case, put, way.wave_rows)


def tended(case: Case, way: Callable[[Case], float]) -> float:
    """A way, and the merge of small fragments that comes at the end of an upgrade."""
    seconds, started = way(case), time.perf_counter()
    case.look()
    tend(case.context.catalog)  # an idle table's: nobody holds a lease
    return seconds + time.perf_counter() - started


def by_rows(case: Case) -> float:
    """Each batch moves its rows in one commit; indexes get deltas on the way."""
    way, seconds = NativeRows(case.context), 0.0
    for ids in case.batches:
        batch = case.natives(ids)
        started = time.perf_counter()
        way.store(NativeBatch.of(*batch))
        take_in_late_rows(case.context.catalog, more_than=UNINDEXED_ROWS)
        seconds += time.perf_counter() - started
        case.look()
    started = time.perf_counter()
    way.fold()
    return seconds + time.perf_counter() - started


def by_rows_and_compaction(case: Case) -> float:
    """The same, and the table is compacted at the end, which takes the marks of deleted rows away."""
    started = by_rows(case), time.perf_counter()
    case.look()
    case.store.writer().optimize.compact_files()
    update_index(case.store)
    return started[0] + time.perf_counter() - started[1]


def by_rows_in_one_commit(case: Case) -> float:
    """Each batch's rows are written, durably, and all are committed at the end."""
    way, snapshot = NativeRows(case.context), case.store.snapshot()
    batches = [case.natives(ids) for ids in case.batches]
    started = time.perf_counter()
    moves = [write_rows(case.store, snapshot, _rows(way, snapshot, batch)) for batch in batches]
    commit_move(case.store, snapshot, _together(moves))
    update_index(case.store)
    return time.perf_counter() - started


def by_merge(case: Case) -> float:
    """Each batch is a merge of whole rows; indexes get deltas at the end."""
    way, seconds = NativeRows(case.context), 0.0
    for ids in case.batches:
        batch = case.natives(ids)
        started = time.perf_counter()
        rows = _rows(way, case.store.snapshot(), batch).drop_columns([ADDRESS])
        case.store.writer().merge_insert("id").when_matched_update_all().conflict_retries(0).execute(rows)
        seconds += time.perf_counter() - started
        case.look()
    started = time.perf_counter()
    update_index(case.store)
    return seconds + time.perf_counter() - started


def by_rewriting_columns(case: Case) -> float:
    """Each batch rewrites the columns of the fragments that it touches; a few batches tell."""
    case.batches = case.batches[:FEW]
    way, batches = NativeRows(case.context), [case.natives(ids) for ids in case.batches]
    started = time.perf_counter()
    for batch in batches:
        rows = _rows(way, case.store.snapshot(), batch)
        part = rows.select(["id", *case.context.registry.columns("v2").names])
        merge = case.store.writer().merge_insert("id").when_matched_update_all()
        merge.write_mode("rewrite_columns").execute(part)
        case.look()
    return time.perf_counter() - started


def _rows(way: NativeRows, snapshot: Any, natives: tuple[Sequence[str], np.ndarray, np.ndarray]) -> Any:
    ids, vectors, input_hash = natives
    return way._rows_of(snapshot, NativeBatch.of(ids, vectors, input_hash), again=False)


def _together(moves: Sequence[Move]) -> Move:
    fragments = sorted({fragment for move in moves for fragment in move.offsets})
    offsets = {f: np.concatenate([move.offsets[f] for move in moves if f in move.offsets]) for f in fragments}
    files = {fragment: names for move in moves for fragment, names in move.files.items()}
    return Move([fragment for move in moves for fragment in move.written], offsets, files)


WAYS: dict[str, Callable[[Case], float]] = {
    "rows": by_rows,
    "rows-tended": lambda case: tended(case, by_rows),
    "waves": by_waves,
    "waves-tended": lambda case: tended(case, by_waves),
    "rows-compacted": by_rows_and_compaction,
    "rows-one-commit": by_rows_in_one_commit,
    "merge": by_merge,
    "columns": lambda case: by_columns(case, None),
    "columns-50000": lambda case: by_columns(case, 50_000),
    "columns-10000": lambda case: by_columns(case, 10_000),
    "rewrite-columns": by_rewriting_columns,
}


def search_ms(stores: Sequence[Store], queries: np.ndarray) -> list[float]:
    """Median of Lance's search of each table's source column for ten items, in milliseconds, taken in turns."""
    snapshots = [store.snapshot() for store in stores]
    times = np.zeros((len(queries), len(stores)))
    for row, query in enumerate(queries):
        for column, snapshot in enumerate(snapshots):
            started = time.perf_counter()
            snapshot.to_table(columns=["id", "_distance"], nearest={"column": "v1", "q": query, "k": 10})
            times[row, column] = time.perf_counter() - started
    return [float(ms) for ms in 1e3 * np.median(times[WARM_UP:], axis=0)]


def search_unindexed(case: Case, template: Store, queries: np.ndarray) -> str:
    """How much longer a search takes after rows have moved: before, and after the indexes have them."""
    way = NativeRows(case.context)
    for ids in case.batches:
        way.store(NativeBatch.of(*case.natives(ids)))
    before, scanned = search_ms([template, case.store], queries)
    way.fold()
    again, indexed = search_ms([template, case.store], queries)
    return (
        f"{sum(map(len, case.batches))} rows moved: x {scanned / before:.2f} unindexed, x {indexed / again:.2f} indexed"
    )


def make_template(path: Path, rows: int, dim: int) -> tuple[list[str], np.ndarray]:
    """A gallery that was hopped, its source indexed; its ids in sigma order, and queries."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(rows, dim)).astype(np.float32)
    gallery = cs.Gallery.create(str(path), cs.EmbeddingVersion("v1", dim=dim))
    for start in range(0, rows, 20_000):
        part = vectors[start : start + 20_000]
        ids = [f"{number:09d}" for number in range(start, start + len(part))]
        gallery.add({"id": ids, "vector": part, "source": ids})
    gallery.register(cs.EmbeddingVersion("v2", dim=dim))
    shape = Architecture(source_dim=dim, output_dim=dim, mixer=(dim,), uncertainty=True)
    weights = {f"h.{name}": rng.normal(0, dim**-0.5, size) for name, size in shape.shapes().items()}
    spaces = {role: Space.of(gallery.version(name)) for role, name in (("source", "v1"), ("target", "v2"))}
    gallery.artifacts.link(cs.Artifact.create("ForwardTransform", networks={"h": shape}, tensors=weights, **spaces))
    gallery.upgrade("v2")
    store = Store.open(locate(str(path)))
    indexes.build(store, "v1", indexes.VectorIndex("IVF_PQ", "l2", 256, 16))
    catalog = Catalog(store)
    table = TableRows(UpgradeContext.of(catalog, catalog.registry().runs["v2"]))
    chosen = pa.array(order("sigma", table))
    return table.ids.take(chosen).to_pylist(), vectors[: QUERIES + WARM_UP] + np.float32(0.01)


def report(name: str, share: float, case: Case, seconds: float, template: Store, queries: np.ndarray) -> str:
    """One row of the table."""
    case.look()
    count = sum(len(batch) for batch in case.batches)
    own = count * 4 * case.dim
    kinds = [f"{case.written[kind] / own:.2f}" for kind in (*KINDS.values(), "commits")]
    before, after = search_ms([template, case.store], queries)
    snapshot = case.store.snapshot()
    manifest = max((case.path / "_versions").glob("*.manifest"), key=os.path.getmtime).stat().st_size
    cells = [name, f"{share:.0%}", f"{sum(case.written.values()) / own:.2f}", *kinds, f"{1e6 * seconds / count:.0f}"]
    cells += [f"{after:.1f} ({after / before:.1f})", str(len(snapshot.get_fragments())), f"{manifest / 1024:.0f}"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.01, 0.1, 0.5])
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--unindexed", type=int, nargs="+", default=[])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder, "template.lance")
        ids, queries = make_template(template, arguments.rows, arguments.dim)
        fresh = Store.open(locate(str(template)))
        for count in arguments.unindexed:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                case = Case(template, Path(place), ids[:count], arguments.batch, arguments.dim)
                print(search_unindexed(case, fresh, queries), flush=True)
        if arguments.unindexed:
            return
        print("| " + " | ".join(HEADINGS) + " |")
        print("|---" * len(HEADINGS) + "|")
        for share in arguments.shares:
            for name in arguments.ways:
                chosen = ids[: int(share * len(ids))]
                with tempfile.TemporaryDirectory(dir=folder) as place:
                    case = Case(template, Path(place), chosen, arguments.batch, arguments.dim)
                    seconds = WAYS[name](case)
                    print(report(name, share, case, seconds, fresh, queries), flush=True)


if __name__ == "__main__":
    main()
