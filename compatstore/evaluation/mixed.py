"""Rank a gallery that holds two kinds of vectors at once, each searched with a query of its own kind.

Native items are searched with the target's query, all others in the source's space, and the two lists become one: a
search during a backfill that needs no transform at all (Seo et al., arXiv 2301.03767). See `merging.py` for the merges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from compatstore.arrays import BoolArray, Doubles
from compatstore.evaluation.distances import Distances
from compatstore.evaluation.merging import Calibration, RankMerge
from compatstore.evaluation.ordering import nearest_first
from compatstore.evaluation.relevance import Relevance, leave_out


def mixed_blocks(
    source: Distances,
    target: Distances,
    native: BoolArray,
    relevance: Relevance,
    merges: Sequence[RankMerge],
    calibration: Calibration,
) -> Iterator[tuple[int, Doubles]]:
    """Distances of a mixed gallery of n items by several merges, block by block: (b, merges * n), merge after merge.

    Args:
        source: Queries and gallery in the source's space.
        target: The same queries and gallery in the target's space, in blocks of the same size.
        native: (n,) bool, items that are searched in the target's space.
        relevance: The correct items; items are in the order that breaks ties.
        merges: What is compared. "distance" takes distances as they are, "calibrated" maps source distances;
            "reciprocal rank" goes by the rank within each part (a native item is first of two at one rank).
        calibration: Of the source distances.
    """
    native = native[relevance.order]
    for (start, left), (_, right) in zip(source.blocks(), target.blocks(), strict=True):
        rows = slice(start, start + len(left))
        near = np.take(left, relevance.order, axis=1) + source.offsets[rows, None]
        far = np.take(right, relevance.order, axis=1) + target.offsets[rows, None]
        for part in (near, far):  # what a query cannot find counts in no rank
            leave_out(part, relevance.itself[rows])
        yield start, np.concatenate([_merged(near, far, native, merge, calibration) for merge in merges], axis=1)


def _merged(source: Doubles, target: Doubles, native: BoolArray, merge: RankMerge, calibration: Calibration) -> Doubles:
    if merge == "reciprocal rank":
        return _by_rank(source, target, native)
    return np.where(native, target, calibration.apply(source) if merge == "calibrated" else source)


def _by_rank(source: Doubles, target: Doubles, native: BoolArray) -> Doubles:
    """Order by rank: each item is in one list only, so the constant of reciprocal rank fusion does not matter."""
    merged = np.empty_like(source)
    merged[:, native] = _ranks(target[:, native])
    merged[:, ~native] = _ranks(source[:, ~native]) + 0.5
    return merged


def _ranks(distances: Doubles) -> npt.NDArray[np.intp]:
    """Rank of each item in its row, from 0; of equal distances the earlier item is first."""
    order = nearest_first(distances)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(distances.shape[1])[None], axis=1)
    return ranks
