"""Measure ways to serve the gallery, always with the same queries and the same right answers."""

from __future__ import annotations

from dataclasses import dataclass

from compatstore.arrays import FloatArray
from compatstore.demo.digits import ImageFiles
from compatstore.demo.report import DemoRow
from compatstore.evaluation import BackfillCurve, backfill_curve, retrieval_metrics
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
