"""A whole gallery, batch by batch, in bounded memory: in the source, and as a hop makes it or the target has it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from compatstore.arrays import BoolArray, FloatArray
from compatstore.evaluation.whole import Passing
from compatstore.storage.columns import NATIVE, VersionValues
from compatstore.storage.shrinkage import kept_cosines
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.transform import transformer_of

MOST_ROWS = 8192  # of a batch


def read_gallery(context: UpgradeContext, rows: int, *, served: bool, shrinkage: bool = False) -> Iterator[Passing]:
    """Read all items that have a vector in the source, from the first to the last.

    Args:
        context: The upgrade; without an artifact no item is transformed.
        rows: Items of a batch, at most.
        served: Vectors of the target as the table has them, else as a hop makes them.
        shrinkage: With the shrinkage factors of transformed vectors; otherwise all are 1.
    """
    source, target, start = context.source, context.target if served else None, 0
    transformer = transformer_of(context.catalog, context.run)
    columns = [*source.item_names, *(target.names if target else [])]
    for batch in context.snapshot.to_batches(
        columns=list(dict.fromkeys(columns)), filter=source.present, batch_size=min(rows, MOST_ROWS)
    ):
        stored = source.read_items(batch)
        if target is not None:
            made = target.decode(batch)
        else:
            made = VersionValues.absent(len(stored.valid), context.target_record.dim)
            if transformer.artifacts and (possible := transformer.possible(stored)).any():
                made.put(possible, transformer.apply(stored.take(possible)))
        there, factors = made.valid, np.ones(len(made.valid))
        if shrinkage:
            factors[there] = kept_cosines(context.catalog, made.origin[there], made.uncertainty[there])
        yield Passing(
            places=np.arange(start, start + len(there)),
            source=_findable(stored.vectors, stored.valid),
            target=_findable(made.vectors, there),
            in_source=stored.valid,
            in_target=there,
            native=there & (made.origin == NATIVE),
            factors=factors,
        )
        start += len(there)


def _findable(vectors: FloatArray, there: BoolArray) -> FloatArray:
    """The vectors, with something that has a direction where there are none."""
    return vectors if there.all() else np.where(there[:, None], vectors, np.float32(1))
