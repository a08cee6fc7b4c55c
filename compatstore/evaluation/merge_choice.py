"""A gallery that holds two kinds of vectors at once, and the merge of its two parts, chosen on a sample.

Native items are searched with the target's query, all others in the source's space, and the two lists become one: a
search during a backfill that needs no transform at all (Seo et al., arXiv 2301.03767). See `merging.py` for the merges.

Each merge is compared with the rule's, by distance where the distances compare and else by reciprocal rank, query by
query. Chosen is the one whose gain is surest: its simultaneous interval has the highest lower end, if that is above
zero; else the rule's merge stays. A calibration is fitted without the queries that are searched with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from compatstore.arrays import BoolArray, Doubles, FloatArray, Positions
from compatstore.evaluation.bootstrap import Estimate
from compatstore.evaluation.cross_fitting import Trial, folds_of, of_queries
from compatstore.evaluation.distances import Distances, measure
from compatstore.evaluation.merging import (
    Calibration,
    MergeChoice,
    RankMerge,
    calibrate,
    few_queries,
    merges_of,
    rule_of,
)
from compatstore.evaluation.ranks import nearest_first
from compatstore.evaluation.relevance import Relevance, leave_out
from compatstore.evaluation.sampled import QueryFigures, find_in_blocks

_BLOCK_CELLS = 2**21  # distances of a block, over all merges
_NONE = Estimate(value=0.0, low=0.0, high=0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class MergeTrial(Trial):
    """A sample whose queries try merges; see `Trial`.

    Args:
        part_queries: (q, d_s) float32, the queries that search the source's part: the sample's source queries, or what
            an artifact makes of its target queries.
        comparable: Whether distances of both parts compare as they are.
    """

    part_queries: FloatArray
    comparable: bool

    @property
    def merges(self) -> Sequence[RankMerge]:
        """What is compared, the rule's first."""
        return merges_of(comparable=self.comparable)

    def calibration(self, rows: Positions | None = None) -> Calibration:
        """The calibration by some queries, all by default."""
        sample = self.sample
        every = np.arange(len(sample.source_queries)) if rows is None or not len(rows) else rows
        rows = every[few_queries(len(every), len(sample.source))]
        return calibrate(*self._spaces(rows), of_queries(self.relevance, rows))

    def fit(self, native: BoolArray) -> MergeChoice:
        """Choose a merge for a gallery of which some rows are native.

        Args:
            native: (n,) bool, rows with a native vector.
        """
        queries = len(self.sample.source_queries)
        folds, every = folds_of(queries, self.settings.seed), np.arange(queries)
        others = [np.setdiff1d(every, fold) for fold in folds]
        tried = [self._tried(fold, native, self.calibration(rows)) for fold, rows in zip(folds, others, strict=True)]
        numbers = range(len(folds))
        best = self._surest(folds, tried)
        taken = []
        for own in numbers:
            using = [number for number in numbers if number != own] or list(numbers)
            taken.append(self._surest([folds[n] for n in using], [tried[n] for n in using]))
        status_quo, rule, chosen = (self.joined(folds, [found[place] for found in tried]) for place in (0, 1, 1 + best))
        served = self.joined(folds, [found[1 + place] for found, place in zip(tried, taken, strict=True)])
        return MergeChoice(
            merge=self.merges[best],
            rule=rule_of(comparable=self.comparable),
            native_share=self.sample.share_of(native),
            criterion=self.settings.criterion,
            truth=self.truth,
            num_queries=int(status_quo.counted.sum()),
            gain=(self.over(chosen, rule) if best else None) or _NONE,
            over_status_quo=self.over(served, status_quo) or _NONE,
        )

    def _spaces(self, rows: Positions) -> tuple[Distances, Distances]:
        """Distances of some queries in the source's part and in the target's."""
        sample, settings = self.sample, self.settings
        block = max(_BLOCK_CELLS // (len(sample.source) * (1 + len(self.merges))), 1)
        return (
            measure(self.part_queries[rows], sample.source, settings.source_metric, block=block),
            measure(sample.target_queries[rows], sample.native, settings.target_metric, block=block),
        )

    def _tried(self, rows: Positions, native: BoolArray, calibration: Calibration) -> list[QueryFigures]:
        """What some queries find by the status quo and by each merge."""
        sample, asked, items = self.sample, self.sampling.asked, len(self.sample.source)
        relevance, (source, target) = of_queries(self.relevance, rows), self._spaces(rows)
        before = measure(sample.source_queries[rows], sample.source, self.settings.source_metric, block=source.block)
        merged = mixed_blocks(source, target, native, relevance, self.merges, calibration)
        columns = [np.arange(items) + items * number for number in range(1 + len(self.merges))]
        sampling = replace(self.sampling, asked=None if asked is None else asked[rows])
        blocks = _beside(before, relevance.order, merged)
        return find_in_blocks(blocks, len(rows), relevance, columns, self.settings.ks, sampling)

    def _surest(self, folds: Sequence[Positions], tried: Sequence[Sequence[QueryFigures]]) -> int:
        """Place of the surest merge by the queries of some folds; 0 for the rule's."""
        figures = [self.joined(folds, founds) for founds in zip(*tried, strict=True)][1:]
        counted = figures[0].counted
        if not counted.any():
            return 0
        rows = np.sort(np.concatenate(folds))[counted]
        gains = self.gains(np.array([found.values[:, counted] for found in figures]), figures, rows)
        lows = [gain.low for gain in gains]
        best = int(np.argmax(lows))
        return best + 1 if lows[best] > 0 else 0


def _beside(
    distances: Distances, order: Positions, blocks: Iterator[tuple[int, Doubles]]
) -> Iterator[tuple[int, Doubles]]:
    """Blocks of the same queries side by side, those of `distances` first and in the order that breaks ties."""
    for (start, left), (_, right) in zip(distances.blocks(), blocks, strict=True):
        yield start, np.concatenate([np.take(left, order, axis=1), right], axis=1)


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
