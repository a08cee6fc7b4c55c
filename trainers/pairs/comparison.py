"""Comparison of transforms on pairs that none was fitted on: retrieval in a transformed gallery, and its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Doubles, Positions
from compatstore.artifacts.artifact import Artifact
from compatstore.errors import InvalidInput
from compatstore.evaluation import Estimate
from compatstore.evaluation.bootstrap import mean_of_groups, resample_clusters
from compatstore.evaluation.distances import measure
from compatstore.evaluation.ranking import average_precision, ranks_behind_ties
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.versions import Metric


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """Scores of the queries in the gallery of one transform.

    Args:
        scores: By figure ("recall_at_10", "cmc_1", "map"), each query's own, (q,) float64; NaN for a query
            without a correct item.
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

    Args:
        fitted: The pairs that candidates are fitted on.
        groups: The pairs held out, by name; each group asks its own queries.
        k: Neighbours of the recall, >= 1.
        queries: Most queries of a group.
        rows: Most held-out rows of a group, and most fitted rows, in the gallery.
        metric: Distance of the target space.
        seed: Of the choice of rows and queries.

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
    ) -> None:
        random = np.random.default_rng(seed)
        parts = [_sample(part, rows, random) for part in (*groups.values(), fitted)]
        starts = [0, *accumulate(map(len, parts))]
        self._parts, self._metric, self._k = parts, metric, k
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
        """The figure that candidates are ordered by: "map" with labels, else the recall."""
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
        gallery = np.concatenate([artifact.apply(part.source, _side(artifact, part)).vectors for part in self._parts])
        scores = {name: np.full(len(self._queries), np.nan) for name in self._truths}
        for query, distances in self._rows(gallery):
            for name, ranks in self._ranks(query, distances):
                scores[name][query] = _score(name, ranks, self._k)
        held_out = slice(0, self._held_out)
        return Outcome(scores=scores, cosine=_mean_cosine(gallery[held_out], self._target[held_out]))

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


def _score(figure: str, ranks: Positions, k: int) -> float:
    if figure == "cmc_1":
        return float(ranks[0] == 1)
    if figure == "map":
        return average_precision(ranks)
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


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One row of the table.

    Args:
        name: The trainer and the settings that are not its defaults.
        score: What candidates are ordered by: the deciding figure, averaged over the groups; None if skipped.
        groups: Group of queries ("seen", "unseen" classes, or "held_out" rows) -> figure -> mean over its queries.
        cosine: Mean cosine similarity of transformed to native held-out rows.
        seconds: To fit, wall time.
        peak_mib: Growth of the process's memory while fitting, in MiB; None where the system does not tell.
        skipped: Why it could not run, or "".
    """

    name: str
    score: float | None = None
    groups: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    cosine: float | None = None
    seconds: float = 0.0
    peak_mib: float | None = None
    skipped: str = ""

    @property
    def figures(self) -> dict[str, float]:
        """What was measured, each figure averaged over the groups."""
        names = dict.fromkeys(name for group in self.groups.values() for name in group)
        means = {name: float(np.mean([g[name] for g in self.groups.values() if name in g])) for name in names}
        return means | ({} if self.cosine is None else {"cosine_similarity": self.cosine})


@dataclass(frozen=True, kw_only=True)
class Lead:
    """How far the best candidate is ahead of the second.

    Args:
        second: Name of the second.
        difference: Of their scores.
        low: Lower end of its interval, by bootstrap over queries, whole classes at a time where there are labels.
        high: Upper end.
        confidence: Of the interval.
    """

    second: str
    difference: float
    low: float
    high: float
    confidence: float

    @property
    def clear(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.low > 0


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The table of all candidates.

    Args:
        decided_by: The figure that decided: "map", or "recall_at_<k>" without labels.
        candidates: Best first, those skipped last.
        lead: Of the best over the second; None where only one could run.
    """

    decided_by: str
    candidates: tuple[Candidate, ...]
    lead: Lead | None

    @property
    def best(self) -> Candidate:
        """The candidate with the highest score."""
        return self.candidates[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON-able values."""
        return asdict(self)


def group_means(scores: Doubles, groups: Mapping[str, slice]) -> dict[str, float]:
    """Average (q,) scores over the queries of each group that have a correct item; groups without such are missing."""
    parts = {name: scores[rows] for name, rows in groups.items()}
    return {name: float(np.nanmean(part)) for name, part in parts.items() if not np.isnan(part).all()}


def figures_by_group(outcome: Outcome, groups: Mapping[str, slice]) -> dict[str, dict[str, float]]:
    """Return group -> figure -> mean over its queries."""
    table: dict[str, dict[str, float]] = {name: {} for name in groups}
    for figure, scores in outcome.scores.items():
        for group, mean in group_means(scores, groups).items():
            table[group][figure] = mean
    return table


def interval(
    difference: Doubles,
    groups: Mapping[str, slice],
    clusters: Positions,
    *,
    resamples: int,
    confidence: float,
    seed: int,
) -> Estimate:
    """Estimate the mean over groups of a difference's mean over queries, by the bootstrap.

    Args:
        difference: (q,) of the scores of two candidates; NaN for a query that no item is correct for.
        groups: Queries of each group; each is resampled by itself.
        clusters: (q,) integers, queries that are drawn together: those of one class.
        resamples: How often to draw.
        confidence: Of the interval, in (0, 1).
        seed: Of the draws.
    """
    random, parts = np.random.default_rng(seed), []
    for rows in groups.values():
        counted = ~np.isnan(difference[rows])
        if counted.any():
            values, drawn = difference[rows][counted], clusters[rows][counted]
            parts.append(resample_clusters(values, drawn, resamples, random, confidence))
    return mean_of_groups(parts)
