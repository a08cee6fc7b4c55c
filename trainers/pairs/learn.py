"""Learn: settings and candidates of a self-training upgrade, which fits transforms on the items it embeds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Annotated, ClassVar

import numpy as np

from compatstore.arrays import Doubles, Positions
from compatstore.artifacts.artifact import Artifact
from compatstore.artifacts.shrinkage import Shrinkage
from compatstore.boundary import checked, checked_fields
from compatstore.digests import seed_of
from compatstore.errors import CompatStoreError
from compatstore.evaluation import rank_queries
from compatstore.storage.memory import give_back
from compatstore.trainers.pairs.closed_form import ClosedForm, Moments
from compatstore.trainers.pairs.correction import Correction
from compatstore.trainers.pairs.kernel_ridge import KernelRidge
from compatstore.trainers.pairs.pairs import Pairs, unit
from compatstore.trainers.pairs.ridge import LeastSquares, Ridge
from compatstore.trainers.pairs.selection import NO_LABEL, CrossFit, TooDear, fit_labelled, ranked
from compatstore.trainers.pairs.shrinking import SHARES, HeldOutRows, cross_fitted_factors, shrinkage_figure
from compatstore.trainers.pairs.trainer import PairTrainer, describe
from compatstore.trainers.settings import NOT_EMPTY, above, at_least
from compatstore.trainers.training import EpochProgress, OnEpoch, one_thread
from compatstore.upgrade.training_pairs import FEWEST_PAIRS, FittedTransform, TrainingPairs

MOST_SHRINKAGE_PAIRS = 1_000  # pairs that measure the shrinkage of cosines by sigma^2: two seconds
FOLDS = 5  # folds of the cross-validation of candidates
FINER, FITTED = 20, 10_000  # closed forms get up to 20 folds, while folds times pairs is 10,000 at most
FIRST_SHARE, FEWEST_FIRST, MOST_FIRST = 0.02, 100, 2_000

CLOSED_FORMS: tuple[PairTrainer, ...] = (
    *(Ridge(penalties=(penalty,)) for penalty in (1e-3, 1e-2, 1e-1, 1.0, 10.0)),
    *(
        KernelRidge(sharpness=(sharpness,), penalties=(penalty,))
        for sharpness, penalty in ((0.5, 3e-2), (1.0, 3e-2), (2.0, 1e-2))
    ),
)
"""Each predicts a pair by its solution on all others, from one decomposition. With few pairs the large penalties win.

On five sets of images and texts, of 120 to 2,500 pairs, one of these was always nearer to the natives than a rotation,
a map of low rank, the residual network or FastFill.
"""

# Pairs from which the network by distance is tried: on the same sets it was level with the best closed form at 8,000.
# That through a head was ahead in mAP from 100 to 1,000 pairs, by the set.
NETWORK_PAIRS = 5_000
_WIDTH, _SCALE = 512, 8.0  # of the networks, and of the loss through a head: moderate
_LOADING = 5.0  # processor seconds that torch takes to load, about, where it is not


def networks(pairs: int, *, labelled: bool) -> tuple[PairTrainer, ...]:
    """Networks that can be ahead of closed forms, where torch is installed.

    Args:
        pairs: Number of pairs.
        labelled: True if the pairs have labels, for a network that is trained through a head.
    """
    if not (labelled or pairs >= NETWORK_PAIRS) or find_spec("torch") is None:
        return ()
    from compatstore.trainers.pairs.residual import Residual

    by_distance = Residual(width=_WIDTH)
    through_head = (replace(by_distance, loss="l2+disc", scale=_SCALE),) if labelled else ()
    return (*through_head, *((by_distance,) if pairs >= NETWORK_PAIRS else ()))


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Learn:
    """Settings of a self-training upgrade.

    Candidates are compared by cross-validation. Ridge and kernel ridge regression predict each pair by their solution
    on all others; another candidate is fitted once for each fold on the pairs of the other folds, other closed forms
    with more folds: 20 of up to 500 pairs, and 10 of 1,000. The three with the least regression error are evaluated by
    retrieval, without ground truth by agreement with native vectors, and the winner is refitted on all pairs.
    Classification-loss candidates are always evaluated, whatever their regression error.

    Args:
        first: Items of the first round, >= 40; by default 2 % of the gallery, 100 at least and 2,000 at the most.
        candidates: Trainers on pairs to choose from; those that cannot run on the pairs are skipped. None takes closed
            forms and, if torch is installed and pairs are many, a residual network; with labels (`Gates.labels`) also
            such a network that is trained through a head.
        improve: Also learn if an artifact leads to the target. It is the first transform of the upgrade, and a
            linear correction of it is the first candidate of each round.
        time_share: Processor time of all rounds at most, as a share of the time that embedding every item would take,
            which the first items show. Networks are left out beyond it; closed forms are fitted in any case. None sets
            no limit.

    Raises:
        InvalidInput: A setting is out of its range.

    Examples:
        >>> cs.Learn(first=500).first_rows(1_000_000)
        500
    """

    growth: ClassVar[float] = 2.0  # the next round begins once this many times as many items are native
    judged: ClassVar[int] = 3  # candidates with the least regression error that ground truth or agreement compares
    # Embedding ends if the upper bound of the gain, in the deciding figure, of the rest of the budget is not above
    # this. A subclass with None embeds the whole budget.
    least_gain: ClassVar[float | None] = 0.0

    first: Annotated[int, at_least(FEWEST_PAIRS)] | None = field(default=None, metadata={"unit": "ITEMS"})
    candidates: Annotated[tuple[PairTrainer, ...], NOT_EMPTY] | None = None
    improve: bool = False
    time_share: Annotated[float, above(0)] | None = 0.1

    def first_rows(self, items: int) -> int:
        """Items of the first round, by the number of the gallery's items."""
        if self.first is not None:
            return self.first
        return min(max(round(FIRST_SHARE * items), FEWEST_FIRST), MOST_FIRST)

    @checked
    def train(
        self, training: TrainingPairs, tried: Callable[[int, int, float], None] | None = None
    ) -> Sequence[FittedTransform]:
        """Fit candidates on the pairs of a round.

        Args:
            training: The pairs.
            tried: Called after each fit with the number of finished fits, the number of all as far as known, and the
                approximate seconds that the others take. An exception of it ends the round.

        Returns:
            Transforms, by regression error, the least first; none if no candidate can run on the pairs.
        """
        pairs = Pairs(
            training.source,
            training.target,
            side=training.side,
            labels=training.classes,
            source_version=training.source_version,
            target_version=training.target_version,
        )
        crossed = _CrossValidation(pairs, training.seed, self.judged, tried)
        given = () if training.given is None else (Correction(current=training.given),)
        crossed.run((*given, *(self.candidates or CLOSED_FORMS)))
        if self.candidates is None:
            for network in networks(len(pairs), labelled=training.classes is not None):
                crossed.screen(network, training.allowance)
        # Native shares of the gallery until the next round.
        now = training.native_share
        shares = tuple(dict.fromkeys(share for share in (now, self.growth * now) if share < 1)) or SHARES
        kept, fitted = crossed.kept, []
        for number, one in enumerate(kept, 1):
            with suppress(CompatStoreError), _calm():
                artifact = fit_labelled(one.trainer, pairs)
                artifact, factors = _with_expected_cosines(artifact, one, pairs, shares)
                name = describe(one.trainer)
                fitted.append(
                    FittedTransform(name=name, artifact=artifact, transformed=one.transformed, factors=factors)
                )
            crossed.count(len(kept) - number)
        return fitted


class _CrossValidation:
    """Candidates of a round, fitted without the pairs that they transform.

    Args:
        pairs: The pairs.
        seed: Of the folds.
        judged: Candidates with the least regression error that are kept.
        tried: As of `Learn.train`.
    """

    def __init__(self, pairs: Pairs, seed: int, judged: int, tried: Callable[[int, int, float], None] | None) -> None:
        order = np.random.default_rng(seed_of("lesson folds", seed)).permutation(len(pairs))
        self._coarse, self._fine = (
            _folds(order, parts) for parts in (FOLDS, min(max(FITTED // len(pairs), FOLDS), FINER))
        )
        self._pairs, self._judged, self._tried, self._squares = pairs, judged, tried, LeastSquares(Moments.of(pairs))
        self._began, self._crossed, self._done = time.process_time(), list[CrossFit](), 0

    def run(self, trainers: Sequence[PairTrainer]) -> None:
        """Fit candidates on all folds, in turns, so that the time of all is estimated early."""
        for trainer in trainers:
            folds = self._fine if isinstance(trainer, ClosedForm | Correction) else self._coarse
            self._crossed.append(CrossFit(trainer, self._pairs, folds, self._squares))
        while waiting := [one for one in self._crossed if one.left]:
            for one in waiting:
                self._step(one)
                self._forget()

    def screen(self, trainer: PairTrainer, allowance: float) -> None:
        """Fit a network on one fold, and on the others unless it is significantly behind the closed forms there.

        Args:
            trainer: The network.
            allowance: Processor seconds that the round may take.
        """
        left = allowance - (time.process_time() - self._began) - (0.0 if "torch" in sys.modules else _LOADING)
        nearest = self.kept
        if left <= 0 or not nearest:
            return

        def within(at: EpochProgress) -> None:
            if at.seconds / at.epoch * at.epochs * (FOLDS + 1) > left:
                raise TooDear(f"more than the {left:.0f} seconds that are left")

        one, rows = CrossFit(trainer, self._pairs, self._coarse, self._squares), self._coarse[0]
        self._step(one, within)
        if one.skipped:
            return
        tried, *others = (self._quality(one, other, rows) for other in (one, *nearest))
        gains = tried - max(others, key=np.mean)
        if gains.mean() > -2 * gains.std() / len(gains) ** 0.5:
            self._crossed.append(one)
            while one.left:
                self._step(one)

    def _forget(self) -> None:
        """Forget candidates that are not kept: each holds as many vectors as there are pairs."""
        kept = self.kept
        self._crossed = [one for one in self._crossed if one.left or one in kept]
        give_back()

    @property
    def kept(self) -> list[CrossFit]:
        """The nearest candidates, and classification-loss ones whatever their regression error."""
        nearest = ranked(one for one in self._crossed if not one.left)
        by_classes = [one for one in nearest if _reads_labels(one)]
        return [one for one in nearest if one not in by_classes][: self._judged] + by_classes

    def count(self, later: int) -> None:
        """Count a fit, and report it; `later` fits of kept candidates follow."""
        self._done += 1
        if self._tried is not None:
            left = sum(one.left for one in self._crossed) + later
            fastest = min((one.seconds for one in self._crossed if not one.skipped), default=np.inf)
            times = [one.left * one.seconds for one in self._crossed if one.left and one.seconds < np.inf]
            self._tried(self._done, self._done + left, sum(times) + later * fastest if fastest < np.inf else 0.0)

    def _step(self, one: CrossFit, progress: OnEpoch | None = None) -> None:
        with _calm():
            one.step(progress)
        if not self._done:
            one.seconds = np.inf  # the first fit of a process also loads libraries and starts threads
        self.count(self._judged)

    def _quality(self, screened: CrossFit, one: CrossFit, rows: Positions) -> Doubles:
        """Of each of some pairs: average precision if the screened candidate reads labels, else less squared errors."""
        native, made = self._pairs.target[rows], one.transformed[rows]
        known = np.zeros(len(rows), bool) if self._pairs.labels is None else self._pairs.labels[rows] != NO_LABEL
        if self._pairs.labels is None or not known.any() or not _reads_labels(screened):
            errors: Doubles = np.square(made - native, dtype=np.float64).sum(axis=1)
            return -errors
        labels, ids = self._pairs.labels[rows][known], np.arange(known.sum())
        ranked = rank_queries(unit(native[known]), unit(made[known]), labels, labels, ids, ids, metric="dot")
        precision: Doubles = np.nan_to_num(ranked.average_precision)
        return precision


def _reads_labels(one: CrossFit) -> bool:
    return bool(getattr(one.trainer, "reads_labels", False))


def _folds(order: Positions, parts: int) -> list[Positions]:
    """Parts of a random order, one of each row, each in ascending order."""
    return [np.sort(order[start::parts]) for start in range(min(parts, len(order)))]


def _calm() -> AbstractContextManager[None]:
    """One thread for torch, where it is loaded."""
    return one_thread() if "torch" in sys.modules else nullcontext()


def _with_expected_cosines(
    artifact: Artifact, crossed: CrossFit, pairs: Pairs, shares: Sequence[float]
) -> tuple[Artifact, Doubles | None]:
    """Add the shrinkage of cosines by sigma^2, if the artifact predicts it; return also the factors of all pairs.

    It is measured on pairs that the transform was not fitted on, and no pair has a part in its own factor.
    """
    if crossed.sigma2 is None:
        return artifact, None
    labels, rows = pairs.labels, np.arange(len(pairs))
    if labels is not None:
        labelled = np.flatnonzero(labels != NO_LABEL)
        labels, rows = (labels, labelled) if len(labelled) >= FEWEST_PAIRS else (None, rows)
    rows = rows[:MOST_SHRINKAGE_PAIRS]
    classes = None if labels is None else labels[rows]
    measured = HeldOutRows(crossed.sigma2[rows], crossed.transformed[rows], pairs.target[rows], classes, shares)
    figure = shrinkage_figure(measured, pairs.target_space.metric)
    figures = artifact.manifest.figures
    artifact = artifact.amended(figures={**figures, "h": {**figures.get("h", {}), **figure}})
    shrinkage, apart = Shrinkage.of(artifact.manifest.figures), cross_fitted_factors(measured)
    if shrinkage is None or apart is None:
        return artifact, None
    factors = shrinkage.at(crossed.sigma2)
    factors[rows] = apart
    return artifact, factors
