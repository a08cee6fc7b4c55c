"""Retrieval in a transformed gallery, on pairs that nothing was fitted on: what candidates are compared by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Doubles, FloatArray, Positions
from compatstore.artifacts.artifact import Artifact
from compatstore.errors import InvalidInput
from compatstore.evaluation.curve import native_rows
from compatstore.evaluation.distances import measure
from compatstore.evaluation.ranking import average_precision
from compatstore.evaluation.ranks import ranks_behind_ties
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.versions import Metric

AREA = "area"
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of native rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """Scores of the queries in the gallery of one transform.

    Args:
        scores: By figure ("recall_at_10", "cmc_1", "map"), each query's own, (q,) float64; NaN for a query
            without a correct item. Of a backfill also by "area_cmc_1" and so on, and "area", which decides.
        cosine: Mean cosine similarity of transformed to native held-out rows.
    """

    scores: Mapping[str, Doubles]
    cosine: float


@dataclass(frozen=True, kw_only=True, eq=False)
class _Truth:
    """Correct gallery rows of each query, and rows that its ranking leaves out."""

    right: list[Positions]
    left_out: list[Positions]


class RetrievalTest:
    """Held-out target vectors as queries, against the held-out and some fitted rows, transformed, as gallery.

    Correct are the rows of the query's class where there are labels, and for the recall the query's k nearest
    held-out rows in the target's own space. A fitted row is never correct: where it would be, it is left out of that
    query's ranking, because a transform that overfits its training rows would win otherwise. The query's own item is
    left out too. Ties count against a query: a transform that maps all items to one point must not win.

    With a backfill, the gallery is also searched while native vectors take the place of transformed ones, those of the
    largest sigma^2 first, at random where a transform predicts none. The held-out rows and the fitted rows are
    backfilled side by side, as fitted rows have the smaller sigma^2. The area is the mean of a figure over the shares
    from 0 to 1, by the trapezoid rule (FastFill, section 5.1); the mean of the areas of CMC-1 and mAP decides, or
    without labels that of the recall.

    Args:
        fitted: The pairs that candidates are fitted on.
        groups: The pairs held out, by name; each group asks its own queries.
        k: Neighbours of the recall, >= 1.
        queries: Most queries of a group.
        rows: Most held-out rows of a group, and most fitted rows, in the gallery.
        metric: Distance of the target space.
        seed: Of the choice of rows and queries.
        backfill: Whether the areas of a backfill decide.

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
        parts = [_sample(part, rows, random) for part in (*groups.values(), fitted)]
        starts = [0, *accumulate(map(len, parts))]
        self._parts, self._metric, self._k, self._backfill = parts, metric, k, backfill
        self._held_out = starts[-2]
        asked = [np.arange(a, b)[:queries] for a, b in pairwise(starts[:-1])]
        self._queries = np.concatenate(asked)
        self._target = np.concatenate([part.target for part in parts])
        labels = [part.labels for part in parts if part.labels is not None]
        self._labels = np.concatenate(labels) if labels else None
        ends = [0, *accumulate(map(len, asked))]
        self.groups = {name: slice(a, b) for name, (a, b) in zip(groups, pairwise(ends), strict=True)}
        self._truths = self._truth()

    @property
    def decides(self) -> str:
        """The figure that candidates are ordered by: "area" of a backfill; else "map" with labels, or the recall."""
        if self._backfill:
            return AREA
        return "map" if "map" in self._truths else self._recall

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
        moved = [artifact.apply(part.source, _side(artifact, part)) for part in self._parts]
        gallery = np.concatenate([part.vectors for part in moved])
        scores = self._searched(gallery)
        if self._backfill:
            orders = [_by_sigma(part.uncertainty, len(part.vectors)) for part in moved]
            steps = [np.concatenate([native_rows(order, share) for order in orders]) for share in SHARES[1:]]
            filled = [self._searched(np.where(native[:, None], self._target, gallery)) for native in steps]
            scores |= self._areas([scores, *filled])
        held_out = slice(0, self._held_out)
        return Outcome(scores=scores, cosine=_mean_cosine(gallery[held_out], self._target[held_out]))

    def _searched(self, gallery: npt.NDArray[np.float32]) -> dict[str, Doubles]:
        """Search a gallery with every query: figure -> (q,) float64."""
        scores = {name: np.full(len(self._queries), np.nan) for name in self._truths}
        for query, distances in self._rows(gallery):
            for name, ranks in self._ranks(query, distances):
                scores[name][query] = _score(name, ranks, self._k)
        return scores

    def _areas(self, steps: Sequence[Mapping[str, Doubles]]) -> dict[str, Doubles]:
        """The area of each figure over the shares, of each query, and the mean of those that decide."""
        areas: dict[str, Doubles] = {}
        for name in steps[0]:
            area = np.trapezoid([step[name] for step in steps], SHARES, axis=0)
            areas[f"{AREA}_{name}"] = np.asarray(area, np.float64)
        decide = ("cmc_1", "map") if "map" in self._truths else (self._recall,)
        areas[AREA] = np.mean([areas[f"{AREA}_{name}"] for name in decide], axis=0)
        return areas

    @property
    def _recall(self) -> str:
        return f"recall_at_{self._k}"

    def _truth(self) -> dict[str, _Truth]:
        truths = {self._recall: self._nearest()}
        if self._labels is not None:
            truths["cmc_1"] = truths["map"] = self._same_class(self._labels)
        if not any(len(right) for right in truths[list(truths)[-1]].right):
            raise InvalidInput(
                "compare transforms",
                expected="two held-out rows of one class, or two held-out rows without labels",
                found="none",
                fix='Give more pairs, or Auto(by="row").',
            )
        return truths

    def _nearest(self) -> _Truth:
        truth = _Truth(right=[], left_out=[])
        k = min(self._k, self._held_out - 1)
        for _, distances in self._rows(self._target):
            nearest = np.argsort(distances[: self._held_out], kind="stable")[:k]
            reach = distances[nearest[-1]] if k else -np.inf
            truth.right.append(nearest)
            truth.left_out.append(self._held_out + np.flatnonzero(distances[self._held_out :] <= reach))
        return truth

    def _same_class(self, labels: npt.NDArray[np.generic]) -> _Truth:
        same = [np.flatnonzero(labels == labels[query]) for query in self._queries]
        return _Truth(
            right=[
                rows[(rows < self._held_out) & (rows != query)] for rows, query in zip(same, self._queries, strict=True)
            ],
            left_out=[rows[rows >= self._held_out] for rows in same],
        )

    def _rows(self, gallery: npt.NDArray[np.float32]) -> Iterator[tuple[int, Doubles]]:
        """Yield each query's number and its distances to the gallery, (n,), its own item infinitely far."""
        distances = measure(self._target[self._queries], gallery, self._metric)
        for start, block in distances.blocks():
            for query, row in enumerate(block, start):
                row[self._queries[query]] = np.inf
                yield query, row

    def _ranks(self, query: int, distances: Doubles) -> Iterator[tuple[str, Positions]]:
        """Yield, for each figure, the ranks of the correct rows, ascending, from 1; nothing where there is none."""
        ranks: dict[int, Positions] = {}
        for name, truth in self._truths.items():
            right = truth.right[query]
            if not len(right):
                continue
            if id(truth) not in ranks:
                kept = distances.copy()
                kept[truth.left_out[query]] = np.inf
                ranks[id(truth)] = ranks_behind_ties(kept, right)
            yield name, ranks[id(truth)]


def _by_sigma(sigma2: FloatArray | None, rows: int) -> Positions:
    """Rows in the order of their backfill; they come in random order, so that equals do."""
    return np.arange(rows) if sigma2 is None else np.argsort(-sigma2, kind="stable")


def _score(figure: str, ranks: Positions, k: int) -> float:
    if figure == "cmc_1":
        return float(ranks[0] == 1)
    if figure == "map":
        return average_precision(ranks, len(ranks))
    return float(np.mean(ranks <= k))


def _mean_cosine(transformed: npt.NDArray[np.float32], native: npt.NDArray[np.float32]) -> float:
    lengths = np.linalg.norm(transformed, axis=1) * np.linalg.norm(native, axis=1)
    products = np.einsum("nd,nd->n", transformed, native)
    return float(np.mean(products / np.maximum(lengths, np.finfo(np.float32).tiny)))


def _sample(pairs: Pairs, most: int, random: np.random.Generator) -> Pairs:
    """Return rows in random order, so that the first of them are a random sample too."""
    return pairs.subset(random.permutation(len(pairs))[:most])


def _side(artifact: Artifact, pairs: Pairs) -> npt.NDArray[np.float32] | None:
    return None if artifact.manifest.side_source is None else pairs.side
