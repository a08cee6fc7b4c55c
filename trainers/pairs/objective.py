"""What a network is trained for on given pairs: a loss of each row, perhaps weighed by the network's own doubt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from compatstore.trainers.pairs.head import Head
from compatstore.trainers.pairs.losses import Batch, Loss, squared_distance
from compatstore.trainers.pairs.two_branch import Prediction, TwoBranch

# No data reaches these bounds (errors of 1e-13 or 1e13); they keep the exponential a finite float32.
_LOG_SIGMA2 = 30.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Objective:
    """A loss and what it needs.

    Args:
        error: Loss of each row; what sigma^2 is to predict.
        inverse_lambda: 1/lambda of FastFill's equation 5; None trains without uncertainty.
        head: Frozen head that `error` looks through, or None.
        resolved: What settings left open became on these pairs, JSON-able, for the manifest.
        note: What whoever trains should know, or "".
    """

    error: Loss = squared_distance
    inverse_lambda: float | None = None
    head: Head | None = None
    resolved: Mapping[str, str | float] = field(default_factory=dict)
    note: str = ""

    @property
    def uncertainty(self) -> bool:
        """Whether the network has to say log sigma^2."""
        return self.inverse_lambda is not None

    def __call__(self, prediction: Prediction, batch: Batch) -> torch.Tensor:
        """Weigh each row: error / sigma^2 + (1/lambda) log sigma^2, (n,) (FastFill, equation 5)."""
        error = self.error(prediction, batch)
        if self.inverse_lambda is None or prediction.log_sigma2 is None:
            return error
        log_sigma2 = prediction.log_sigma2.clamp(-_LOG_SIGMA2, _LOG_SIGMA2)
        return error * torch.exp(-log_sigma2) + self.inverse_lambda * log_sigma2

    def start(self, model: TwoBranch, rows: Batch) -> None:
        """Start sigma^2 at one value for all rows, the best one for the mean error of some rows.

        Random weights would weigh the rows at random, and bend the vectors to change their sigma^2.
        """
        if self.inverse_lambda is None or model.log_sigma2 is None:
            return
        with torch.inference_mode():
            error = self.error(model.eval()(rows.source, rows.side), rows).mean().item()
        nn.init.zeros_(model.log_sigma2.weight)
        nn.init.constant_(model.log_sigma2.bias, math.log(max(error, 1e-12) / self.inverse_lambda))
