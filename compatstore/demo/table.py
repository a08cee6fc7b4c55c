"""The demo's table: the decision that an upgrade asks for, from the status quo to a full backfill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compatstore.arrays import FloatArray
from compatstore.demo.measure import Judge
from compatstore.demo.report import DemoRow
from compatstore.evaluation.compatibility import fit_length


@dataclass(frozen=True, kw_only=True, eq=False)
class Vectors:
    """The vectors of one upgrade, rows in the order of the judge's queries and gallery.

    Args:
        source_queries: (q, source dim), embedded with v1.
        target_queries: (q, target dim), embedded with v2.
        source: (n, source dim), the gallery in v1.
        plain: (n, target dim), transformed without side-information.
        steps: Share that is native -> (n, target dim), the gallery's column of v2 at that moment; 0 after the hop, 1
            after the full backfill.
        target: (n, target dim), the gallery's images embedded with v2 outside of the gallery.
    """

    source_queries: FloatArray
    target_queries: FloatArray
    source: FloatArray
    plain: FloatArray
    steps: Mapping[float, FloatArray]
    target: FloatArray


def measure_all(judge: Judge, vectors: Vectors) -> tuple[DemoRow, ...]:
    """Measure every way to serve the gallery; see `Judge.row`."""
    queries = vectors.target_queries
    rows = [
        judge.row("status quo", "s/s", vectors.source_queries, vectors.source, "v1 queries on v1 vectors"),
        _naive_swap(judge, vectors),
        judge.row("hop without side-information", "t/h", queries, vectors.plain, "v2 queries, nothing re-embedded"),
        judge.row("hop with side-information", "t/h", queries, vectors.steps[0.0], "v2 queries, nothing re-embedded"),
    ]
    for share, gallery in sorted(vectors.steps.items()):
        if share > 0:
            name = "full backfill" if share == 1 else f"backfill {share:.0%}"
            note = "every item re-embedded" if share == 1 else "on top of that hop, in random order"
            rows.append(judge.row(name, "t/t" if share == 1 else "t/h+t", queries, gallery, note))
    rows.append(judge.row("embedded afresh", "t/t", queries, vectors.target, "the bound: v2 on all images, no upgrade"))
    return tuple(rows)


def _naive_swap(judge: Judge, vectors: Vectors) -> DemoRow:
    dim, wanted = vectors.target_queries.shape[1], vectors.source.shape[1]
    done = "cut" if wanted < dim else "filled up with zeros"
    note = f"v2 queries on v1 vectors, {done} from {dim} to {wanted} values to fit the column"
    return judge.row("naive swap", "t/s", fit_length(vectors.target_queries, wanted), vectors.source, note)
