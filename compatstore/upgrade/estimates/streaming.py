"""The whole gallery passing by, in bounded memory: as its source has it, and as a hop makes it or the target has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from compatstore.arrays import BoolArray, FloatArray
from compatstore.evaluation.compatibility import fit_length
from compatstore.evaluation.whole import Passing, WholeFigures, WholeSearch
from compatstore.storage.columns import VersionColumns
from compatstore.storage.snapshot import Snapshot
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.sample import Sample
from compatstore.upgrade.transform import Transformer, transformer_of
from compatstore.versions import Metric

SOURCE_WAYS = ("s/s", "t/s")
TARGET_WAY = "t/h"


@dataclass(frozen=True, kw_only=True, eq=False)
class Streaming:
    """A gallery that queries of a sample search as a whole, by the ways that need no more native vectors.

    Args:
        snapshot: The table version.
        source: Columns of the source.
        target: Columns of the target where these are what is searched, or None: then the source's are transformed.
        transformer: What transforms them.
        search: The queries.
    """

    snapshot: Snapshot
    source: VersionColumns
    target: VersionColumns | None
    transformer: Transformer
    search: WholeSearch

    def figures(self, ks: tuple[int, ...]) -> WholeFigures:
        """Search it; the table is read twice.

        Args:
            ks: The k of CMC@k.
        """
        return self.search.run(self._batches, ks)

    def _batches(self) -> Iterator[Passing]:
        source, target, start = self.source, self.target, 0
        columns = [*source.item_names, *(target.names if target else [])]
        batches = self.snapshot.to_batches(
            columns=list(dict.fromkeys(columns)), filter=source.present, batch_size=min(self.search.batch_rows, 8192)
        )
        for batch in batches:
            stored = source.read_items(batch)
            if target is not None:
                values = target.decode(batch)
                made, there = values.vectors, values.valid
            else:
                there = self.transformer.possible(stored)
                made = np.zeros((len(there), self.search.queries[TARGET_WAY].shape[1]), np.float32)
                if there.any():
                    hopped = self.transformer.apply(stored.take(there))
                    made[there] = hopped.vectors
                    there[there] = hopped.valid
            old = _findable(stored.vectors, stored.valid)
            yield Passing(
                places=np.arange(start, start + len(there)),
                vectors={**dict.fromkeys(SOURCE_WAYS, old), TARGET_WAY: _findable(made, there)},
                there={**dict.fromkeys(SOURCE_WAYS, stored.valid), TARGET_WAY: there},
            )
            start += len(there)


def search_whole(
    context: UpgradeContext, sample: Sample, metrics: Mapping[str, Metric], *, served: bool, seed: int
) -> Streaming:
    """Let the queries of a sample search all items that have a vector in the source; read-only.

    Args:
        context: The upgrade, at the table version that the sample is of.
        sample: Labelled items, of which some are queries.
        metrics: Way -> distance of its space.
        served: Search what the table has in the target, rather than what a hop makes.
        seed: Of the items that stand for large classes.
    """
    source, asks = context.source, sample.asks
    assert sample.classes is not None
    queries = sample.native[asks]
    search = WholeSearch(
        queries={
            "s/s": sample.source.vectors[asks],
            "t/s": fit_length(queries, source.dim),
            TARGET_WAY: queries,
        },
        metrics=metrics,
        query_classes=sample.classes[sample.places[asks]],
        classes=sample.classes,
        itself=sample.places[asks],
        seed=seed,
    )
    return Streaming(
        snapshot=context.snapshot,
        source=source,
        target=context.target if served else None,
        transformer=transformer_of(context.catalog, context.run),
        search=search,
    )


def _findable(vectors: FloatArray, there: BoolArray) -> FloatArray:
    """The vectors, with something that has a direction where there are none."""
    return vectors if there.all() else np.where(there[:, None], vectors, np.float32(1))
