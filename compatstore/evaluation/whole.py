"""Search a whole gallery that does not fit into memory, in two passes over its batches.

The first pass keeps the distances of the correct items of each query, the second counts the items nearer than each of
them. So every item of the gallery counts, and memory holds one batch and the correct items. Average precision of a
class with more than `MOST_PROBES` items is estimated from a random part of them; the nearest correct item is searched
among all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compatstore.arrays import BoolArray, Doubles, FloatArray, Positions
from compatstore.digests import seed_of
from compatstore.errors import InvalidInput
from compatstore.evaluation.distances import measure
from compatstore.versions import Metric

MOST_PROBES = 256
BATCH_CELLS = 2**23  # distances held at a time
FARTHEST = np.inf


@dataclass(frozen=True, kw_only=True, eq=False)
class Passing:
    """A batch of a gallery.

    Args:
        places: (b,) intp, ascending and without a gap, each item's place in the gallery: of items at one distance the
            lower place is nearer.
        vectors: Strategy -> (b, d) floats.
        there: Strategy -> (b,) bool, items that a search by that strategy can find.
    """

    places: Positions
    vectors: Mapping[str, FloatArray]
    there: Mapping[str, BoolArray]


@dataclass(frozen=True, kw_only=True, eq=False)
class WholeSearch:
    """Queries, and what is correct for them among all n items of a gallery.

    Args:
        queries: Strategy -> (q, d) floats.
        metrics: Strategy -> distance of its space.
        query_classes: (q,) intp.
        classes: (n,) intp by place, -1 for an item that is correct for nothing.
        itself: (q,) intp, each query's own place, which it does not find; -1 for none.
        seed: Of the items that stand for large classes.
    """

    queries: Mapping[str, FloatArray]
    metrics: Mapping[str, Metric]
    query_classes: Positions
    classes: Positions
    itself: Positions
    seed: int = 0

    @property
    def batch_rows(self) -> int:
        """Items that a batch may hold."""
        return max(BATCH_CELLS // max(len(self.query_classes), 1), 1)

    def correct_among(self, chosen: BoolArray) -> Positions:
        """(q,) intp, correct items of each query among chosen ones of the gallery, (n,) bool."""
        sizes = np.bincount(self.classes[chosen & (self.classes >= 0)], minlength=int(self.query_classes.max()) + 1)
        place = np.maximum(self.itself, 0)
        own = (self.itself >= 0) & chosen[place] & (self.classes[place] == self.query_classes)
        counts: Positions = sizes[self.query_classes] - own
        return counts

    def run(self, batches: Callable[[], Iterator[Passing]], ks: Sequence[int]) -> WholeFigures:
        """Search by every strategy.

        Args:
            batches: Gives the whole gallery, batch by batch; called twice, and the same both times.
            ks: The k of CMC@k.

        Raises:
            InvalidInput: The two passes were of different items.
        """
        probes = self._probes()
        strategies = {name: _Strategy(self, name, probes) for name in self.queries}
        passed = [self._pass(batches(), strategies, nearer=nearer) for nearer in (False, True)]
        if passed[0] != passed[1]:
            expected, found = f"{passed[0]} items", f"{passed[1]}"
            raise InvalidInput("search a whole gallery", expected=f"{expected} in both passes", found=found)
        correct = self.correct_among(np.ones(len(self.classes), bool))
        values = {name: strategy.values(ks, correct) for name, strategy in strategies.items()}
        return WholeFigures(values=values, correct=correct)

    def _pass(self, batches: Iterator[Passing], strategies: Mapping[str, _Strategy], *, nearer: bool) -> int:
        items = 0
        for batch in batches:
            items += len(batch.places)
            for strategy in strategies.values():
                strategy.take(batch, nearer=nearer)
        return items

    def _probes(self) -> BoolArray:
        """(n,) bool, items whose precision is found: all of a class, or a random part of a large one."""
        random = np.random.default_rng(seed_of("probes", self.seed))
        order = random.permutation(len(self.classes))
        order = order[np.argsort(self.classes[order], kind="stable")]
        ranked = self.classes[order]
        starts = np.searchsorted(ranked, ranked)
        probes = np.zeros(len(order), bool)
        probes[order] = (np.arange(len(order)) - starts < MOST_PROBES) & (ranked >= 0)
        return probes


@dataclass(frozen=True, kw_only=True, eq=False)
class WholeFigures:
    """What queries find in a whole gallery.

    Args:
        values: Strategy -> (metrics, q) float64: CMC at each k, then average precision; NaN for a query without a
            correct item.
        correct: (q,) intp, correct items of each query.
    """

    values: Mapping[str, Doubles]
    correct: Positions


class _Strategy:
    """One strategy to search: distances of correct items, and how many items are nearer than each."""

    def __init__(self, search: WholeSearch, name: str, probes: BoolArray) -> None:
        self._search, self._name, self._probes = search, name, probes
        queries = len(search.query_classes)
        self._found: list[list[tuple[Doubles, Positions]]] = [[] for _ in range(queries)]
        self._first = np.full(queries, FARTHEST)  # the nearest of all correct items
        self._first_place = np.full(queries, np.iinfo(np.intp).max)
        self._marks: list[_Marks] = []

    def take(self, batch: Passing, *, nearer: bool) -> None:
        """Look at a batch: for correct items, and in the second pass for what is nearer than they are."""
        search = self._search
        distances = measure(search.queries[self._name], batch.vectors[self._name], search.metrics[self._name])
        classes = np.where(batch.there[self._name], search.classes[batch.places], -1)
        if nearer and not self._marks:
            self._marks = [self._marks_of(query) for query in range(len(self._first))]
        for start, block in distances.blocks():
            block[:, ~batch.there[self._name]] = FARTHEST
            for row, near in enumerate(block):
                query = start + row
                near[batch.places == search.itself[query]] = FARTHEST
                mine = np.flatnonzero(classes == search.query_classes[query])
                mine = mine[batch.places[mine] != search.itself[query]]
                if nearer:
                    self._marks[query].count(near, batch.places, mine)
                else:
                    self._note(query, near[mine], batch.places[mine])

    def _note(self, query: int, distances: Doubles, places: Positions) -> None:
        """Remember correct items."""
        if not len(places):
            return
        kept = self._probes[places]
        self._found[query].append((distances[kept].copy(), places[kept]))
        best = np.lexsort((places, distances))[0]
        if (distances[best], places[best]) < (self._first[query], self._first_place[query]):
            self._first[query], self._first_place[query] = distances[best], places[best]

    def _marks_of(self, query: int) -> _Marks:
        parts = self._found[query]
        distances = np.concatenate([[self._first[query]], *(part[0] for part in parts)])
        places = np.concatenate([[self._first_place[query]], *(part[1] for part in parts)]).astype(np.intp)
        return _Marks(distances, places)

    def values(self, ks: Sequence[int], correct: Positions) -> Doubles:
        """(metrics, q) float64."""
        found = np.full((len(ks) + 1, len(correct)), np.nan)
        probed = self._search.correct_among(self._probes)
        for query in np.flatnonzero(correct > 0):
            if not self._marks or not np.isfinite(self._first[query]):
                found[:, query] = 0.0
                continue
            rank, precision = self._marks[query].result()
            found[:-1, query] = [rank <= k for k in ks]
            # Of correct items that this strategy cannot find at all, the precision is 0.
            found[-1, query] = precision.sum() / max(probed[query], 1)
        return found


class _Marks:
    """Correct items of one query, the nearest before all others, and how many items are nearer than each."""

    def __init__(self, distances: Doubles, places: Positions) -> None:
        self._distances, self._places = distances, places
        self._nearer = np.zeros(len(places), np.int64)
        self._correct = np.zeros(len(places), np.int64)

    def count(self, near: Doubles, places: Positions, mine: Positions) -> None:
        """Count the items of a batch: (b,) distances and places, and which of them are correct."""
        self._nearer += self._ahead(near, places)
        self._correct += self._ahead(near[mine], places[mine])

    def result(self) -> tuple[int, Doubles]:
        """Rank of the nearest correct item, and the precision at each of the others, 0 at those that were not found."""
        there = np.isfinite(self._distances[1:])
        precision: Doubles = np.where(there, (self._correct[1:] + 1) / (self._nearer[1:] + 1), 0.0)
        return int(self._nearer[0]) + 1, precision

    def _ahead(self, near: Doubles, places: Positions) -> npt.NDArray[np.int64]:
        if not len(places):
            return np.zeros(len(self._places), np.int64)
        ordered = np.sort(near)
        ahead = np.searchsorted(ordered, self._distances)
        equal = np.searchsorted(ordered, self._distances, side="right") - ahead
        itself = (self._places >= places[0]) & (self._places <= places[-1])
        for mark in np.flatnonzero((equal > itself) & np.isfinite(self._distances)):
            here = near == self._distances[mark]
            ahead[mark] += int((places[here] < self._places[mark]).sum())
        return ahead
