"""Retrieval in a transformed gallery, on held-out pairs: the test that compares candidates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Doubles, FloatArray, Positions
from compatstore.artifacts.artifact import Artifact
from compatstore.errors import InvalidInput
from compatstore.evaluation.curve import native_rows
from compatstore.evaluation.distances import measure
from compatstore.evaluation.ranking import average_precision, ranks_behind_ties
from compatstore.trainers.pairs.pairs import Pairs, unit
from compatstore.versions import Metric

AREA = "area"
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of native rows


class Outcome(NamedTuple):
    """Scores of the queries in the gallery of one transform.

    Attributes:
        scores: By figure ("recall_at_10", "cmc_1", "map"), each query's own, (q,) float64; NaN for a query
            without a correct item. Of a backfill also by "area_cmc_1" and so on, and "area", which decides.
        score: The deciding figure, averaged over the groups.
        groups: Group of queries -> figure -> mean over its queries.
        cosine: Mean cosine similarity of transformed to native held-out rows.
    """

    scores: Mapping[str, Doubles]
    score: float
    groups: Mapping[str, Mapping[str, float]]
    cosine: float


class _Truth(NamedTuple):
    """Correct gallery rows of a query, and rows that its ranking leaves out."""

    right: Positions
    left_out: Positions

    def ranks(self, distances: Doubles) -> Positions:
        """Ranks of the correct rows, ascending, from 1, by distances to all rows, (n,)."""
        kept = distances.copy()
        kept[self.left_out] = np.inf
        return ranks_behind_ties(kept, self.right)


class RetrievalTest:
    """Held-out target vectors as queries, against the held-out and some fitted rows, transformed, as gallery.

    With labels the rows of the query's class are correct, and for the recall the query's k nearest
    held-out rows in the target's own space. A fitted row is never correct: if it would be, it is left out of that
    query's ranking, because a transform that overfits its training rows would win otherwise. The query's own item is
    left out too. Ties count against a query: a transform that maps all items to one point must not win.

    With a backfill, the gallery is also searched while native vectors take the place of transformed ones, those of the
    largest sigma^2 first, at random if a transform predicts none. The held-out rows and the fitted rows are
    backfilled side by side, as fitted rows have the smaller sigma^2. The area is the mean of a figure over the shares
    from 0 to 1, by the trapezoid rule (FastFill, section 5.1); the mean of the areas of CMC-1 and mAP decides, or
    without labels that of the recall.

    Attributes:
        fitted: The pairs that candidates are fitted on.
        groups: Queries of each group.

    Args:
        fitted: The pairs that candidates are fitted on.
        groups: The pairs held out, by name; each group has its own queries.
        k: Neighbours of the recall, >= 1.
        queries: Most queries of a group.
        rows: Most held-out rows of a group, and most fitted rows, in the gallery.
        metric: Distance of the target space.
        seed: Of the choice of rows and queries.
        backfill: True if the areas of a backfill decide.

    Raises:
        InvalidInput: No query has a correct item.
    """

    def __init__(
        self,
        fitted: Pairs,
        groups: Mapping[str, Pairs],
        *,
        k: int,
        queries: int,
        rows: int,
        metric: Metric,
        seed: int,
        backfill: bool = False,
    ) -> None:
        random = np.random.default_rng(seed)
        everything = (*groups.values(), fitted)
        # In random order, so that the first rows are a random sample too.
        self._parts = [part.subset(random.permutation(len(part))[:rows]) for part in everything]
        starts = [0, *accumulate(map(len, self._parts))]
        self.fitted, self._metric, self._k, self._backfill, self._held_out = fitted, metric, k, backfill, starts[-2]
        chosen = [np.arange(a, b)[:queries] for a, b in pairwise(starts[:-1])]
        self._queries = np.concatenate(chosen)
        self._target = np.concatenate([part.target for part in self._parts])
        labels = [part.labels for part in self._parts if part.labels is not None]
        self._labels = np.concatenate(labels) if labels else None
        ends = [0, *accumulate(map(len, chosen))]
        self.groups = {name: slice(a, b) for name, (a, b) in zip(groups, pairwise(ends), strict=True)}
        self._recall = f"recall_at_{k}"
        self._nearest = [self._neighbours(distances) for _, distances in self._rows(self._target)]
        self._same = None if self._labels is None else [self._of_class(self._labels, row) for row in self._queries]
        if not any(len(truth.right) for truth in self._same or self._nearest):
            expected = "two held-out rows of one class, or two held-out rows without labels"
            fix = 'Give more pairs, or Auto(by="row").'
            raise InvalidInput("compare transforms", expected=expected, found="none", fix=fix)

    @property
    def decides(self) -> str:
        """The figure that candidates are ordered by: "area" of a backfill; else "map" with labels, or the recall."""
        if self._backfill:
            return AREA
        return "map" if self._same else self._recall

    @property
    def clusters(self) -> Positions:
        """(q,) integers from 0, the cluster of each query in the bootstrap: its class, or itself without labels."""
        if self._labels is None:
            return np.arange(len(self._queries))
        return np.unique(self._labels[self._queries], return_inverse=True)[1]

    def run(self, artifact: Artifact) -> Outcome:
        """Transform the gallery and search it with every query.

        Raises:
            InvalidInput: The artifact needs side-information that the pairs lack, or made a vector without direction
                under cosine.
        """
        moved = [artifact.apply(part.source, side_for(artifact, part)) for part in self._parts]
        gallery = np.concatenate([part.vectors for part in moved])
        scores = self._searched(gallery)
        if self._backfill:
            # Rows come in random order, so that rows without a sigma^2 do.
            sigma2 = [np.zeros(len(part.vectors)) if part.uncertainty is None else part.uncertainty for part in moved]
            orders = [np.argsort(-each, kind="stable") for each in sigma2]
            steps = [np.concatenate([native_rows(order, share) for order in orders]) for share in SHARES[1:]]
            filled = [self._searched(np.where(native[:, None], self._target, gallery)) for native in steps]
            for name in tuple(scores):
                area = np.trapezoid([step[name] for step in (scores, *filled)], SHARES, axis=0)
                scores[f"{AREA}_{name}"] = np.asarray(area, np.float64)
            decide = ("cmc_1", "map") if self._same else (self._recall,)
            scores[AREA] = np.mean([scores[f"{AREA}_{name}"] for name in decide], axis=0)
        made, native = gallery[: self._held_out], self._target[: self._held_out]
        cosines = np.einsum("nd,nd->n", unit(made), unit(native), dtype=np.float64)
        groups = {
            group: {
                name: float(np.nanmean(each[rows])) for name, each in scores.items() if not np.isnan(each[rows]).all()
            }
            for group, rows in self.groups.items()
        }
        score = np.mean([means[self.decides] for means in groups.values() if self.decides in means])
        return Outcome(scores, float(score), groups, float(cosines.mean()))

    def _searched(self, gallery: FloatArray) -> dict[str, Doubles]:
        """Search a gallery with every query: figure -> (q,) float64."""
        names = (self._recall, *(("cmc_1", "map") if self._same else ()))
        scores = {name: np.full(len(self._queries), np.nan) for name in names}
        for query, distances in self._rows(gallery):
            if len(ranks := self._nearest[query].ranks(distances)):
                scores[self._recall][query] = np.mean(ranks <= self._k)
            if self._same and len(ranks := self._same[query].ranks(distances)):
                scores["cmc_1"][query], scores["map"][query] = ranks[0] == 1, average_precision(ranks, len(ranks))
        return scores

    def _neighbours(self, distances: Doubles) -> _Truth:
        k = min(self._k, self._held_out - 1)
        nearest = np.argsort(distances[: self._held_out], kind="stable")[:k]
        reach = distances[nearest[-1]] if k else -np.inf
        return _Truth(nearest, self._held_out + np.flatnonzero(distances[self._held_out :] <= reach))

    def _of_class(self, labels: npt.NDArray[np.generic], query: int) -> _Truth:
        same = np.flatnonzero(labels == labels[query])
        return _Truth(same[(same < self._held_out) & (same != query)], same[same >= self._held_out])

    def _rows(self, gallery: FloatArray) -> Iterator[tuple[int, Doubles]]:
        """Yield each query's number and its distances to the gallery, (n,), its own item infinitely far."""
        distances = measure(self._target[self._queries], gallery, self._metric)
        for start, block in distances.blocks():
            for query, row in enumerate(block, start):
                row[self._queries[query]] = np.inf
                yield query, row


def side_for(artifact: Artifact, pairs: Pairs) -> FloatArray | None:
    """The side-information that an artifact reads."""
    return None if artifact.manifest.side_source is None else pairs.side
