"""FastFill's objective, for any network: be near the native vector, stay in the class, and know how well it went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from compatstore.trainers.pairs.loop import require_settings
from compatstore.trainers.pairs.losses import Batch, Loss, squared_distance
from compatstore.trainers.pairs.objective import Objective
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.through_head import HeadTraining
from compatstore.trainers.pairs.two_branch import Prediction

AlignmentLoss = Literal["l2", "disc", "l2+disc"]

_NO_LABELS = (
    "The pairs have no labels: only the squared distance is trained, and nothing keeps a transformed item in its "
    "class. Label the pairs for the loss through the target's head."
)


@dataclass(frozen=True, kw_only=True)
class Alignment(HeadTraining):
    """Minimise (L2 + L_disc) / sigma^2 + (1/lambda) log sigma^2, the mean over rows (FastFill, equations 3 to 5).

    L2 is the squared distance to the native vector, summed over the d_t dimensions of the target; L_disc is the loss
    through the frozen head; log sigma^2 is one linear unit on the network's output before that is normalised.

    Args:
        loss: "l2", "disc", or "l2+disc", their sum. Without labels "l2+disc" trains "l2" and says so.
        uncertainty: Whether to learn sigma^2; without, the loss is the mean of the sum alone.
        inverse_lambda: 1/lambda divided by d_t, > 0. At 1 and without L_disc the loss is twice a Gaussian's negative
            log-likelihood, so that sigma^2 is the variance of a dimension. Another value divides sigma^2 by itself
            and multiplies the loss; as sigma^2 starts at its best constant and Adam heeds no scale of the loss, it
            changes little else: from 0.1 to 3, at 16 and at 256 dimensions, areas moved by less than 0.004.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    loss: AlignmentLoss = "l2+disc"
    uncertainty: bool = True
    inverse_lambda: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        rules = {
            f"loss of {get_args(AlignmentLoss)}": self.loss in get_args(AlignmentLoss),
            "inverse_lambda > 0": self.inverse_lambda > 0,
        }
        require_settings(type(self).__name__, rules)

    def objective(self, pairs: Pairs) -> Objective:
        """Say what to train for on these pairs.

        Raises:
            InvalidInput: The loss "disc" without labels, or labels are no rows of the given head.
        """
        inverse_lambda = self.inverse_lambda * pairs.target.shape[1] if self.uncertainty else None
        resolved: dict[str, str | float] = {} if inverse_lambda is None else {"inverse_lambda": inverse_lambda}
        if self.loss == "l2" or (self.loss == "l2+disc" and pairs.labels is None):
            note = _NO_LABELS if self.loss != "l2" else ""
            resolved |= {"loss": "l2", "note": note}
            return Objective(inverse_lambda=inverse_lambda, resolved=resolved, note=note)
        through = super().objective(pairs)
        return Objective(
            error=through.error if self.loss == "disc" else _both(through.error),
            inverse_lambda=inverse_lambda,
            head=through.head,
            resolved={**resolved, "loss": self.loss, **through.resolved},
        )


def _both(through_head: Loss) -> Loss:
    """L2 + L_disc of each row (FastFill, equation 3)."""

    def loss(prediction: Prediction, batch: Batch) -> torch.Tensor:
        return squared_distance(prediction, batch) + through_head(prediction, batch)

    return loss
