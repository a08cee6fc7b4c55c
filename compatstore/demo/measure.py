"""Measure ways to serve the gallery, always with the same queries and the same right answers, and draw what was found.

The table is the decision that an upgrade asks for, from the status quo to a full backfill. The pictures are quality
during the backfill, and what some queries find before and after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from compatstore.arrays import FloatArray
from compatstore.demo.digits import ImageFiles
from compatstore.demo.report import DemoRow
from compatstore.encoders.images import read_image
from compatstore.evaluation import (
    BackfillCurve,
    Neighbour,
    SheetRow,
    backfill_curve,
    contact_sheet,
    plot_curve,
    retrieval_metrics,
)
from compatstore.evaluation.compatibility import fit_length
from compatstore.gallery import Gallery
from compatstore.upgrade.backfilling.policies import order
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows

CURVE_STEPS = 21  # every 5 %: 25 % and 50 %, which the table has too, are among them


@dataclass(frozen=True, kw_only=True, eq=False)
class Judge:
    """Queries and gallery of all measurements; an item is right when it shows the query's digit.

    Args:
        queries: q images, none of them in the gallery.
        gallery: n images.
    """

    queries: ImageFiles
    gallery: ImageFiles

    def row(self, name: str, notation: str, queries: FloatArray, gallery: FloatArray, note: str) -> DemoRow:
        """Measure (q, d) query vectors on (n, d) gallery vectors by Euclidean distance."""
        found = retrieval_metrics(
            queries,
            gallery,
            self.queries.labels,
            self.gallery.labels,
            query_ids=self.queries.ids,
            gallery_ids=self.gallery.ids,
        )
        return DemoRow(name=name, notation=notation, cmc1=found.cmc[1], cmc5=found.cmc[5], map=found.map, note=note)

    def ranked(
        self, name: str, notation: str, gallery: Gallery, queries: Mapping[str, FloatArray], note: str
    ) -> DemoRow:
        """Measure searches of the live gallery by both versions as one: version -> (q, d) query vectors."""
        found = gallery.search(dict(queries), k=len(self.gallery), columns=["label"], serving="fused")
        labels = found["label"].to_numpy().reshape(len(self.queries), -1)
        hits = labels == self.queries.labels[:, None]
        precision = hits * hits.cumsum(axis=1) / np.arange(1, hits.shape[1] + 1)
        return DemoRow(
            name=name,
            notation=notation,
            cmc1=float(hits[:, 0].mean()),
            cmc5=float(hits[:, :5].any(axis=1).mean()),
            map=float((precision.sum(axis=1) / hits.sum(axis=1)).mean()),
            note=note,
        )

    def curve(self, queries: FloatArray, transformed: FloatArray, native: FloatArray, seed: int) -> BackfillCurve:
        """Measure every step of a backfill in the very order in which the gallery's policy "random" chooses items."""
        return backfill_curve(
            queries,
            transformed,
            native,
            self.queries.labels,
            self.gallery.labels,
            order("random", ArrayRows(ids=self.gallery.ids), seed),
            CURVE_STEPS,
            query_ids=self.queries.ids,
            gallery_ids=self.gallery.ids,
        )


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
        fused: Share that is native -> the row of both versions searched as one at that moment.
    """

    source_queries: FloatArray
    target_queries: FloatArray
    source: FloatArray
    plain: FloatArray
    steps: Mapping[float, FloatArray]
    target: FloatArray
    fused: Mapping[float, DemoRow]


def measure_all(judge: Judge, vectors: Vectors) -> tuple[DemoRow, ...]:
    """Measure every way to serve the gallery; see `Judge.row`."""
    queries = vectors.target_queries
    rows = [
        judge.row("status quo", "s/s", vectors.source_queries, vectors.source, "v1 queries on v1 vectors"),
        _naive_swap(judge, vectors),
        judge.row("hop without side-information", "t/h", queries, vectors.plain, "v2 queries, nothing re-embedded"),
        judge.row("hop with side-information", "t/h", queries, vectors.steps[0.0], "v2 queries, nothing re-embedded"),
        vectors.fused[0.0],
    ]
    for share, gallery in sorted(vectors.steps.items()):
        if share > 0:
            name = "full backfill" if share == 1 else f"backfill {share:.0%}"
            note = "every item re-embedded" if share == 1 else "on top of that hop, in random order"
            rows.append(judge.row(name, "t/t" if share == 1 else "t/h+t", queries, gallery, note))
    rows.append(vectors.fused[1.0])
    rows.append(judge.row("embedded afresh", "t/t", queries, vectors.target, "the bound: v2 on all images, no upgrade"))
    return tuple(rows)


def _naive_swap(judge: Judge, vectors: Vectors) -> DemoRow:
    dim, wanted = vectors.target_queries.shape[1], vectors.source.shape[1]
    done = "cut" if wanted < dim else "filled up with zeros"
    note = f"v2 queries on v1 vectors, {done} from {dim} to {wanted} values to fit the column"
    return judge.row("naive swap", "t/s", fit_length(vectors.target_queries, wanted), vectors.source, note)


NEIGHBOURS = 5
PER_DIGIT = 2
DRAWN = 64  # pixels across in the contact sheet
NEW_DIGITS = range(5, 10)

Neighbours = list[list[Neighbour]]


def draw_curve(curves: dict[str, BackfillCurve], status_quo: DemoRow, full: DemoRow, path: Path) -> Path:
    """Draw mAP against the share of the gallery that is embedded natively."""
    references = {"status quo, s/s": status_quo.map, "full backfill, t/t": full.map}
    return plot_curve(curves, path, metric="map", references=references)


def shown_queries(queries: ImageFiles) -> list[int]:
    """Choose which queries to draw: of each digit that the source model never saw the first two, in order of id."""
    return [int(row) for digit in NEW_DIGITS for row in np.flatnonzero(queries.labels == digit)[:PER_DIGIT]]


def find_neighbours(gallery: Gallery, queries: ImageFiles, rows: Sequence[int], version: str) -> Neighbours:
    """Search the live gallery with image files, as a user of `version` would."""
    return [_neighbours(gallery, queries.paths[row], int(queries.labels[row]), version) for row in rows]


def draw_neighbours(
    queries: ImageFiles, rows: Sequence[int], before: Neighbours, after: Neighbours, path: Path
) -> Path:
    """Draw the contact sheet."""
    sheet = [
        SheetRow(query=_pixels(queries.paths[row]), before=was, after=now, caption=f"a {queries.labels[row]}")
        for row, was, now in zip(rows, before, after, strict=True)
    ]
    title = "The first two queries of each digit that v1 was not trained on"
    return contact_sheet(sheet, path, title=title, headings=("Before: v1", "After the hop to v2: nothing re-embedded"))


def _neighbours(gallery: Gallery, query: Path, label: int, version: str) -> list[Neighbour]:
    found = gallery.search(str(query), k=NEIGHBOURS, version=version, columns=["source", "label"])
    return [
        Neighbour(image=_pixels(item["source"]), correct=item["label"] == label, caption=str(item["label"]))
        for item in found.select(["source", "label"]).to_pylist()
    ]


def _pixels(path: str | Path) -> npt.NDArray[np.uint8]:
    """Read an image and draw it larger, smoothly: eight pixels across are hard to read as a digit."""
    return np.asarray(read_image(path, "L").resize((DRAWN, DRAWN), Image.Resampling.BICUBIC))
