"""Mean shift: move the source vectors so that their mean is the target's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from compatstore.trainers.pairs.closed_form import AffineMap, ClosedForm, require_equal_dims
from compatstore.trainers.pairs.moments import Moments
from compatstore.trainers.pairs.pairs import Pairs


@dataclass(frozen=True, kw_only=True)
class MeanShift(ClosedForm):
    """y = x + (mean of targets - mean of sources), between spaces of one dimension; side-information is not read.

    For a model that was only fine-tuned, and as the floor that other forms must beat.
    """

    reads_side: ClassVar[bool] = False

    def solve(self, pairs: Pairs) -> AffineMap:
        """Solve on all rows given.

        Raises:
            InvalidInput: The dimensions differ.
        """
        require_equal_dims("MeanShift", pairs)
        moments = Moments.of(pairs, side=False)
        return AffineMap.through_means(np.eye(pairs.source.shape[1]), moments)
