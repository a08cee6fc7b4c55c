"""Learn: how an upgrade that has no artifact teaches itself from what it embeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.artifacts.artifact import Artifact
from compatstore.boundary import checked
from compatstore.digests import seed_of
from compatstore.errors import CompatStoreError
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.procrustes import Procrustes
from compatstore.trainers.pairs.ridge import LowRankRidge, Ridge
from compatstore.trainers.pairs.trainer import PairTrainer, describe, without_holdout
from compatstore.trainers.settings import NOT_EMPTY, Count, above, at_least, require_settings
from compatstore.upgrade.learning import FEWEST_PAIRS, Lesson, Taught

FIRST_SHARE, FEWEST_FIRST, MOST_FIRST = 0.02, 100, 2_000

CLOSED_FORMS: tuple[PairTrainer, ...] = (
    *(Ridge(penalties=(penalty,)) for penalty in (1e-3, 1e-2, 1e-1, 1.0, 10.0)),
    LowRankRidge(penalties=(1e-1,), ranks=(32,)),
    LowRankRidge(penalties=(1e-1,), ranks=(128,)),
    Procrustes(),
)
"""Solved in seconds on a CPU. With few pairs the large penalties win."""


class _Fitted(NamedTuple):
    trainer: PairTrainer
    transformed: FloatArray
    error: float


@dataclass(frozen=True, kw_only=True)
class Learn:
    """How an upgrade teaches itself.

    Each candidate is fitted once for each fold on the pairs of the other folds. The ones that come nearest to the
    natives are judged by what would be served, and the winner is fitted again on all pairs.

    Args:
        first: Items of the first wave, >= 40; by default 2 % of the gallery, 100 at least and 2,000 at the most.
        growth: A wave ends, and the next lesson begins, where this many times as many items are native, above 1.
        candidates: Trainers on pairs to choose from; those that cannot run on the pairs are skipped.
        folds: Parts that the pairs are cut into, >= 2.
        judged: Candidates that are judged by retrieval, >= 1.

    Raises:
        InvalidInput: A setting is out of its range.

    Examples:
        >>> cs.Learn(first=500).first_rows(1_000_000)
        500
    """

    first: Annotated[int, at_least(FEWEST_PAIRS)] | None = field(default=None, metadata={"unit": "ITEMS"})
    growth: Annotated[float, above(1)] = 2.0
    candidates: Annotated[tuple[PairTrainer, ...], NOT_EMPTY] = CLOSED_FORMS
    folds: Annotated[int, at_least(2)] = 5
    judged: Count = 3

    def __post_init__(self) -> None:
        require_settings(self)

    def first_rows(self, items: int) -> int:
        """Items of the first wave, by the number of the gallery's items."""
        if self.first is not None:
            return self.first
        return min(max(round(FIRST_SHARE * items), FEWEST_FIRST), MOST_FIRST)

    @checked
    def teach(self, lesson: Lesson) -> Sequence[Taught]:
        """Learn from pairs.

        Args:
            lesson: The pairs.

        Returns:
            Transforms, those nearest to the natives first; none where no candidate can run on the pairs.
        """
        pairs = Pairs(
            lesson.source,
            lesson.target,
            side=lesson.side,
            source_version=lesson.source_version,
            target_version=lesson.target_version,
        )
        order = np.random.default_rng(seed_of("lesson folds", lesson.seed)).permutation(len(pairs))
        folds = [np.sort(order[start :: self.folds]) for start in range(min(self.folds, len(pairs)))]
        fitted = [one for trainer in self.candidates if (one := _cross_fitted(trainer, pairs, folds)) is not None]
        nearest = sorted(fitted, key=lambda one: one.error)[: self.judged]
        taught = []
        for one in nearest:
            artifact = _fitted(one.trainer, pairs)
            if artifact is not None:
                taught.append(Taught(name=describe(one.trainer), artifact=artifact, transformed=one.transformed))
        return taught


def _cross_fitted(trainer: PairTrainer, pairs: Pairs, folds: Sequence[np.ndarray]) -> _Fitted | None:
    """Each source by a transform of the other folds' pairs; None where the trainer cannot run on them."""
    made = np.empty_like(pairs.target)
    for fold in folds:
        artifact = _fitted(trainer, pairs.subset(np.setdiff1d(np.arange(len(pairs)), fold)))
        if artifact is None:
            return None
        asked = pairs.subset(fold)
        made[fold] = artifact.apply(asked.source, asked.side).vectors
    apart = made.astype(np.float64) - pairs.target
    error = float(np.einsum("nd,nd->", apart, apart) / len(pairs))
    return _Fitted(trainer, made, error) if np.isfinite(error) else None


def _fitted(trainer: PairTrainer, pairs: Pairs) -> Artifact | None:
    try:
        return without_holdout(trainer).fit(pairs)
    except CompatStoreError:
        return None
