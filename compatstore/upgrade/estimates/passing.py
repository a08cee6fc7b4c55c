"""A whole gallery, batch by batch, in bounded memory: in the source, and as a hop makes it or the target has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from compatstore.arrays import BoolArray, Doubles, FloatArray, Positions
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import NATIVE, VersionColumns, VersionValues
from compatstore.storage.doubts import kept_cosines
from compatstore.storage.snapshot import Snapshot
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.transform import Transformer, transformer_of

MOST_ROWS = 8192  # of a batch


@dataclass(frozen=True, kw_only=True, eq=False)
class Passed:
    """A batch of b items.

    Args:
        places: (b,) intp, each item's place among those with a vector in the source, ascending without a gap.
        source: (b, source dim) float32.
        target: (b, target dim) float32.
        in_source: (b,) bool, items that have a vector in the source.
        in_target: (b,) bool, items that have one in the target.
        native: (b,) bool, items whose vector in the target is native.
        factors: (b,) float64, as of `EvaluationSample`; 1 where the catalog was not asked.
    """

    places: Positions
    source: FloatArray
    target: FloatArray
    in_source: BoolArray
    in_target: BoolArray
    native: BoolArray
    factors: Doubles


@dataclass(frozen=True, kw_only=True, eq=False)
class GalleryPass:
    """A gallery that can be read from its first item to its last, as often as it is asked for.

    Args:
        snapshot: The table version.
        source: Columns of the source.
        target: Columns of the target where these are read, or None: then the source's are transformed.
        transformer: What transforms them; without an artifact no item has a vector in the target.
        dim: Values of a vector in the target.
        catalog: Gives the shrinkage factors of transformed vectors; None for factors of 1.
    """

    snapshot: Snapshot
    source: VersionColumns
    target: VersionColumns | None
    transformer: Transformer
    dim: int
    catalog: Catalog | None = None

    @classmethod
    def of(cls, context: UpgradeContext, *, served: bool, shrinkage: bool = False) -> GalleryPass:
        """The gallery of an upgrade.

        Args:
            context: The upgrade.
            served: As the table has it in the target, else as a hop makes it.
            shrinkage: With the shrinkage factors of transformed vectors.
        """
        return cls(
            snapshot=context.snapshot,
            source=context.source,
            target=context.target if served else None,
            transformer=transformer_of(context.catalog, context.run),
            dim=context.target_record.dim,
            catalog=context.catalog if shrinkage else None,
        )

    def batches(self, rows: int) -> Iterator[Passed]:
        """Read it, at most `rows` items at a time."""
        source, target, start = self.source, self.target, 0
        columns = [*source.item_names, *(target.names if target else [])]
        for batch in self.snapshot.to_batches(
            columns=list(dict.fromkeys(columns)), filter=source.present, batch_size=min(rows, MOST_ROWS)
        ):
            stored = source.read_items(batch)
            native, factors = np.zeros(len(stored.valid), bool), np.ones(len(stored.valid))
            if target is not None:
                values = target.decode(batch)
                made, there = values.vectors, values.valid
                native = there & (values.origin == NATIVE)
                factors[there] = self._factors(values.take(there))
            else:
                there = native.copy() if not self.transformer.artifacts else self.transformer.possible(stored)
                made = np.zeros((len(there), self.dim), np.float32)
                if there.any():
                    hopped = self.transformer.apply(stored.take(there))
                    made[there] = hopped.vectors
                    factors[there] = self._factors(hopped)
                    there[there] = hopped.valid
            yield Passed(
                places=np.arange(start, start + len(there)),
                source=_findable(stored.vectors, stored.valid),
                target=_findable(made, there),
                in_source=stored.valid,
                in_target=there,
                native=native,
                factors=factors,
            )
            start += len(there)

    def _factors(self, made: VersionValues) -> Doubles:
        if self.catalog is None:
            return np.ones(len(made.valid))
        return kept_cosines(self.catalog, made.origin, made.uncertainty)


def _findable(vectors: FloatArray, there: BoolArray) -> FloatArray:
    """The vectors, with something that has a direction where there are none."""
    return vectors if there.all() else np.where(there[:, None], vectors, np.float32(1))
