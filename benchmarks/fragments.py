"""What fragments cost: the commit of a batch of natives that comes from all of them, and an exact search.

    python -m benchmarks.fragments [--marked 5 20 64 200] [--fragment-rows 2000] [--batches 6]
        [--rows 100000 1000000] [--small 0 20 98] [--dim 128]

The first table moves batches of 1,024 rows that lie in all fragments of a gallery, a commit each, beside the same
batches staged; CPU milliseconds of this process, medians. The second one appends small fragments to a table of large
ones, and times Lance's exact search: medians of 50 queries, the least of three rounds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

import compatstore as cs
from compatstore.artifacts import Architecture, Space
from compatstore.storage.catalog import Catalog
from compatstore.storage.ids import find
from compatstore.storage.location import locate
from compatstore.storage.staging import NativeBatch
from compatstore.storage.store import Store
from compatstore.upgrade.backfilling.natives import NativeRows, staging_of
from compatstore.upgrade.context import UpgradeContext

BATCH, DIM, LARGE, LITTLE = 1_024, 16, 50_000, 64
QUERIES, WARM_UP, ROUNDS = 50, 10, 3


def hopped(path: str, fragments: int, rows: int) -> UpgradeContext:
    """A hopped gallery of that many fragments, each of as many rows."""
    rng = np.random.default_rng(0)
    gallery = cs.Gallery.create(path, cs.EmbeddingVersion("v1", dim=DIM))
    ids = [f"{number:09d}" for number in range(fragments * rows)]
    gallery.add({"id": ids, "vector": rng.normal(size=(len(ids), DIM)).astype(np.float32)})
    gallery.register(cs.EmbeddingVersion("v2", dim=DIM))
    tensors = {"h.mixer.0.weight": np.eye(DIM, dtype=np.float32), "h.mixer.0.bias": np.zeros(DIM, np.float32)}
    gallery.artifacts.link(
        cs.Artifact.create(
            "ForwardTransform",
            source=Space.of(gallery.version("v1")),
            target=Space.of(gallery.version("v2")),
            networks={"h": Architecture(source_dim=DIM, output_dim=DIM)},
            tensors=tensors,
        )
    )
    gallery.upgrade("v2")
    table = lance.dataset(path).to_table()
    lance.dataset(path).delete("true")
    for part in range(fragments):
        lance.write_dataset(table.slice(part * rows, rows), path, mode="append")
    catalog = Catalog(Store.open(locate(path)))
    return UpgradeContext.of(catalog, catalog.registry().runs["v2"])


def cpu_ms(work: Callable[[], object]) -> float:
    """Milliseconds of the processor's that a call takes."""
    started = time.process_time()
    work()
    return 1e3 * (time.process_time() - started)


def commits(fragments: int, rows: int, batches: int) -> tuple[int, float, float]:
    """Fragments that there are, and what a batch takes that is moved at once, and one that is staged."""
    with tempfile.TemporaryDirectory() as folder:
        context = hopped(str(Path(folder, "g.lance")), fragments, rows)
        ways, order = (
            (NativeRows(context), staging_of(context)),
            np.random.default_rng(1).permutation(fragments * rows),
        )
        names = ["id", *context.source.hashed_names(context.registry.source_column)]
        took = []
        for start in range(0, min(batches * BATCH, len(order)), BATCH):
            ids = [f"{number:09d}" for number in order[start : start + BATCH]]
            found = find(context.store, "id", ids, names)
            hashes = context.source.input_hashes(found, context.registry.source_column).native
            natives = NativeBatch.of(found["id"].to_pylist(), np.ones((len(hashes), DIM), np.float32), hashes)
            took.append([cpu_ms(lambda: way.store(natives)) for way in ways])  # noqa: B023
        moved, staged = np.median(took, axis=0)
        return len(context.snapshot.get_fragments()), float(moved), float(staged)


def vectors_table(rows: int, dim: int, rng: np.random.Generator) -> pa.Table:
    """Rows of normal vectors."""
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=rows * dim).astype(np.float32)), dim)
    return pa.table({"id": pa.array(range(rows)), "v": vectors})


def search_ms(path: str, dim: int) -> float:
    """Median of an exact search for ten items."""
    table, rng, medians = lance.dataset(path), np.random.default_rng(2), []
    for _ in range(ROUNDS):
        times = []
        for query in rng.normal(size=(QUERIES + WARM_UP, dim)).astype(np.float32):
            started = time.perf_counter()
            table.to_table(columns=["id"], nearest={"column": "v", "q": query, "k": 10, "use_index": False})
            times.append(time.perf_counter() - started)
        medians.append(1e3 * float(np.median(times[WARM_UP:])))
    return min(medians)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--marked", type=int, nargs="+", default=[5, 20, 64, 200])
    parser.add_argument("--fragment-rows", type=int, default=2_000)
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--small", type=int, nargs="+", default=[0, 20, 98])
    parser.add_argument("--dim", type=int, default=128)
    arguments = parser.parse_args()
    print("| fragments | a batch moved, CPU ms | a batch staged, CPU ms |\n|---:|---:|---:|")
    for count in arguments.marked:
        fragments, moved, staged = commits(count, arguments.fragment_rows, arguments.batches)
        print(f"| {fragments} | {moved:.1f} | {staged:.1f} |", flush=True)
    print("\n| rows | small fragments | exact search, ms | of a search without them | a small one in rows |")
    print("|---:|---:|---:|---:|---:|")
    for rows in arguments.rows:
        rng, there, alone = np.random.default_rng(0), 0, 0.0
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder, "t.lance"))
            for start in range(0, rows, LARGE):
                lance.write_dataset(vectors_table(min(LARGE, rows - start), arguments.dim, rng), path, mode="append")
            for small in sorted(arguments.small):
                for _ in range(small - there):
                    lance.write_dataset(vectors_table(LITTLE, arguments.dim, rng), path, mode="append")
                there, took = small, search_ms(path, arguments.dim)
                alone = alone or took
                each = f"{(took / alone - 1) * rows / small:,.0f}" if small else ""
                print(f"| {rows:,} | {small} | {took:.1f} | {took / alone:.2f} | {each} |", flush=True)


if __name__ == "__main__":
    main()
