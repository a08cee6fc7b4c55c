"""Auto: fit every candidate, and keep the one with the best retrieval on pairs that none was fitted on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np

from compatstore.artifacts.artifact import Artifact
from compatstore.boundary import checked, checked_fields
from compatstore.trainers.pairs.kernel_ridge import KernelRidge
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.residual import DriftAdapter, Residual
from compatstore.trainers.pairs.retrieval import RetrievalTest, side_for
from compatstore.trainers.pairs.ridge import DiagonalScale, LowRankRidge, MeanShift, Procrustes, Ridge
from compatstore.trainers.pairs.selection import Comparison, RetrievalTrial, compare, ranked
from compatstore.trainers.pairs.shrinking import HeldOutRows, shrinkage_figure
from compatstore.trainers.pairs.trainer import PairTrainer, describe, without_holdout
from compatstore.trainers.settings import NOT_EMPTY, Count, OpenShare
from compatstore.trainers.training import OnEpoch

DEFAULT: tuple[PairTrainer, ...] = (
    MeanShift(),
    Procrustes(),
    DiagonalScale(),
    Ridge(),
    LowRankRidge(),
    KernelRidge(),
    DriftAdapter(epochs=20, batch_size=1024),
    Residual(epochs=20, width=512, batch_size=1024),
)
"""Closed forms, and two small networks that a CPU trains in seconds to minutes.

The artifact of a kernel ridge holds source vectors of the pairs: name other candidates if these must not be disclosed.
"""


ROWS = 20_000  # most held-out rows of a group, and most fitted rows, in the gallery that is searched


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Auto:
    """Choose a trainer by retrieval on held-out pairs, with native target vectors as queries.

    With labels, whole classes are held out, and rows of the other classes too: the score is the mean over classes that
    the candidate was fitted on and classes that it was not. mAP decides; without labels the recall of the target's own
    neighbours decides.

    The winner is then fitted again on all pairs. The figures of the artifact are those measured before, on pairs that
    the first fit had not seen; so is the shrinkage of cosines by its sigma^2.

    Args:
        candidates: Trainers to choose from; those that cannot run are skipped, with the reason in the table.
        holdout: Share of the rows (and of the classes) held out, in (0, 1).
        by: Hold out classes and rows, or rows alone; None takes classes where the pairs have two or more.
        k: Neighbours of the recall, >= 1.
        queries: Most queries of a group, >= 1.
        seed: Of held-out rows, queries and bootstrap.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    candidates: Annotated[tuple[PairTrainer, ...], NOT_EMPTY] = field(default=DEFAULT)
    holdout: OpenShare = 0.2
    by: Literal["row", "class"] | None = None
    k: Count = 10
    queries: Count = 1000
    seed: int = 0
    needs_holdout: ClassVar[bool] = True

    @checked
    def fit(self, pairs: Pairs, progress: OnEpoch | None = None) -> Artifact:
        """Choose, and fit the winner on all pairs.

        Args:
            pairs: The training pairs.
            progress: Called after each epoch of candidates that have epochs, and of the winner.

        Returns:
            The winner's artifact. Its figures hold the table under "auto", as `Comparison.to_dict`, and the winner's
            own under "h".

        Raises:
            InvalidInput: No candidate can run, or there is too little to hold out.
        """
        trials, table, held_out = self._trials(pairs, progress)
        best = ranked(trials)[0]
        fitted = without_holdout(best.trainer).fit(pairs, progress)
        manifest = fitted.manifest
        own: dict[str, object] = {**manifest.figures.get("h", {}), **table.best.figures}
        made = best.artifact.apply(held_out.source, side_for(best.artifact, held_out))
        if made.uncertainty is not None:
            rows = HeldOutRows(made.uncertainty, made.vectors, held_out.target, held_out.labels)
            own |= shrinkage_figure(rows, held_out.target_space.metric)
        settings = asdict(self) | {"candidates": [describe(trainer) for trainer in self.candidates]}
        return fitted.amended(
            settings={**manifest.settings, "auto": settings},
            figures={**manifest.figures, "h": own, "auto": table.to_dict()},
            seen=pairs.seen,
        )

    @checked
    def compare(self, pairs: Pairs, progress: OnEpoch | None = None) -> Comparison:
        """Fit and measure every candidate; return the table alone. Arguments and errors as in `fit`."""
        return self._trials(pairs, progress)[1]

    def _trials(self, pairs: Pairs, progress: OnEpoch | None) -> tuple[list[RetrievalTrial], Comparison, Pairs]:
        """Try the candidates; return the trials, their table, and held-out rows of classes that they were fitted on."""
        fitted, groups = self._split(pairs)
        metric = pairs.target_space.metric or "l2"
        test = RetrievalTest(fitted, groups, k=self.k, queries=self.queries, rows=ROWS, metric=metric, seed=self.seed)
        trials = [RetrievalTrial(trainer, test).step(progress) for trainer in self.candidates]
        return trials, compare(trials, test, self.seed), next(iter(groups.values()))

    def _split(self, pairs: Pairs) -> tuple[Pairs, Mapping[str, Pairs]]:
        has_classes = pairs.labels is not None and len(np.unique(pairs.labels)) > 1
        by = self.by or ("class" if has_classes else "row")
        fitted, held_out = pairs.split(self.holdout, self.seed, by)
        if by == "row":
            return fitted, {"held_out": held_out}
        fitted, seen = fitted.split(self.holdout, self.seed)
        return fitted, {"seen": seen, "unseen": held_out}
