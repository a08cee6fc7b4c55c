"""Exact ranks of some items among all items' distances to one query, without an order of all items.

The rank of an item is the number of distances below its own, read from the sorted distances, plus the items before it
among those at exactly its distance. Sorted are single-precision roundings: plain numbers of half the length sort in
half the time. Rounding keeps the order, so only items whose roundings are equal, a few in a thousand, are put in order
by their distances themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from compatstore.arrays import BoolArray, Doubles, Positions

_MANY = 16  # distances of which one has an equal rounding: from there on all are sorted as they are
_BITS = 16  # of a rounding, that tell most others from it

Singles = npt.NDArray[np.float32]


class Ranks(NamedTuple):
    """Where some items of a query stand.

    Args:
        of: (m,) intp, from 1; of equal distances the earlier position is first.
        ties: Places of the whole ranking that are decided by position: items exactly as far away as the item ranked
            just before them. Items at an infinite distance are not ranked.
    """

    of: Positions
    ties: int


def ranks_at(distances: Doubles, positions: Positions) -> Ranks:
    """Rank the items at some positions.

    Args:
        distances: (n,) float64 of all items, no NaN; infinite for items that the ranking leaves out.
        positions: (m,) intp.
    """
    with np.errstate(over="ignore"):
        rounded = distances.astype(np.float32)
    rounded += np.float32(0.0)  # one zero, not two of unlike bits
    ordered = np.sort(rounded)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(repeated) > len(distances) // _MANY:
        return _by_distances(distances, positions)
    ranks = ordered.searchsorted(rounded[positions]) + 1
    if not len(repeated):
        return Ranks(ranks, 0)
    near = _equal_to_any(rounded, repeated)
    exactly = np.argsort(distances[near], kind="stable")
    groups = rounded[near[exactly]]
    places = np.empty_like(near)
    places[exactly] = ordered.searchsorted(groups) + np.arange(len(near)) - groups.searchsorted(groups) + 1
    at = np.minimum(near.searchsorted(positions), len(near) - 1)
    return Ranks(np.where(near[at] == positions, places[at], ranks), _ties(distances[near[exactly]]))


def _equal_to_any(rounded: Singles, repeated: Singles) -> Positions:
    """Positions, ascending, of the values that are repeated; their last bits leave few others to look at."""
    marked: BoolArray = np.zeros(1 << _BITS, dtype=np.bool_)
    marked[repeated.view(np.uint32) & (len(marked) - 1)] = True
    some = np.flatnonzero(marked[rounded.view(np.uint32) & (len(marked) - 1)])
    at = np.minimum(repeated.searchsorted(rounded[some]), len(repeated) - 1)
    equal: Positions = some[repeated[at] == rounded[some]]
    return equal


def _by_distances(distances: Doubles, positions: Positions) -> Ranks:
    """As `ranks_at`, by a sort of the distances themselves."""
    ordered, found = np.sort(distances), distances[positions]
    ranks = ordered.searchsorted(found)
    tied = ordered.searchsorted(found, side="right") - ranks > 1
    for distance in np.unique(found[tied]):
        here = found == distance
        ranks[here] += np.flatnonzero(distances == distance).searchsorted(positions[here])
    return Ranks(ranks + 1, _ties(ordered))


def _ties(ordered: Doubles) -> int:
    """Sorted distances that are equal to the one before and finite."""
    return int(np.count_nonzero((ordered[1:] == ordered[:-1]) & np.isfinite(ordered[1:])))


def ranks_behind_ties(distances: Doubles, positions: Positions) -> Positions:
    """Ranks, ascending and from 1, of some items of one query, each behind all items at exactly its distance.

    So ties count against a query: of n items at one distance all have rank n.

    Args:
        distances: (n,) float64 of all items; infinite for items that the ranking leaves out.
        positions: (m,) intp, the items.
    """
    ranks: Positions = np.sort(np.sort(distances).searchsorted(distances[positions], side="right"))
    return ranks


def nearest_first(distances: Doubles) -> npt.NDArray[np.intp]:
    """Columns of each row by distance: (b, n) float64 -> (b, n).

    The same as a stable sort. NumPy has vector instructions for the sort that is not, and few rows have equal
    distances, so only those are sorted a second time.
    """
    order: npt.NDArray[np.intp] = distances.argsort(axis=1)
    ranked = np.take_along_axis(distances, order, axis=1)
    tied = np.flatnonzero(~(ranked[:, 1:] > ranked[:, :-1]).all(axis=1))
    order[tied] = distances[tied].argsort(axis=1, kind="stable")
    return order
