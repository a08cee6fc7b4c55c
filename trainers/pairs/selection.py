"""Selection of a transform: candidates are fitted on pairs, and compared on pairs that they were not fitted on."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self, TypeVar

import numpy as np

from compatstore.arrays import Doubles, FloatArray, Positions
from compatstore.artifacts.artifact import Artifact
from compatstore.errors import CompatStoreError, InvalidInput
from compatstore.evaluation import Estimate
from compatstore.evaluation.bootstrap import mean_of_groups, resample_clusters
from compatstore.trainers.pairs.closed_form import ClosedForm
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.retrieval import Outcome, RetrievalTest, side_for
from compatstore.trainers.pairs.ridge import LeastSquares
from compatstore.trainers.pairs.trainer import PairTrainer, describe, without_holdout
from compatstore.trainers.training import OnEpoch

NO_LABEL = -1  # class of a pair without a label
_CONFIDENCE, _RESAMPLES = 0.95, 1000


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One row of the table.

    Args:
        name: The trainer and the settings that are not its defaults.
        score: Key that orders candidates: the deciding figure, averaged over the groups; None if skipped.
        groups: Group of queries ("seen", "unseen" classes, or "held_out" rows) -> figure -> mean over its queries.
        cosine: Mean cosine similarity of transformed to native held-out rows.
        seconds: To fit, wall time.
        skipped: Why it could not run, or "".
    """

    name: str
    score: float | None = None
    groups: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    cosine: float | None = None
    seconds: float = 0.0
    skipped: str = ""

    @property
    def figures(self) -> dict[str, float]:
        """Measurements, each figure averaged over the groups."""
        names = dict.fromkeys(name for group in self.groups.values() for name in group)
        means = {name: float(np.mean([g[name] for g in self.groups.values() if name in g])) for name in names}
        return means | ({} if self.cosine is None else {"cosine_similarity": self.cosine})


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The table of all candidates.

    Args:
        decided_by: The figure that decided: "map", or "recall_at_<k>" without labels; or "area", of a backfill.
        candidates: Best first, those skipped last.
        lead: Score of the best less that of the second, with a 95 % interval by bootstrap over queries, whole classes
            at a time if there are labels; None if only one could run.
    """

    decided_by: str
    candidates: tuple[Candidate, ...]
    lead: Estimate | None

    @property
    def best(self) -> Candidate:
        """The candidate with the highest score."""
        return self.candidates[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON-able values."""
        return asdict(self)


class TooDear(Exception):  # noqa: N818  (a signal from a candidate's first epoch to its trial)
    """A candidate takes more processor time than is left."""


class HeldOutTrial(ABC):
    """A candidate that is fitted on pairs, and measured on pairs that it was not fitted on.

    Attributes:
        trainer: The candidate.
        skipped: Why it cannot run on the pairs, or "".
        seconds: Of the fastest fit, wall time; infinite before any.
    """

    def __init__(self, trainer: PairTrainer) -> None:
        self.trainer, self.skipped, self.seconds = trainer, "", np.inf

    @property
    @abstractmethod
    def score(self) -> float:
        """Key that orders candidates: the best has the highest."""

    @abstractmethod
    def _fit(self, progress: OnEpoch | None) -> None:
        """Fit on pairs that are not held out."""

    @abstractmethod
    def _measure(self) -> None:
        """Measure the fit on pairs that are held out."""

    def step(self, progress: OnEpoch | None = None) -> Self:
        """Fit and measure once; a candidate that cannot run is skipped, with the reason."""
        began = time.perf_counter()
        try:
            self._fit(progress)
            self.seconds = min(self.seconds, time.perf_counter() - began)
            self._measure()
        except (CompatStoreError, TooDear) as error:
            self.skipped = str(error)
        return self


class RetrievalTrial(HeldOutTrial):
    """A trial with one part held out, by retrieval on it.

    Attributes:
        name: In the table.
        artifact: Fitted on the pairs that are not held out.
        outcome: Figures of the queries.

    Args:
        trainer: The candidate.
        test: The test, which holds the part out; candidates share it.
        name: By default the trainer and the settings that are not its defaults.
    """

    artifact: Artifact
    outcome: Outcome

    def __init__(self, trainer: PairTrainer, test: RetrievalTest, name: str = "") -> None:
        super().__init__(trainer)
        self.name, self._test = name or describe(trainer), test

    @property
    def score(self) -> float:
        """The deciding figure, averaged over the groups."""
        return self.outcome.score

    @property
    def row(self) -> Candidate:
        """Row of the table."""
        if self.skipped:
            return Candidate(name=self.name, skipped=self.skipped)
        _, score, groups, cosine = self.outcome
        return Candidate(name=self.name, score=score, groups=groups, cosine=cosine, seconds=self.seconds)

    def _fit(self, progress: OnEpoch | None) -> None:
        self.artifact = without_holdout(self.trainer).fit(self._test.fitted, progress)

    def _measure(self) -> None:
        self.outcome = self._test.run(self.artifact)


class CrossFit(HeldOutTrial):
    """A trial with each part held out in turn, by distance: closed forms that can hold out each pair by itself.

    Attributes:
        transformed: (n, target dim) float32, each pair by a fit without it; complete once no step is left.

    Args:
        trainer: The candidate.
        pairs: All pairs.
        folds: The parts that they are cut into, rows of each.
        squares: Of the pairs' moments, which closed forms share.
    """

    def __init__(self, trainer: PairTrainer, pairs: Pairs, folds: Sequence[Positions], squares: LeastSquares) -> None:
        super().__init__(trainer)
        self._pairs, self._folds, self._squares = pairs, list(folds), squares
        self.transformed, self._sigma2 = np.empty_like(pairs.target), np.full(len(pairs), np.nan, np.float32)
        self._made: tuple[Positions, FloatArray, FloatArray | None] | None = None

    @property
    def left(self) -> int:
        """Steps that are left, at the most."""
        return 0 if self.skipped else len(self._folds)

    @property
    def score(self) -> float:
        """Mean squared distance to the natives, negative."""
        apart = self.transformed.astype(np.float64) - self._pairs.target
        return -float(np.einsum("nd,nd->", apart, apart) / len(self._pairs))

    @property
    def sigma2(self) -> FloatArray | None:
        """(n,) float32; None if not all fits predict their errors."""
        return None if np.isnan(self._sigma2).any() else self._sigma2

    def _fit(self, progress: OnEpoch | None) -> None:
        rows, everything = self._folds.pop(0), np.arange(len(self._pairs))
        made = self.trainer.held_out(self._pairs, self._squares) if isinstance(self.trainer, ClosedForm) else None
        if made is None:
            others, mine = self._pairs.subset(np.setdiff1d(everything, rows)), self._pairs.subset(rows)
            artifact = fit_labelled(self.trainer, others, progress)
            moved = artifact.apply(mine.source, side_for(artifact, mine))
            made = moved.vectors, moved.uncertainty
        else:
            self._folds, rows = [], everything
        self._made = (rows, *made)

    def _measure(self) -> None:
        assert self._made is not None
        (rows, self.transformed[rows], sigma2), self._made = self._made, None
        if sigma2 is not None:
            self._sigma2[rows] = sigma2


AnyTrial = TypeVar("AnyTrial", bound=HeldOutTrial)


def ranked(trials: Iterable[AnyTrial]) -> list[AnyTrial]:
    """Trials that could run, the best first."""
    return sorted((one for one in trials if not one.skipped and np.isfinite(one.score)), key=lambda one: -one.score)


def compare(trials: Sequence[RetrievalTrial], test: RetrievalTest, seed: int) -> Comparison:
    """Make the table of trials by one test.

    Args:
        trials: The trials.
        test: The test.
        seed: Of the bootstrap.

    Raises:
        InvalidInput: None could run.
    """
    skipped, ran, lead = [one.row for one in trials if one.skipped], ranked(trials), None
    if not ran:
        reasons = "; ".join(f"{candidate.name}: {candidate.skipped}" for candidate in skipped)
        raise InvalidInput("choose a trainer", expected="a candidate that can run on these pairs", found=reasons)
    if len(ran) > 1:
        first, second = (one.outcome.scores[test.decides] for one in ran[:2])
        lead = interval(first - second, test.groups, test.clusters, seed=seed)
    return Comparison(decided_by=test.decides, candidates=(*(one.row for one in ran), *skipped), lead=lead)


def interval(difference: Doubles, groups: Mapping[str, slice], clusters: Positions, *, seed: int) -> Estimate:
    """Estimate the mean over groups of a difference's mean over queries, by the bootstrap.

    Args:
        difference: (q,) of the scores of two candidates; NaN for a query that no item is correct for.
        groups: Queries of each group; each is resampled by itself.
        clusters: (q,) integers, queries that are drawn together: those of one class.
        seed: Of the draws.
    """
    random, parts = np.random.default_rng(seed), []
    for rows in groups.values():
        counted = ~np.isnan(difference[rows])
        if counted.any():
            values, drawn = difference[rows][counted], clusters[rows][counted]
            parts.append(resample_clusters(values, drawn, _RESAMPLES, random, _CONFIDENCE))
    return mean_of_groups(parts)


def fit_labelled(trainer: PairTrainer, pairs: Pairs, progress: OnEpoch | None = None) -> Artifact:
    """Fit on all pairs; where the trainer reads labels, on those that have one.

    Raises:
        CompatStoreError: The trainer cannot run on these pairs.
    """
    if getattr(trainer, "reads_labels", False) and pairs.labels is not None:
        pairs = pairs.subset(np.flatnonzero(pairs.labels != NO_LABEL))
    return without_holdout(trainer).fit(pairs, progress)
