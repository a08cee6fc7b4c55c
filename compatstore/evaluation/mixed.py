"""Rank a gallery that holds two kinds of vectors at once, each searched with a query of its own kind (rank merge).

Native items are searched with the target's query, all others with the source's, and the two lists become one: a search
during a backfill that needs no transform at all (Seo et al., arXiv 2301.03767).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt

from compatstore.arrays import BoolArray, Doubles
from compatstore.errors import InvalidInput
from compatstore.evaluation.distances import Distances
from compatstore.evaluation.relevance import Relevance, leave_out

RankMerge = Literal["distance", "reciprocal rank", "calibrated"]
_TINY = np.finfo(np.float32).tiny


def mixed_blocks(
    source: Distances, target: Distances, native: BoolArray, relevance: Relevance, merge: RankMerge = "calibrated"
) -> Iterator[tuple[int, Doubles]]:
    """Distances of a mixed gallery of n items, block by block; items in the order that breaks ties.

    Args:
        source: Queries and gallery in the source's space.
        target: The same queries and gallery in the target's space, in blocks of the same size.
        native: (n,) bool, items that are searched in the target's space.
        relevance: The correct items.
        merge: "distance" takes distances as they are; "reciprocal rank" goes by the rank within each part (reciprocal
            rank fusion; a native item is first of two at one rank); "calibrated" first brings source distances to the
            mean and spread of target distances, for each query over the native items, whose both vectors are known.

    Raises:
        InvalidInput: An unknown merge, or fewer than 3 native items to calibrate by.
    """
    if merge not in MERGES:
        raise InvalidInput("merge two parts", expected=f"one of {', '.join(MERGES)}", found=repr(merge))
    if merge == "calibrated" and native.sum() < 3:
        raise InvalidInput("calibrate distances", expected="3 native items or more", found=f"{native.sum()}")
    return _merged(source, target, native[relevance.order], relevance, MERGES[merge])


def _merged(
    source: Distances,
    target: Distances,
    native: BoolArray,
    relevance: Relevance,
    merge: Callable[[Doubles, Doubles, BoolArray], Doubles],
) -> Iterator[tuple[int, Doubles]]:
    """Merged distances block by block, items in the order that breaks ties."""
    for (start, left), (_, right) in zip(source.blocks(), target.blocks(), strict=True):
        rows = slice(start, start + len(left))
        near = np.take(left, relevance.order, axis=1) + source.offsets[rows, None]
        far = np.take(right, relevance.order, axis=1) + target.offsets[rows, None]
        for part in (near, far):  # what a query cannot find counts neither in ranks nor in the calibration
            leave_out(part, relevance.itself[rows])
        yield start, merge(near, far, native)


def _by_distance(source: Doubles, target: Doubles, native: BoolArray) -> Doubles:
    return np.where(native, target, source)


def _by_rank(source: Doubles, target: Doubles, native: BoolArray) -> Doubles:
    """Order by rank: each item is in one list only, so the constant of reciprocal rank fusion does not matter."""
    merged = np.empty_like(source)
    merged[:, native] = _ranks(target[:, native])
    merged[:, ~native] = _ranks(source[:, ~native]) + 0.5
    return merged


def _calibrated(source: Doubles, target: Doubles, native: BoolArray) -> Doubles:
    center, spread = _moments(source, native)
    wanted_center, wanted_spread = _moments(target, native)
    slope = np.maximum(wanted_spread, _TINY) / np.maximum(spread, _TINY)
    return np.where(native, target, (source - center) * slope + wanted_center)


def _moments(distances: Doubles, native: BoolArray) -> tuple[Doubles, Doubles]:
    """Mean and spread of each row, (b, 1) each, over the native items that its query can find."""
    # Row after row in memory, or else a row's sum would depend on how many rows a block has.
    distances = np.compress(native, distances, axis=1)
    found = np.isfinite(distances)
    center: Doubles = distances.mean(axis=1, keepdims=True, where=found)
    spread: Doubles = distances.std(axis=1, keepdims=True, where=found)
    return center, spread


def _ranks(distances: Doubles) -> npt.NDArray[np.intp]:
    """Rank of each item in its row, from 0; of equal distances the earlier item is first."""
    order = distances.argsort(axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(distances.shape[1])[None], axis=1)
    return ranks


MERGES: Mapping[str, Callable[[Doubles, Doubles, BoolArray], Doubles]] = {
    "distance": _by_distance,
    "reciprocal rank": _by_rank,
    "calibrated": _calibrated,
}
