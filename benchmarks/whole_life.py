"""A gallery's whole life at several sizes: seconds, memory and bytes of each step, beside Lance's own.

Items in 1,000 clusters are added 50,000 at a time; a small network with a sigma head hops them; the share whose sigma
is largest is embedded by an encoder that costs next to nothing; the target is indexed; single queries search, ours and
Lance's own by turns; then `verify`, the same upgrade again, and the cutover. Each step is a process of its own. Lance's
own append and index of the same vectors are limits of the same run. Single adds, cycles of upgrades and idle calls were
measured once, by `benchmarks/growth.py` of the commit that these rows name.
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa

import compatstore as cs
from benchmarks.bounds import bound
from benchmarks.measuring import ADDED_AT_ONCE, Work, by_turns, cost, near, ones, transform
from benchmarks.pages import markdown
from benchmarks.record import Record, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CENTRES, QUERIES, K, FEWEST = 1_000, 200, 10, 100_000  # of fewer items what a call costs is all there is
SHOWN = ("add", "hop", "backfill", "index", "search", "verify", "no-op upgrade", "cutover")


@dataclass(frozen=True)
class Life:
    """One gallery.

    Args:
        folder: Where it is, and what else is written.
        rows: Items.
        dim: Length of their vectors, in both versions.
        share: Of the backfill.
    """

    folder: Path
    rows: int
    dim: int
    share: float

    def path(self, name: str) -> str:
        """A file or table of the folder."""
        return str(self.folder / name)

    def open(self) -> cs.Gallery:
        """The gallery, with its encoder."""
        return cs.Gallery.open(self.path("gallery.lance"), encoders={"v2": ones(self.dim)})

    def items(self) -> Iterator[pa.Table]:
        """All items, `ADDED_AT_ONCE` at a time; the noise is drawn once, as drawing is not what is measured."""
        rng = np.random.default_rng(0)
        noise = 0.6 * rng.standard_normal((min(ADDED_AT_ONCE, self.rows), self.dim), np.float32)
        for start in range(0, self.rows, ADDED_AT_ONCE):
            count = min(ADDED_AT_ONCE, self.rows - start)
            vectors = self.centres()[rng.integers(0, CENTRES, count)] + noise[:count]
            column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), self.dim)
            yield pa.table({"id": [f"{start + n:012d}" for n in range(count)], "vector": column})

    def centres(self) -> Any:
        """(1000, dim) float32."""
        return np.random.default_rng(1).standard_normal((CENTRES, self.dim), np.float32)


def lance_append(life: Life) -> Row:
    """Lance's own append of the same items."""
    for batch in life.items():
        lance.write_dataset(batch, life.path("plain.lance"), mode="append")
    return {}


def add(life: Life) -> Row:
    """A new gallery of these items."""
    gallery = cs.Gallery.create(life.path("gallery.lance"), cs.EmbeddingVersion("v1", dim=life.dim, metric="l2"))
    for batch in life.items():
        gallery.add(batch)
    return {}


def hop(life: Life) -> Row:
    """Register the target, link the transform, and transform each vector."""
    gallery = cs.Gallery.open(life.path("gallery.lance"))
    gallery.register(cs.EmbeddingVersion("v2", dim=life.dim, metric="l2", encoder=ones(life.dim)))
    gallery.artifacts.link(transform(gallery))
    return {"transformed": gallery.upgrade("v2").transformed}


def search(life: Life) -> Work:
    """Single queries in the target, and the same by Lance alone, by turns."""
    gallery, table, queries = life.open(), lance.dataset(life.path("gallery.lance")), _queries(life)
    settings = gallery.explain(version="v2").parts[0].settings
    options = {"column": "v2", "k": K, "metric": "l2", **settings.options}
    ways: dict[str, Callable[[Any], object]] = {
        "lance_ms": lambda query: table.to_table(
            columns=["id", "_distance", "v2__origin"], nearest={**options, "q": query}
        ),
        "ours_ms": lambda query: gallery.search(query, K, "v2", columns=["id"]),
    }

    def work() -> Row:
        times = by_turns(ways, queries)
        median = {name: round(1e3 * float(np.median(taken)), 3) for name, taken in times.items()}
        return median | {"settings": f"{settings}"}

    return work


def exact_search(life: Life) -> Work:
    """The exact neighbours of these queries, in one call of Lance's, and what share of them the searches find."""
    table, queries = lance.dataset(life.path("gallery.lance")), _queries(life)
    found = life.open().search(queries, K, "v2", columns=["id"])["id"].to_pylist()

    def work() -> Row:
        nearest = {"column": "v2", "k": K, "metric": "l2", "use_index": False, "q": queries}
        exact = table.to_table(columns=["id", "query_index", "_distance"], nearest=nearest)
        truth = zip(exact["query_index"].to_pylist(), exact["id"].to_pylist(), strict=True)
        hits = {(at // K, name) for at, name in enumerate(found)} & set(truth)
        return {"recall": len(hits) / (K * len(queries))}

    return work


def _queries(life: Life) -> Any:
    """(`QUERIES`, dim) float32: what the transform makes of vectors that are no items."""
    rng = np.random.default_rng(3)
    return transform(life.open()).apply(near(rng, life.centres(), QUERIES)).vectors


def lance_index(life: Life) -> Work:
    """Lance's own index of the same vectors, of the same kind and cells, in the place of the gallery's."""
    cells = life.open().maintenance.index("v2").status().cells

    def work() -> Row:
        options = {"num_partitions": cells, "num_sub_vectors": max(life.dim // 8, 1), "replace": True}
        lance.dataset(life.path("gallery.lance")).create_index("v2", "IVF_PQ", metric="l2", **options)
        return {"cells": cells}

    return work


# Each prepares, unmeasured, and gives the work.
STEPS: dict[str, Callable[[Life], Work]] = {
    "Lance, append": lambda life: lambda: lance_append(life),
    "add": lambda life: lambda: add(life),
    "hop": lambda life: lambda: hop(life),
    "backfill": lambda life: (
        lambda: {"natives": life.open().upgrade("v2", backfill=cs.Backfill(share=life.share, order="sigma")).backfilled}
    ),
    "status": lambda life: lambda: {"versions": len(life.open().status().versions)},
    "evaluate": lambda life: lambda: {"sample": life.open().evaluate("v2", sample=500).num_queries},
    "report": lambda life: lambda: {"target": life.open().report("v2").target},
    "index": lambda life: lambda: {"cells": life.open().maintenance.index("v2").create().cells},
    "search": search,
    "search, exact": exact_search,
    "verify": lambda life: lambda: {"clean": life.open().maintenance.verify().clean},
    "no-op upgrade": lambda life: lambda: {"transformed": life.open().upgrade("v2").transformed},
    "cutover": lambda life: lambda: {"missing": life.open().cutover("v2").missing},
    "Lance, index": lance_index,
}


def lived(life: Life, name: str) -> Row:
    """Seconds, peak of memory and bytes of a step, in this process."""
    return cost(STEPS[name](life))


def run(
    *,
    rows: tuple[int, ...] = (100_000, 1_000_000, 10_000_000),
    dim: int = 128,
    share: float = 0.01,
    steps: tuple[str, ...] = tuple(STEPS),
) -> Iterator[Row]:
    """Live at each size, each step in a new process; then the limits."""
    spawn, found = multiprocessing.get_context("spawn"), []
    for count in rows:
        with tempfile.TemporaryDirectory() as folder:
            life = Life(Path(folder), count, dim, share)
            for name in steps:
                with ProcessPoolExecutor(1, spawn) as process:
                    found.append({"rows": count, "dim": dim, "step": name} | process.submit(lived, life, name).result())
                yield found[-1]
                shutil.rmtree(life.path("plain.lance"), ignore_errors=True)
    yield from limits(found)


def limits(found: Sequence[Row]) -> Iterator[Row]:
    """Figures with a limit, at each size."""
    steps = {(row["rows"], row["step"]): row for row in found}
    for rows in dict.fromkeys(row["rows"] for row in found if row["rows"] >= FEWEST):
        at = {step: steps[rows, step] for count, step in steps if count == rows}
        figures = {"`add` / Lance's append, CPU": (at["add"]["cpu_s"] / at["Lance, append"]["cpu_s"], 2.5, "")}
        own = 4 * at["add"]["dim"] * at.get("backfill", {}).get("natives", 0) / 1e6
        figures |= {} if not own else {
            "peak memory of add, hop and backfill": (max(at[step]["peak_mib"] for step in SHOWN[:3]), 2048, "MiB"),
            "bytes written for a native vector / its own, with merges": (at["backfill"]["written_mb"] / own, 3, ""),
            "recall@10 of a default index": (at["search, exact"]["recall"], 0.95, ""),
            "search with an index / Lance": (at["search"]["ours_ms"] / at["search"]["lance_ms"], 1.1, ""),
            "bytes read by a no-op upgrade": (
                at["no-op upgrade"]["read_mb"] * 1e6 / (4 * at["add"]["dim"] * rows), 0.02, "%",
            ),
        }  # fmt: skip
        for group, (figure, limit, unit) in figures.items():
            least = group.startswith("recall")
            yield bound(f"{group}, {rows:,} items", figure, limit, unit, least=least, group=group)


def steps_table(record: Record) -> str:
    """Seconds at each size, memory and bytes at the largest, a line a step."""
    rows = {(row["step"], row["rows"]): row for row in record.rows if "step" in row}
    sizes = sorted({size for _, size in rows})
    head = ("step", *(f"{size:,} items, s" for size in sizes), "CPU, s", "peak, MiB", "written, MB")
    cells = []
    for step in dict.fromkeys(step for step, _ in rows):
        last = rows.get((step, sizes[-1]), {})
        seconds = [_short(rows[step, size]["wall_s"]) if (step, size) in rows else "" for size in sizes]
        took = [_short(last[key]) if last else "" for key in ("cpu_s", "peak_mib", "written_mb")]
        cells.append((step, *seconds, *took))
    return markdown(head, cells)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def chart(record: Record) -> Figure:
    """Seconds and peak memory of each step by the size of the gallery."""
    from benchmarks.charts import QUIET, SERIES, panels

    figure, axes = panels(7.2, 2)
    for colour, step in zip((*SERIES, *SERIES), SHOWN, strict=False):
        rows = [row for row in record.rows if row.get("step") == step and "rows" in row]
        sizes = [row["rows"] for row in rows]
        dashed = "--" if SHOWN.index(step) >= len(SERIES) else "-"
        for panel, key in zip(axes, ("wall_s", "peak_mib"), strict=True):
            panel.plot(sizes, [row[key] for row in rows], dashed, marker="o", color=colour, label=step)
    for panel, name in zip(axes, ("Seconds, two cores", "Peak memory, MiB"), strict=True):
        panel.set_xscale("log")
        panel.set_title(name)
        panel.set_xlabel("items of 128 values")
    axes[0].set_yscale("log")
    axes[1].axhline(2048, color=QUIET, linestyle=":", linewidth=1.5)
    axes[1].annotate("limit", (1e5, 2048), xytext=(0, -12), textcoords="offset points", color=QUIET)
    axes[1].set_ylim(0, 2200)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
    return figure


SMOKE = {"rows": (600, 1200), "dim": 8}
TABLES = {"steps": steps_table}
