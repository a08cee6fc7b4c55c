"""Judgements: which items are correct for which query, and what each of them is worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compatstore.arrays import Doubles, Positions
from compatstore.boundary import array_of, checked_fields
from compatstore.errors import InvalidInput


@checked_fields
@dataclass(frozen=True, kw_only=True, eq=False)
class Judgements:
    """m pairs of a query and an item that is correct for it.

    Args:
        queries: (m,) intp, rows of the queries.
        items: (m,) intp, rows of the gallery.
        gains: (m,) float64, what each item is worth to its query, finite and above 0: a grade, or a count of clicks.

    Raises:
        InvalidInput: Three lists of different lengths. A gain is not above 0, or not finite.

    Examples:
        >>> judged = cs.evaluation.Judgements(queries=[0, 0, 1], items=[4, 2, 4], gains=[2, 1, 1])
        >>> judged.counts(2).tolist()
        [2, 1]
    """

    queries: Positions
    items: Positions
    gains: Doubles

    def __post_init__(self) -> None:
        for name, kind in (("queries", np.intp), ("items", np.intp), ("gains", np.float64)):
            given = array_of(getattr(self, name), "judge items", name, ndim=1)
            if given.size and given.dtype.kind not in ("iu" if kind is np.intp else "iuf"):
                expected = "whole numbers" if kind is np.intp else "numbers"
                raise InvalidInput("judge items", expected=f"{name} that are {expected}", found=f"{given.dtype}")
            object.__setattr__(self, name, given.astype(kind))
        lengths = [len(values) for values in (self.queries, self.items, self.gains)]
        if len(set(lengths)) > 1:
            found = f"{lengths[1]} items and {lengths[2]} gains"
            raise InvalidInput("judge items", expected=f"{lengths[0]} of each", found=found)
        if not (np.isfinite(self.gains).all() and (self.gains > 0).all()):
            raise InvalidInput("judge items", expected="finite gains above 0", found="others")

    def __len__(self) -> int:
        return len(self.queries)

    def counts(self, queries: int) -> Positions:
        """(queries,) intp, correct items of each query."""
        return np.bincount(self.queries, minlength=queries)

    def require_within(self, queries: int, items: int) -> None:
        """Refuse rows that are not there.

        Raises:
            InvalidInput: A row of a query or of an item is out of range.
        """
        for rows, most, what in ((self.queries, queries, "queries"), (self.items, items, "items")):
            if len(rows) and not (rows.min() >= 0 and rows.max() < most):
                raise InvalidInput(
                    "judge items", expected=f"rows of {most} {what}", found=f"{rows.min()} to {rows.max()}"
                )

    def of_queries(self, rows: Positions) -> Judgements:
        """Those of some queries, whose rows are then counted in the order of `rows`."""
        return self._renumbered(rows, None)

    def of_items(self, rows: Positions) -> Judgements:
        """Those of some items, whose rows are then counted in the order of `rows`."""
        return self._renumbered(None, rows)

    def _renumbered(self, queries: Positions | None, items: Positions | None) -> Judgements:
        asked = self.queries if queries is None else places_among(self.queries, queries)
        found = self.items if items is None else places_among(self.items, items)
        kept = (asked >= 0) & (found >= 0)
        return Judgements(queries=asked[kept], items=found[kept], gains=self.gains[kept])


def places_among(values: Positions, rows: Positions) -> Positions:
    """Where each value stands among rows that differ, -1 for one that does not: (m,) intp."""
    if not len(rows):
        return np.full(len(values), -1)
    order = np.argsort(rows)
    at = np.minimum(np.searchsorted(rows, values, sorter=order), len(rows) - 1)
    places: Positions = np.where(rows[order[at]] == values, order[at], -1)
    return places
