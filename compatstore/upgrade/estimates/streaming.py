"""What the queries of a sample find in the whole gallery, by the ways that need no more native vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from compatstore.evaluation.distances import fit_length
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.whole import FusedWay, Passing, WholeFigures, WholeSearch
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.passing import GalleryPass
from compatstore.upgrade.estimates.sample import Sample
from compatstore.upgrade.progress import Monitor, Progress
from compatstore.versions import Metric

SOURCE_WAYS = ("s/s", "t/s")
TARGET_WAY = "t/h"
FUSED_WAY = "s/s & t"


@dataclass(frozen=True, kw_only=True, eq=False)
class Streaming:
    """A gallery that queries of a sample search as a whole.

    Args:
        passing: The gallery.
        search: The queries.
        monitor: Progress, over both readings of the table.
    """

    passing: GalleryPass
    search: WholeSearch
    monitor: Monitor

    def figures(self, ks: tuple[int, ...]) -> WholeFigures:
        """Search it; the table is read twice.

        Args:
            ks: The k of CMC@k.
        """
        self.monitor.begin()
        return self.search.run(self._batches, ks)

    def _batches(self) -> Iterator[Passing]:
        for batch in self.passing.batches(self.search.batch_rows):
            self.monitor.advance(len(batch.places))
            yield Passing(
                places=batch.places,
                vectors={**dict.fromkeys(SOURCE_WAYS, batch.source), TARGET_WAY: batch.target},
                there={**dict.fromkeys(SOURCE_WAYS, batch.in_source), TARGET_WAY: batch.in_target},
                native=batch.native,
                factors={TARGET_WAY: batch.factors},
            )


def search_whole(
    context: UpgradeContext,
    sample: Sample,
    metrics: Mapping[str, Metric],
    *,
    depth: int | None,
    served: bool,
    fusion: Fusion | None,
    seed: int,
    shrinkage: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Streaming:
    """Let the queries of a sample search all items that have a vector in the source; read-only.

    Args:
        context: The upgrade, at the table version that the sample is of.
        sample: Items with labels, of which some are queries, or queries with judgements.
        metrics: Way -> distance of its space.
        depth: The k of recall@k, nDCG@k and MRR@k; None to leave them out.
        served: Search what the table has in the target, rather than what a hop makes.
        fusion: How both versions are searched as one, where what is served is searched by that too.
        seed: Of the items that stand for large classes.
        shrinkage: True if distances to transformed vectors are shrunk by their predicted error.
        progress: Called after each batch of the gallery.
    """
    queries, nothing = sample.target_queries, np.full(sample.population, -1)
    classes = nothing if sample.classes is None else sample.classes
    search = WholeSearch(
        queries={
            "s/s": sample.source_queries,
            "t/s": fit_length(queries, context.source.dim),
            TARGET_WAY: queries,
        },
        metrics=metrics,
        query_classes=classes[sample.query_places],
        classes=classes,
        itself=sample.query_places,
        seed=seed,
        judged=None if sample.queries is None else sample.queries.judged,
        depth=depth,
        swapped={"t/s"},
        fused={} if fusion is None else {FUSED_WAY: FusedWay(source="s/s", target=TARGET_WAY, fusion=fusion)},
    )
    return Streaming(
        passing=GalleryPass.of(context, served=served, shrinkage=shrinkage),
        search=search,
        monitor=Monitor("search", 2 * sample.population, progress),
    )
