"""Selection of a transform: candidates are fitted on pairs, and compared on pairs that they were not fitted on."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from compatstore.arrays import Doubles, FloatArray, Positions
from compatstore.artifacts.artifact import Artifact
from compatstore.errors import CompatStoreError, InvalidInput
from compatstore.evaluation import Estimate
from compatstore.evaluation.bootstrap import mean_of_groups, resample_clusters
from compatstore.trainers.pairs.closed_form import ClosedForm
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.retrieval import RetrievalTest, side_for
from compatstore.trainers.pairs.ridge import LeastSquares
from compatstore.trainers.pairs.trainer import PairTrainer, without_holdout
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


class Tried(NamedTuple):
    """A trainer that ran: its row of the table, the deciding figure of each query, (q,) float64, and its artifact.

    Attributes:
        trainer: The trainer.
        candidate: Its row.
        scores: The figures.
        artifact: Fitted on the pairs that are not held out.
    """

    trainer: PairTrainer
    candidate: Candidate
    scores: Doubles
    artifact: Artifact


class Trials:
    """Trainers that are fitted on the same pairs and compared by one test of retrieval.

    Args:
        fitted: The pairs that each is fitted on.
        test: The test, on other pairs.
        seed: Of the bootstrap.
    """

    def __init__(self, fitted: Pairs, test: RetrievalTest, seed: int) -> None:
        self._fitted, self._test, self._seed = fitted, test, seed
        self._tried: list[Tried] = []
        self._skipped: list[Candidate] = []

    def attempt(self, name: str, trainer: PairTrainer, progress: OnEpoch | None = None) -> None:
        """Fit and test a trainer; one that cannot run is skipped, with the reason."""
        started = time.perf_counter()
        try:
            artifact = without_holdout(trainer).fit(self._fitted, progress)
            seconds = time.perf_counter() - started
            outcome = self._test.run(artifact)
        except CompatStoreError as error:
            self._skipped.append(Candidate(name=name, skipped=str(error)))
            return
        groups = {
            group: {
                figure: float(np.nanmean(scores[rows]))
                for figure, scores in outcome.scores.items()
                if not np.isnan(scores[rows]).all()
            }
            for group, rows in self._test.groups.items()
        }
        decides = [means[self._test.decides] for means in groups.values() if self._test.decides in means]
        candidate = Candidate(
            name=name, score=float(np.mean(decides)), groups=groups, cosine=outcome.cosine, seconds=seconds
        )
        self._tried.append(Tried(trainer, candidate, outcome.scores[self._test.decides], artifact))

    def leave_out(self, name: str, reason: str) -> None:
        """List a trainer that is not tried."""
        self._skipped.append(Candidate(name=name, skipped=reason))

    @property
    def best(self) -> Tried:
        """The trial with the highest score.

        Raises:
            InvalidInput: None could run.
        """
        return self._ranked()[0]

    @property
    def comparison(self) -> Comparison:
        """The table; errors as of `best`."""
        ran = self._ranked()
        lead = None
        if len(ran) > 1:
            lead = interval(ran[0].scores - ran[1].scores, self._test.groups, self._test.clusters, seed=self._seed)
        table = (*(one.candidate for one in ran), *self._skipped)
        return Comparison(decided_by=self._test.decides, candidates=table, lead=lead)

    def _ranked(self) -> list[Tried]:
        if not self._tried:
            reasons = "; ".join(f"{candidate.name}: {candidate.skipped}" for candidate in self._skipped)
            raise InvalidInput("choose a trainer", expected="a candidate that can run on these pairs", found=reasons)
        return sorted(self._tried, key=lambda one: -(one.candidate.score or 0.0))


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


class TooDear(Exception):  # noqa: N818  (a signal from a candidate's first epoch to its cross-validation)
    """A candidate takes more processor time than is left."""


class CrossFit:
    """Each pair transformed by a fit on others: on all others by a closed form that can, else on the other folds.

    Attributes:
        trainer: The candidate.
        transformed: (n, target dim) float32, complete once no step is left.
        runs: False once the trainer could not run on the pairs.
        fastest: Seconds of the fastest step; infinite before any.

    Args:
        trainer: The candidate.
        pairs: All pairs.
        folds: The parts that they are cut into, rows of each.
        squares: Of the pairs' moments, which closed forms share.
    """

    def __init__(self, trainer: PairTrainer, pairs: Pairs, folds: Sequence[Positions], squares: LeastSquares) -> None:
        self.trainer, self._pairs, self._folds, self._squares = trainer, pairs, list(folds), squares
        self.runs, self.fastest = True, np.inf
        self.transformed, self._sigma2 = np.empty_like(pairs.target), np.full(len(pairs), np.nan, np.float32)

    @property
    def left(self) -> int:
        """Steps that are left, at the most."""
        return len(self._folds) if self.runs else 0

    def step(self, progress: OnEpoch | None = None) -> Positions:
        """Transform all pairs at once if the closed form can, else those of the next fold; return their rows."""
        began, rows = time.perf_counter(), self._folds.pop(0)
        try:
            made = self.trainer.held_out(self._pairs, self._squares) if isinstance(self.trainer, ClosedForm) else None
            if made is None:
                made = self._of_fold(rows, progress)
            else:
                self._folds, rows = [], np.arange(len(self._pairs))
        except (CompatStoreError, TooDear):
            self.runs = False
            return rows
        self.transformed[rows] = made[0]
        if made[1] is not None:
            self._sigma2[rows] = made[1]
        self.fastest = min(self.fastest, time.perf_counter() - began)
        return rows

    def _of_fold(self, rows: Positions, progress: OnEpoch | None) -> tuple[FloatArray, FloatArray | None]:
        others = self._pairs.subset(np.setdiff1d(np.arange(len(self._pairs)), rows))
        artifact, mine = fit_labelled(self.trainer, others, progress), self._pairs.subset(rows)
        made = artifact.apply(mine.source, side_for(artifact, mine))
        return made.vectors, made.uncertainty

    @property
    def sigma2(self) -> FloatArray | None:
        """(n,) float32; None if not all fits predict their errors."""
        return None if np.isnan(self._sigma2).any() else self._sigma2

    @property
    def error(self) -> float:
        """Mean squared distance to the natives."""
        apart = self.transformed.astype(np.float64) - self._pairs.target
        return float(np.einsum("nd,nd->", apart, apart) / len(self._pairs))


def fit_labelled(trainer: PairTrainer, pairs: Pairs, progress: OnEpoch | None = None) -> Artifact:
    """Fit on all pairs; where the trainer reads labels, on those that have one.

    Raises:
        CompatStoreError: The trainer cannot run on these pairs.
    """
    if getattr(trainer, "reads_labels", False) and pairs.labels is not None:
        pairs = pairs.subset(np.flatnonzero(pairs.labels != NO_LABEL))
    return without_holdout(trainer).fit(pairs, progress)
