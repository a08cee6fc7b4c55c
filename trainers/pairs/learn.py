"""Learn: how an upgrade that has no artifact teaches itself from what it embeds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Annotated, NamedTuple

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
from compatstore.trainers.pairs.procrustes import Procrustes
from compatstore.trainers.pairs.ridge import LowRankRidge, Ridge
from compatstore.trainers.pairs.shrinking import SHARES, cross_fitted_factors, shrinkage_figure
from compatstore.trainers.pairs.trainer import PairTrainer, describe, without_holdout
from compatstore.trainers.settings import NOT_EMPTY, Count, above, at_least, from_to, require_settings
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
        growth: A wave ends, and the next lesson begins, where this many times as many items are native, above 1.
        candidates: Trainers on pairs to choose from; those that cannot run on the pairs are skipped. None takes closed
            forms and, where torch is installed, a residual network; where labels are named (`Gates.labels`) also such
            a network and FastFill, trained through a head.
        folds: Parts that the pairs are cut into to compare candidates, >= 2.
        judged: Candidates that are judged by retrieval for being near to the natives, >= 1.
        least_gain: Embedding ends where all that the budget still allows is sure to gain no more than this in the
            figure that decides, from 0 to 1; None embeds the whole budget.

    Raises:
        InvalidInput: A setting is out of its range.

    Examples:
        >>> cs.Learn(first=500).first_rows(1_000_000)
        500
    """

    first: Annotated[int, at_least(FEWEST_PAIRS)] | None = field(default=None, metadata={"unit": "ITEMS"})
    growth: Annotated[float, above(1)] = 2.0
    candidates: Annotated[tuple[PairTrainer, ...], NOT_EMPTY] | None = None
    folds: Annotated[int, at_least(2)] = 5
    judged: Count = 3
    least_gain: Annotated[float, from_to(0, 1)] | None = 0.0

    def __post_init__(self) -> None:
        require_settings(self)

    def first_rows(self, items: int) -> int:
        """Items of the first wave, by the number of the gallery's items."""
        if self.first is not None:
            return self.first
        return min(max(round(FIRST_SHARE * items), FEWEST_FIRST), MOST_FIRST)

    @checked
    def teach(self, lesson: Lesson, tried: Callable[[int, int], None] | None = None) -> Sequence[Taught]:
        """Learn from pairs.

        Args:
            lesson: The pairs.
            tried: Called with the candidates that were tried and their number, after each.

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
        candidates = self.candidates or (*CLOSED_FORMS, *networks(labelled=lesson.classes is not None))
        fitted = list[_Fitted]()
        for number, trainer in enumerate(candidates, start=1):
            with _calm():
                one = _cross_fitted(trainer, pairs, folds)
            if one is not None:
                fitted.append(one)
            if tried is not None:
                tried(number, len(candidates))
        nearest = sorted(fitted, key=lambda one: one.error)
        kept = [one for one in nearest if not one.by_classes][: self.judged] + [
            one for one in nearest if one.by_classes
        ]
        # Those that the gallery has until the next lesson.
        now = lesson.native_share
        shares = tuple(dict.fromkeys(share for share in (now, self.growth * now) if share < 1)) or SHARES
        taught = []
        for one in kept:
            with _calm():
                artifact = _fitted(one.trainer, pairs)
                again = isinstance(one.trainer, ClosedForm) and len(finer) > len(folds)
                judged = _cross_fitted(one.trainer, pairs, finer) if again else one
            if artifact is not None and judged is not None:
                artifact, factors = _doubted(artifact, judged, pairs, shares)
                name = describe(one.trainer)
                taught.append(Taught(name=name, artifact=artifact, transformed=judged.transformed, factors=factors))
        return taught


def _folds(order: Positions, parts: int) -> list[Positions]:
    """Parts of a random order, one of each row, each in ascending order."""
    return [np.sort(order[start::parts]) for start in range(min(parts, len(order)))]


def _calm() -> AbstractContextManager[None]:
    """One thread for torch, where it is loaded."""
    return one_thread() if "torch" in sys.modules else nullcontext()


def _cross_fitted(trainer: PairTrainer, pairs: Pairs, folds: Sequence[np.ndarray]) -> _Fitted | None:
    """Each source by a transform of the other folds' pairs; None where the trainer cannot run on them."""
    made, sigma2, told = np.empty_like(pairs.target), np.empty(len(pairs), np.float32), True
    for fold in folds:
        artifact = _fitted(trainer, pairs.subset(np.setdiff1d(np.arange(len(pairs)), fold)))
        if artifact is None:
            return None
        asked = pairs.subset(fold)
        found = artifact.apply(asked.source, asked.side)
        made[fold] = found.vectors
        if told := told and found.uncertainty is not None:
            sigma2[fold] = found.uncertainty
    apart = made.astype(np.float64) - pairs.target
    error = float(np.einsum("nd,nd->", apart, apart) / len(pairs))
    return _Fitted(trainer, made, sigma2 if told else None, error) if np.isfinite(error) else None


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
