"""What is correct for queries among all items of a gallery that passes by: by classes, or by judgements."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from compatstore.arrays import BoolArray, Doubles, Positions
from compatstore.digests import seed_of
from compatstore.evaluation.judgements import Judgements

MOST_PROBES = 256


class WholeRelevance(Protocol):
    """Correct items of q queries among n items, without a query's own item."""

    def among(self, chosen: BoolArray) -> Positions:
        """(q,) intp, correct items of each query among chosen ones of the gallery, (n,) bool."""

    def probes(self, seed: int) -> BoolArray:
        """(n,) bool, items whose precision is found."""

    def start(self, places: Positions, there: BoolArray) -> None:
        """Look at a batch: places of b items, ascending and without a gap, and which of them can be found."""

    def of(self, query: int) -> Positions:
        """Which items of the batch are correct for a query and can be found: ascending, counted from its first."""

    def gains(self, query: int, places: Positions) -> Doubles:
        """What correct items of a query are worth, by their places."""

    def all_gains(self, query: int) -> Doubles:
        """The same of all correct items of a query."""


class ByClass:
    """Items of a query's class.

    Args:
        query_classes: (q,) intp.
        classes: (n,) intp, -1 for an item that is correct for nothing.
        itself: (q,) intp, each query's own place; -1 for none.
    """

    def __init__(self, query_classes: Positions, classes: Positions, itself: Positions) -> None:
        self._query_classes, self._classes, self._itself = query_classes, classes, itself
        self._places, self._batch = np.zeros(0, np.intp), np.zeros(0, np.intp)

    def among(self, chosen: BoolArray) -> Positions:
        """See `WholeRelevance`."""
        most = int(self._query_classes.max()) + 1
        sizes = np.bincount(self._classes[chosen & (self._classes >= 0)], minlength=most)
        place = np.maximum(self._itself, 0)
        own = (self._itself >= 0) & chosen[place] & (self._classes[place] == self._query_classes)
        counts: Positions = sizes[self._query_classes] - own
        return counts

    def probes(self, seed: int) -> BoolArray:
        """All of a class, or a random part of a large one."""
        random = np.random.default_rng(seed_of("probes", seed))
        order = random.permutation(len(self._classes))
        order = order[np.argsort(self._classes[order], kind="stable")]
        ranked = self._classes[order]
        starts = np.searchsorted(ranked, ranked)
        probes = np.zeros(len(order), bool)
        probes[order] = (np.arange(len(order)) - starts < MOST_PROBES) & (ranked >= 0)
        return probes

    def start(self, places: Positions, there: BoolArray) -> None:
        """See `WholeRelevance`."""
        self._places, self._batch = places, np.where(there, self._classes[places], -1)

    def of(self, query: int) -> Positions:
        """See `WholeRelevance`."""
        mine = np.flatnonzero(self._batch == self._query_classes[query])
        others: Positions = mine[self._places[mine] != self._itself[query]]
        return others

    def gains(self, query: int, places: Positions) -> Doubles:
        """All are worth the same."""
        return np.ones(len(places))

    def all_gains(self, query: int) -> Doubles:
        """All are worth the same."""
        return np.ones(int(self.among(np.ones(len(self._classes), bool))[query]))


@dataclass(kw_only=True, eq=False)
class ByJudgements:
    """Items that were judged.

    Args:
        judgements: Of q queries and n items.
        items: n.
        itself: (q,) intp, each query's own place; -1 for none.
    """

    judgements: Judgements
    items: int
    itself: Positions
    _first: int = field(default=0, init=False)
    _there: BoolArray = field(default_factory=lambda: np.zeros(0, bool), init=False)

    @cached_property
    def _kept(self) -> Judgements:
        """By query, then by place, without the queries' own items."""
        own = self.judgements.items == self.itself[self.judgements.queries]
        order = np.lexsort((self.judgements.items, self.judgements.queries))
        order = order[~own[order]]
        judged = self.judgements
        return Judgements(queries=judged.queries[order], items=judged.items[order], gains=judged.gains[order])

    @cached_property
    def _starts(self) -> Positions:
        return np.searchsorted(self._kept.queries, np.arange(len(self.itself) + 1))

    def among(self, chosen: BoolArray) -> Positions:
        """See `WholeRelevance`."""
        return np.bincount(self._kept.queries[chosen[self._kept.items]], minlength=len(self.itself))

    def probes(self, seed: int) -> BoolArray:
        """Everything that was judged."""
        probes = np.zeros(self.items, bool)
        probes[self._kept.items] = True
        return probes

    def start(self, places: Positions, there: BoolArray) -> None:
        """See `WholeRelevance`."""
        self._first, self._there = (int(places[0]) if len(places) else 0), there

    def of(self, query: int) -> Positions:
        """See `WholeRelevance`."""
        mine = self._kept.items[self._of(query)]
        inside = slice(*np.searchsorted(mine, [self._first, self._first + len(self._there)]))
        places: Positions = mine[inside] - self._first
        return places[self._there[places]]

    def gains(self, query: int, places: Positions) -> Doubles:
        """See `WholeRelevance`."""
        mine = self._of(query)
        found: Doubles = self._kept.gains[mine][np.searchsorted(self._kept.items[mine], places)]
        return found

    def all_gains(self, query: int) -> Doubles:
        """See `WholeRelevance`."""
        found: Doubles = self._kept.gains[self._of(query)]
        return found

    def _of(self, query: int) -> slice:
        return slice(int(self._starts[query]), int(self._starts[query + 1]))
