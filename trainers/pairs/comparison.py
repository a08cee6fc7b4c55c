"""The table of a comparison of transforms on pairs that none was fitted on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from compatstore.arrays import Doubles, Positions
from compatstore.evaluation import Estimate
from compatstore.evaluation.bootstrap import mean_of_groups, resample_clusters
from compatstore.trainers.pairs.retrieval import Outcome


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
        decided_by: The figure that decided: "map", or "recall_at_<k>" without labels; or "area", of a backfill.
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
