"""What a refit is given and what it gives back; `upgrade/refitting/refit.py` calls one, `trainers.Refit` is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from compatstore.arrays import FloatArray
from compatstore.artifacts.artifact import Artifact

FEWEST_ROWS, FEWEST_VALIDATION_ROWS = 20, 10


@dataclass(frozen=True, kw_only=True, eq=False)
class Gathered:
    """Rows that a backfill has embedded natively, as pairs to learn from.

    Args:
        source: (n, source dim) float32, what the transform reads.
        target: (n, target dim) float32, the native vectors.
        side: (n, side dim) float32, where the transform reads side-information.
        validation_rows: (m,) intp, rows that are like the remaining ones: drawn at random, and not embedded by now by
            the backfill's order alone. All rows, where the order is random.
        native: Share of the gallery that is native, in (0, 1).
    """

    source: FloatArray
    target: FloatArray
    side: FloatArray | None = None
    validation_rows: npt.NDArray[np.intp]
    native: float

    @property
    def enough(self) -> bool:
        """Whether there are rows enough to learn from and to validate by."""
        return len(self.source) >= FEWEST_ROWS and len(self.validation_rows) >= FEWEST_VALIDATION_ROWS


@dataclass(frozen=True, kw_only=True, eq=False)
class Refitted:
    """What a refit gave.

    Args:
        artifact: The corrected transform.
        before: Mean squared distance of the validation rows to their native vectors under the transform as it was.
        after: The same under corrections that were learned without the row at hand.
        standard_error: Of the difference of the two, row by row.
    """

    artifact: Artifact
    before: float
    after: float
    standard_error: float

    @property
    def improved(self) -> bool:
        """Whether what remains is worth hopping again: the gain is more than chance would give in one case of forty."""
        return self.before - self.after > 2 * self.standard_error

    @property
    def figures(self) -> str:
        """Both distances and the standard error of their difference, as the history shows them."""
        return f"held-out squared distance {self.before:.4g} -> {self.after:.4g} (± {self.standard_error:.2g})"


class Refitter(Protocol):
    """Corrects a transform by rows that a backfill has gathered."""

    @property
    def holdout(self) -> float:
        """Share of the backfill's budget, in (0, 1), that is drawn at random first: the validation rows."""

    def fit(self, current: Artifact, gathered: Gathered) -> Refitted:
        """Correct a ForwardTransform."""
