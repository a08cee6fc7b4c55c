"""Learn: settings and candidates of a self-training upgrade, which fits transforms on the items it embeds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
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
from compatstore.trainers.pairs.closed_form import ClosedForm
from compatstore.trainers.pairs.correction import Correction
from compatstore.trainers.pairs.kernel_ridge import KernelRidge
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.ridge import LowRankRidge, Procrustes, Ridge
from compatstore.trainers.pairs.selection import NO_LABEL, CrossFit, fit_labelled
from compatstore.trainers.pairs.shrinking import SHARES, cross_fitted_factors, shrinkage_figure
from compatstore.trainers.pairs.trainer import PairTrainer, describe
from compatstore.trainers.settings import NOT_EMPTY, at_least
from compatstore.trainers.training import one_thread
from compatstore.upgrade.lesson import FEWEST_PAIRS, Lesson, Taught

MOST_SHRINKAGE_PAIRS = 1_000  # pairs that measure the shrinkage of cosines by sigma^2: two seconds
FOLDS = 5  # folds of the cross-validation of candidates
FINER, FITTED = 20, 10_000  # closed forms get up to 20 folds, while folds times pairs is 10,000 at most
FIRST_SHARE, FEWEST_FIRST, MOST_FIRST = 0.02, 100, 2_000

CLOSED_FORMS: tuple[PairTrainer, ...] = (
    *(Ridge(penalties=(penalty,)) for penalty in (1e-3, 1e-2, 1e-1, 1.0, 10.0)),
    LowRankRidge(penalties=(1e-1,), ranks=(32,)),
    LowRankRidge(penalties=(1e-1,), ranks=(128,)),
    Procrustes(),
    *(
        KernelRidge(sharpness=(sharpness,), penalties=(penalty,))
        for sharpness, penalty in ((0.5, 3e-2), (1.0, 3e-2), (2.0, 1e-2))
    ),
)
"""Solved in seconds on a CPU. With few pairs the large penalties win."""


_WIDTH, _SCALE = 512, 8.0  # of the networks, and of the loss through a head: moderate


def networks(*, labelled: bool) -> tuple[PairTrainer, ...]:
    """Small networks, where torch is installed; with labels also ones that are trained through a head."""
    if find_spec("torch") is None:
        return ()
    from compatstore.trainers.pairs.fastfill import FastFill
    from compatstore.trainers.pairs.residual import Residual

    by_distance = Residual(width=_WIDTH)
    if not labelled:
        return (by_distance,)
    through_head = replace(by_distance, loss="l2+disc", scale=_SCALE)
    fastfill = FastFill(
        epochs=by_distance.epochs, mixer_width=_WIDTH, scale=_SCALE, disc_weight=1.0, batch_size=1024
    )  # with nothing left to choose, because each round fits it for each fold
    return (by_distance, through_head, fastfill)


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Learn:
    """Settings of a self-training upgrade.

    Candidates are compared by cross-validation: each is fitted once for each fold on the pairs of the other folds. The
    ones with the least regression error are evaluated by retrieval, and the winner is refitted on all pairs. A fit of
    the cross-validation has fewer pairs than the refit; so closed forms, which take little time, get more folds: 20 of
    up to 500 pairs, and 10 of 1,000.
    Classification-loss candidates are always evaluated, whatever their regression error.

    Args:
        first: Items of the first round, >= 40; by default 2 % of the gallery, 100 at least and 2,000 at the most.
        candidates: Trainers on pairs to choose from; those that cannot run on the pairs are skipped. None takes closed
            forms and, if torch is installed, a residual network; with labels (`Gates.labels`) also such
            a network and FastFill, trained through a head.
        improve: Also learn if an artifact leads to the target. It is the first transform of the upgrade, and a
            linear correction of it is the first candidate of each round.

    Raises:
        InvalidInput: A setting is out of its range.

    Examples:
        >>> cs.Learn(first=500).first_rows(1_000_000)
        500
    """

    growth: ClassVar[float] = 2.0  # the next round begins once this many times as many items are native
    judged: ClassVar[int] = 3  # candidates with the least regression error that are evaluated by retrieval
    # Embedding ends if the upper bound of the gain, in the deciding figure, of the rest of the budget is not above
    # this. A subclass with None embeds the whole budget.
    least_gain: ClassVar[float | None] = 0.0

    first: Annotated[int, at_least(FEWEST_PAIRS)] | None = field(default=None, metadata={"unit": "ITEMS"})
    candidates: Annotated[tuple[PairTrainer, ...], NOT_EMPTY] | None = None
    improve: bool = False

    def first_rows(self, items: int) -> int:
        """Items of the first round, by the number of the gallery's items."""
        if self.first is not None:
            return self.first
        return min(max(round(FIRST_SHARE * items), FEWEST_FIRST), MOST_FIRST)

    @checked
    def teach(self, lesson: Lesson, tried: Callable[[int, int, float], None] | None = None) -> Sequence[Taught]:
        """Fit candidates on the pairs of a round.

        Args:
            lesson: The pairs.
            tried: Called after each fit with the number of finished fits, the number of all as far as known, and the
                approximate seconds that the others take. An exception of it ends the round.

        Returns:
            Transforms, by regression error, the least first; none if no candidate can run on the pairs.
        """
        pairs = Pairs(
            lesson.source,
            lesson.target,
            side=lesson.side,
            labels=lesson.classes,
            source_version=lesson.source_version,
            target_version=lesson.target_version,
        )
        order = np.random.default_rng(seed_of("lesson folds", lesson.seed)).permutation(len(pairs))
        coarse, fine = (_folds(order, parts) for parts in (FOLDS, min(max(FITTED // len(pairs), FOLDS), FINER)))
        # The cheapest candidates come first, so that the time of all is estimated early.
        crossed = [
            CrossFit(trainer, pairs, fine if isinstance(trainer, ClosedForm | Correction) else coarse)
            for trainer in self._candidates(lesson)
        ]
        done = 0

        def count(later: int) -> None:
            """Count a fit, and report it; `later` fits of the nearest candidates follow."""
            nonlocal done
            done += 1
            if tried is not None:
                left = sum(one.left for one in crossed) + later
                fastest = min((one.fastest for one in crossed if one.runs), default=np.inf)
                times = [one.left * one.fastest for one in crossed if one.left and one.fastest < np.inf]
                tried(done, done + left, sum(times) + later * fastest if fastest < np.inf else 0.0)

        while waiting := [one for one in crossed if one.left]:
            for one in waiting:
                with _calm():
                    one.fit_next()
                if not done:
                    one.fastest = np.inf  # the first fit of a process also loads libraries and starts threads
                count(self.judged)
        nearest = sorted((one for one in crossed if one.runs and np.isfinite(one.error)), key=lambda one: one.error)
        # Classification-loss candidates are always evaluated, whatever their regression error.
        by_classes = [one for one in nearest if getattr(one.trainer, "reads_labels", False)]
        kept = [one for one in nearest if one not in by_classes][: self.judged] + by_classes
        # Native shares of the gallery until the next round.
        now = lesson.native_share
        shares = tuple(dict.fromkeys(share for share in (now, self.growth * now) if share < 1)) or SHARES
        fitted = []
        for number, one in enumerate(kept, 1):
            with suppress(CompatStoreError), _calm():
                artifact = fit_labelled(one.trainer, pairs)
                artifact, factors = _with_expected_cosines(artifact, one, pairs, shares)
                name = describe(one.trainer)
                fitted.append(Taught(name=name, artifact=artifact, transformed=one.transformed, factors=factors))
            count(len(kept) - number)
        return fitted

    def _candidates(self, lesson: Lesson) -> Iterator[PairTrainer]:
        """Candidates, closed forms before torch is imported."""
        if lesson.given is not None:
            yield Correction(current=lesson.given)
        yield from self.candidates or CLOSED_FORMS
        if self.candidates is None:
            yield from networks(labelled=lesson.classes is not None)


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
    measured = crossed.sigma2[rows], crossed.transformed[rows], pairs.target[rows]
    figure = shrinkage_figure(*measured, pairs.target_space.metric, classes, shares)
    figures = artifact.manifest.figures
    artifact = artifact.amended(figures={**figures, "h": {**figures.get("h", {}), **figure}})
    shrinkage, apart = Shrinkage.of(artifact.manifest.figures), cross_fitted_factors(*measured, classes, shares)
    if shrinkage is None or apart is None:
        return artifact, None
    factors = shrinkage.at(crossed.sigma2)
    factors[rows] = apart
    return artifact, factors
