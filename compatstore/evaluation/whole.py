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
from compatstore.evaluation.distances import fit_length, measure
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.relevance import Relevance
from compatstore.evaluation.sampled import graded, num_graded
from compatstore.versions import Metric

MOST_PROBES = 256
WAYS = ("s/s", "t/s", "t/h")  # strategies that need no native vector: query / gallery
AS_FUSED = "s/s & t"  # the target's current vectors, by the fusion that is served


BATCH_CELLS = 2**23  # distances held at a time
FARTHEST = np.inf


@dataclass(frozen=True, kw_only=True, eq=False)
class Passing:
    """A batch of a gallery.

    Args:
        places: (b,) intp, ascending and without a gap, each item's place in the gallery: of items at one distance the
            lower place is nearer.
        source: (b, d_s) floats.
        target: (b, d_t) floats, as they are served, or as a hop makes them.
        in_source: (b,) bool, items that a search of the source can find.
        in_target: (b,) bool, items that a search of the target can find.
        native: (b,) bool, items whose vector in the target is native.
        factors: (b,) float64, of the target as of `measure`; None if distances are not shrunk.
    """

    places: Positions
    source: FloatArray
    target: FloatArray
    in_source: BoolArray
    in_target: BoolArray
    native: BoolArray
    factors: Doubles | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class WholeSearch:
    """Queries, and their correct items among all n items of a gallery.

    Args:
        source: (q, d_s) floats, the queries in the source.
        target: (q, d_t) floats, the same in the target.
        metrics: Metrics of the two.
        relevance: The correct items, in the order of their places.
        seed: Seed of the items that represent large classes.
        fusion: The fusion that searches both, if any.
    """

    source: FloatArray
    target: FloatArray
    metrics: tuple[Metric, Metric]
    relevance: Relevance
    seed: int = 0
    fusion: Fusion | None = None

    @property
    def batch_rows(self) -> int:
        """Items that a batch may hold."""
        return max(BATCH_CELLS // max(len(self.relevance.itself), 1), 1)

    def run(self, batches: Callable[[], Iterator[Passing]], ks: Sequence[int]) -> WholeFigures:
        """Search by every strategy.

        Args:
            batches: Gives the whole gallery, batch by batch; called twice, and the same both times.
            ks: The k of CMC@k.

        Raises:
            InvalidInput: The two passes were of different items.
        """
        probes = self._probes()
        names = WAYS if self.fusion is None else (*WAYS, AS_FUSED)
        strategies = {name: _Strategy(self, name, probes) for name in names}
        passed = [self._pass(batches(), strategies, nearer=nearer) for nearer in (False, True)]
        if passed[0] != passed[1]:
            expected, found = f"{passed[0]} items", f"{passed[1]}"
            raise InvalidInput("search a whole gallery", expected=f"{expected} in both passes", found=found)
        correct = self.relevance.num_among(np.ones(len(probes), bool))
        values = {name: strategy.values(ks, correct) for name, strategy in strategies.items()}
        return WholeFigures(values=values, correct=correct)

    def _probes(self) -> BoolArray:
        """(n,) bool, items whose precision is found: all with a judgement, and of a class all or a random part."""
        relevance = self.relevance
        items, probes = len(relevance.order), np.zeros(len(relevance.order), bool)
        if relevance.gains is not None:
            probes[relevance.members] = True
            return probes
        classes = np.empty(items, np.intp)
        classes[relevance.members] = np.repeat(np.arange(len(relevance.starts) - 1), np.diff(relevance.starts))
        order = np.random.default_rng(seed_of("probes", self.seed)).permutation(items)
        order = order[np.argsort(classes[order], kind="stable")]
        probes[order] = np.arange(items) - relevance.starts[classes[order]] < MOST_PROBES
        return probes

    def _pass(self, batches: Iterator[Passing], strategies: Mapping[str, _Strategy], *, nearer: bool) -> int:
        items = 0
        for batch in batches:
            items += len(batch.places)
            for strategy in strategies.values():
                strategy.take(batch, nearer=nearer)
        return items


@dataclass(frozen=True, kw_only=True, eq=False)
class WholeFigures:
    """Results of queries in a whole gallery.

    Args:
        values: Strategy -> (metrics, q) float64: CMC at each k, recall@k, nDCG@k and MRR@k where there is a depth, then
            average precision; NaN for a query without a correct item.
        correct: (q,) intp, correct items of each query.
    """

    values: Mapping[str, Doubles]
    correct: Positions


class _Strategy:
    """One strategy to search: distances of correct items, and how many items are nearer than each."""

    def __init__(self, search: WholeSearch, name: str, probes: BoolArray) -> None:
        self._search, self._name, self._probes = search, name, probes
        queries = len(search.relevance.itself)
        self._found: list[list[tuple[Doubles, Positions]]] = [[] for _ in range(queries)]
        self._first = np.full(queries, FARTHEST)  # the nearest of all correct items
        self._first_place = np.full(queries, np.iinfo(np.intp).max)
        self._marks: list[_Marks] = []

    def take(self, batch: Passing, *, nearer: bool) -> None:
        """Process a batch: find correct items, and in the second pass count items that are nearer than they are."""
        relevance, there = self._search.relevance, self._there(batch)
        span = (int(batch.places[0]), int(batch.places[-1]) + 1) if len(batch.places) else (0, 0)
        if nearer and not self._marks:
            self._marks = [self._marks_of(query) for query in range(len(self._first))]
        for start, block in self._blocks(batch):
            block[:, ~there] = FARTHEST
            for row, near in enumerate(block):
                query = start + row
                near[batch.places == relevance.itself[query]] = FARTHEST
                mine = relevance.of(query, span) - span[0]
                mine = mine[there[mine]]
                if nearer:
                    self._marks[query].count(near, batch.places, mine)
                else:
                    self._note(query, near[mine], batch.places[mine])

    def _there(self, batch: Passing) -> BoolArray:
        """(b,) bool, items that this strategy can find: a fusion finds items with a vector in either version."""
        fusion = self._search.fusion
        if self._name != AS_FUSED or fusion is None:
            return batch.in_target if self._name == "t/h" else batch.in_source
        if fusion.single:
            return batch.in_source if fusion.weight == 0 else batch.in_target
        return batch.in_source | batch.in_target

    def _blocks(self, batch: Passing) -> Iterator[tuple[int, Doubles]]:
        """The index of a block's first query and its distances, (rows, b) float64."""
        search, fusion = self._search, self._search.fusion
        if self._name == "s/s":
            yield from measure(search.source, batch.source, search.metrics[0]).blocks()
        elif self._name == "t/s":  # queries that are cut may have no direction left, and find nothing
            swapped = fit_length(search.target, batch.source.shape[1])
            yield from measure(swapped, batch.source, search.metrics[0], undirected="lose").blocks()
        elif self._name == "t/h" or fusion is None:
            yield from measure(search.target, batch.target, search.metrics[1], factors=batch.factors).blocks()
        else:
            left = measure(search.source, batch.source, search.metrics[0]).blocks()
            shrunk = batch.factors if fusion.shrinkage else None
            right = measure(search.target, batch.target, search.metrics[1], factors=shrunk).blocks()
            for (start, near), (_, far) in zip(left, right, strict=True):
                yield start, fusion.distances(near, far, batch.native, batch.in_source, batch.in_target)

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
        relevance, depth = self._search.relevance, self._search.relevance.depth
        found = np.full((len(ks) + num_graded(depth) + 1, len(correct)), np.nan)
        probed = relevance.num_among(self._probes)
        for query in np.flatnonzero(correct > 0).tolist():
            if not self._marks or not np.isfinite(self._first[query]):
                found[:, query] = 0.0
                continue
            rank, precision = self._marks[query].result()
            found[: len(ks), query] = [rank <= k for k in ks]
            if depth is not None:
                gains = relevance.gains_of(query)
                top = self._marks[query].top(depth, relevance.of(query), gains)
                found[len(ks) : -1, query] = graded(top[None], gains[None], depth)[:, 0]
            # The precision of correct items that this strategy cannot find at all is 0.
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

    def top(self, depth: int, correct: Positions, gains: Doubles) -> Doubles:
        """(depth,) float64, gains of the items on the first ranks, 0 for one that is not correct.

        Args:
            depth: Number of ranks.
            correct: (m,) intp, places of all correct items, ascending.
            gains: (m,) float64, their gains.
        """
        ranks, top = self._nearer[1:], np.zeros(depth)
        first = np.flatnonzero(np.isfinite(self._distances[1:]) & (ranks < depth))
        top[ranks[first]] = gains[np.searchsorted(correct, self._places[1:][first])]
        return top

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
