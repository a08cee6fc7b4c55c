"""Learn: how an upgrade that has no artifact teaches itself from what it embeds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from compatstore.arrays import Doubles, FloatArray, Positions
from compatstore.artifacts.artifact import Artifact
from compatstore.artifacts.shrinkage import Shrinkage
from compatstore.boundary import checked, checked_fields
from compatstore.digests import seed_of
from compatstore.errors import CompatStoreError
from compatstore.trainers.pairs.closed_form import ClosedForm
from compatstore.trainers.pairs.kernel_ridge import KernelRidge
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.ridge import LowRankRidge, Procrustes, Ridge
from compatstore.trainers.pairs.shrinking import SHARES, cross_fitted_factors, shrinkage_figure
from compatstore.trainers.pairs.trainer import PairTrainer, describe, without_holdout
from compatstore.trainers.settings import NOT_EMPTY, at_least, require_settings
from compatstore.trainers.training import one_thread
from compatstore.upgrade.lesson import FEWEST_PAIRS, Lesson, Taught

NO_LABEL = -1  # class of a pair without a label
MOST_DOUBTED = 1_000  # pairs that measure what a sigma^2 lets expect of cosines: two seconds
FINER, FEW = 20, 2_000  # folds in which closed forms are judged, and up to how many pairs
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
    )  # with nothing left to choose: each lesson fits it for each fold
    return (by_distance, through_head, fastfill)


class _Fitted(NamedTuple):
    trainer: PairTrainer
    transformed: FloatArray
    sigma2: FloatArray | None
    error: float

    @property
    def by_classes(self) -> bool:
        """Whether it was trained to keep items in their class, so that its distances to natives say little."""
        return bool(getattr(self.trainer, "reads_labels", False))


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Learn:
    """How an upgrade teaches itself.

    Each candidate is fitted once for each fold on the pairs of the other folds. The ones that come nearest to the
    natives are judged by what would be served, and the winner is fitted again on all pairs. What is judged has learned
    from fewer pairs than what is served; so closed forms, which take little time, are judged in 20 folds or more, of
    up to 2,000 pairs.
    Candidates that are trained to keep items in their class are judged as well, however near they come.

    Args:
        first: Items of the first wave, >= 40; by default 2 % of the gallery, 100 at least and 2,000 at the most.
        candidates: Trainers on pairs to choose from; those that cannot run on the pairs are skipped. None takes closed
            forms and, where torch is installed, a residual network; where labels are named (`Gates.labels`) also such
            a network and FastFill, trained through a head.

    Raises:
        InvalidInput: A setting is out of its range.

    Examples:
        >>> cs.Learn(first=500).first_rows(1_000_000)
        500
    """

    growth: ClassVar[float] = 2.0  # the next lesson begins where this many times as many items are native
    folds: ClassVar[int] = 5  # parts that the pairs are cut into to compare candidates
    judged: ClassVar[int] = 3  # candidates that are judged by retrieval for being near to the natives
    # Embedding ends where all that the budget still allows is sure to gain no more than this in the figure that
    # decides. A subclass with None embeds the whole budget.
    least_gain: ClassVar[float | None] = 0.0

    first: Annotated[int, at_least(FEWEST_PAIRS)] | None = field(default=None, metadata={"unit": "ITEMS"})
    candidates: Annotated[tuple[PairTrainer, ...], NOT_EMPTY] | None = None

    def __post_init__(self) -> None:
        require_settings(self)

    def first_rows(self, items: int) -> int:
        """Items of the first wave, by the number of the gallery's items."""
        if self.first is not None:
            return self.first
        return min(max(round(FIRST_SHARE * items), FEWEST_FIRST), MOST_FIRST)

    @checked
    def teach(self, lesson: Lesson, tried: Callable[[int, int, float], None] | None = None) -> Sequence[Taught]:
        """Learn from pairs.

        Args:
            lesson: The pairs.
            tried: Called after each fit with the fits that are done, their number as far as known, and the seconds that
                the others take, about. What it raises ends the lesson.

        Returns:
            Transforms, those nearest to the natives first; none where no candidate can run on the pairs.
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
        finest = max(self.folds, FINER) if len(pairs) <= FEW else self.folds
        folds, finer = _folds(order, self.folds), _folds(order, finest)
        again = len(finer) if len(finer) > len(folds) else 0  # more fits of each closed form that is judged
        labelled = lesson.classes is not None
        fits = _Fits(tried, len(folds), self._count(labelled=labelled), self.judged * (1 + again))
        # The first fold of each candidate tells how long all of them take: the cheapest come first.
        crossed = []
        for trainer in self._candidates(labelled=labelled):
            crossed.append(_CrossFit(trainer, pairs))
            fits.fit_without(crossed[-1], folds[0])
        for fold in folds[1:]:
            for each in crossed:
                fits.fit_without(each, fold)
        fitted = [one for one in (each.result for each in crossed) if one is not None]
        nearest = sorted(fitted, key=lambda one: one.error)
        kept = [one for one in nearest if not one.by_classes][: self.judged] + [
            one for one in nearest if one.by_classes
        ]
        fits.left = sum(1 + again * isinstance(one.trainer, ClosedForm) for one in kept)
        # Those that the gallery has until the next lesson.
        now = lesson.native_share
        shares = tuple(dict.fromkeys(share for share in (now, self.growth * now) if share < 1)) or SHARES
        taught = []
        for one in kept:
            with _calm():
                artifact = _fitted(one.trainer, pairs)
            fits.add()
            judged: _Fitted | None = one
            if again and isinstance(one.trainer, ClosedForm):
                finely = _CrossFit(one.trainer, pairs)
                for fold in finer:
                    fits.fit_without(finely, fold)
                judged = finely.result
            if artifact is not None and judged is not None:
                with _calm():
                    artifact, factors = _doubted(artifact, judged, pairs, shares)
                name = describe(one.trainer)
                taught.append(Taught(name=name, artifact=artifact, transformed=judged.transformed, factors=factors))
        return taught

    def _candidates(self, *, labelled: bool) -> Iterator[PairTrainer]:
        """Candidates, closed forms before torch is imported."""
        yield from self.candidates or CLOSED_FORMS
        if self.candidates is None:
            yield from networks(labelled=labelled)

    def _count(self, *, labelled: bool) -> int:
        if self.candidates is not None:
            return len(self.candidates)
        return len(CLOSED_FORMS) + (0 if find_spec("torch") is None else 3 if labelled else 1)


def _folds(order: Positions, parts: int) -> list[Positions]:
    """Parts of a random order, one of each row, each in ascending order."""
    return [np.sort(order[start::parts]) for start in range(min(parts, len(order)))]


def _calm() -> AbstractContextManager[None]:
    """One thread for torch, where it is loaded."""
    return one_thread() if "torch" in sys.modules else nullcontext()


class _CrossFit:
    """Each source by a transform of the other folds' pairs, fold by fold.

    Attributes:
        trainer: The candidate.
        fits: Folds that were fitted.
        seconds: Time of the fastest fit; infinite before any.
        runs: False once the trainer could not run on the pairs.
    """

    def __init__(self, trainer: PairTrainer, pairs: Pairs) -> None:
        self.trainer, self._pairs, self.fits, self.seconds, self.runs = trainer, pairs, 0, np.inf, True
        self._made, self._sigma2 = np.empty_like(pairs.target), np.empty(len(pairs), np.float32)
        self._predicts = True  # its own errors

    def fit_without(self, fold: Positions) -> None:
        """Fit on the other folds, and apply to this one."""
        began = time.perf_counter()
        rest = np.setdiff1d(np.arange(len(self._pairs)), fold)
        artifact = _fitted(self.trainer, self._pairs.subset(rest)) if self.runs else None
        self.runs = artifact is not None
        if artifact is not None:
            asked = self._pairs.subset(fold)
            found = artifact.apply(asked.source, asked.side)
            self._made[fold] = found.vectors
            self._predicts = self._predicts and found.uncertainty is not None
            if found.uncertainty is not None:
                self._sigma2[fold] = found.uncertainty
        self.fits, self.seconds = self.fits + 1, min(self.seconds, time.perf_counter() - began)

    @property
    def result(self) -> _Fitted | None:
        """What all folds came to; None where the trainer cannot run on the pairs."""
        if not self.runs:
            return None
        apart = self._made.astype(np.float64) - self._pairs.target
        error = float(np.einsum("nd,nd->", apart, apart) / len(self._pairs))
        sigma2 = self._sigma2 if self._predicts else None
        return _Fitted(self.trainer, self._made, sigma2, error) if np.isfinite(error) else None


class _Fits:
    """Fits of a lesson: counted, timed and reported.

    Args:
        report: Takes the fits that are done, their number and the seconds that the others take; or None.
        folds: Fits of each candidate.
        candidates: Their number.
        later: Fits of those that are judged, at the most.

    Attributes:
        left: Fits to come.
    """

    def __init__(
        self, report: Callable[[int, int, float], None] | None, folds: int, candidates: int, later: int
    ) -> None:
        self._report, self._folds, self._later = report, folds, later
        self._done, self.left = 0, folds * candidates + later
        self._crossed = dict[int, _CrossFit]()

    def fit_without(self, one: _CrossFit, fold: Positions) -> None:
        """Fit a candidate on the other folds."""
        self._crossed[id(one)] = one
        with _calm():
            one.fit_without(fold)
        if not self._done:
            one.seconds = np.inf  # the first fit of a process also loads libraries and starts threads
        self.add()

    def add(self) -> None:
        """Count a fit."""
        self._done, self.left = self._done + 1, max(self.left - 1, 0)
        if self._report is not None:
            self._report(self._done, self._done + self.left, self._seconds)

    @property
    def _seconds(self) -> float:
        """Of the fits to come, each as long as the fastest of its candidate; those that judge as the fastest of all."""
        running = [one for one in self._crossed.values() if one.runs]
        fastest = min((one.seconds for one in running), default=np.inf)
        if fastest == np.inf:
            return 0.0
        times = ((one.fits, one.seconds if one.seconds < np.inf else fastest) for one in running)
        crossing = sum(max(self._folds - fits, 0) * seconds for fits, seconds in times)
        return crossing + min(self.left, self._later) * fastest


def _doubted(
    artifact: Artifact, judged: _Fitted, pairs: Pairs, shares: Sequence[float]
) -> tuple[Artifact, Doubles | None]:
    """The same with what its sigma^2, where it says one, lets expect of cosines, and the factors of all pairs.

    Pairs measure it that the transform has not learned from, and none has a part in its own factor.
    """
    if judged.sigma2 is None:
        return artifact, None
    labels, rows = pairs.labels, np.arange(len(pairs))
    if labels is not None:
        labelled = np.flatnonzero(labels != NO_LABEL)
        labels, rows = (labels, labelled) if len(labelled) >= FEWEST_PAIRS else (None, rows)
    rows = rows[:MOST_DOUBTED]
    told = None if labels is None else labels[rows]
    measured = judged.sigma2[rows], judged.transformed[rows], pairs.target[rows]
    figure = shrinkage_figure(*measured, pairs.target_space.metric, told, shares)
    figures = artifact.manifest.figures
    artifact = artifact.amended(figures={**figures, "h": {**figures.get("h", {}), **figure}})
    shrinkage, apart = Shrinkage.of(artifact.manifest.figures), cross_fitted_factors(*measured, told, shares)
    if shrinkage is None or apart is None:
        return artifact, None
    factors = shrinkage.at(judged.sigma2)
    factors[rows] = apart
    return artifact, factors


def _fitted(trainer: PairTrainer, pairs: Pairs) -> Artifact | None:
    """Fit on pairs; where it reads labels, on those that have one."""
    if getattr(trainer, "reads_labels", False) and pairs.labels is not None:
        pairs = pairs.subset(np.flatnonzero(pairs.labels != NO_LABEL))
    try:
        return without_holdout(trainer).fit(pairs)
    except CompatStoreError:
        return None
