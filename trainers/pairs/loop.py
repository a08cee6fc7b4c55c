"""Objective of a network on pairs, and the training loop that minimises it.

The objective is a loss of each row, divided by the sigma^2 that the network predicts for the row. Shapes: n rows of a
batch, d_t dimensions of the target. Without uncertainty the loss of each row is taken as it is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from compatstore.errors import InvalidInput
from compatstore.trainers.pairs.two_branch import Head, Prediction, TwoBranch
from compatstore.trainers.training import EpochProgress, OnEpoch, require_finite, warmup_cosine

if TYPE_CHECKING:
    from compatstore.trainers.pairs.training import TransformTraining

# No data reaches these bounds (errors of 1e-13 or 1e13); they keep the exponential a finite float32.
_LOG_SIGMA2 = 30.0

BATCH = 1024  # largest batch of settings that leave it open

# Rows of the held-out part on which the loss after each epoch is measured.
_WATCHED = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Some pairs as tensors.

    Args:
        source: (n, source dim) float32.
        target: (n, target dim) float32, to be predicted.
        side: (n, side dim) float32, or None.
        classes: (n,) int64, rows of the target's head, -1 for a class without a row; or None.
    """

    source: torch.Tensor
    target: torch.Tensor
    side: torch.Tensor | None = None
    classes: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: torch.Tensor) -> Batch:
        """Return some rows, on the device of the batch."""
        return self._each(lambda tensor: tensor[rows])

    def to(self, device: torch.device) -> Batch:
        """Return all rows, on a device."""
        return self._each(lambda tensor: tensor.to(device))

    def _each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
        present = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(tensor) for name, tensor in present.items() if tensor is not None})


Loss = Callable[[Prediction, Batch], torch.Tensor]
"""(predictions of n rows, the rows) -> (n,) float32, the loss of each row."""


def tensor(rows: npt.NDArray[np.generic]) -> torch.Tensor:
    """A tensor of the same values; of rows that cannot be written to, as Arrow and mapped files give them, a copy."""
    return torch.from_numpy(np.require(rows, requirements="W"))


def squared_distance(prediction: Prediction, batch: Batch) -> torch.Tensor:
    """Squared L2 norm of each row's error, summed over dimensions: (n,) (FCT, section 3.3)."""
    return (prediction.vectors - batch.target).square().sum(dim=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Objective:
    """A loss of each row, and how the losses of rows are weighted.

    Args:
        error: Loss of each row; sigma^2 is trained to predict it.
        inverse_lambda: 1/lambda of FastFill's equation 5; None trains without uncertainty.
        beta: Rows weigh sigma^(2 beta) times what that equation gives them, from 0, the paper's, to 1, all alike.
        head: Frozen classifier head that `error` reads, or None.
        resolved: Settings that were decided from the pairs, JSON-able, for the manifest: {"disc": "arcface"}.
        note: Message to the user about these pairs, or "".
    """

    error: Loss = squared_distance
    inverse_lambda: float | None = None
    beta: float = 0.0
    head: Head | None = None
    resolved: Mapping[str, str | float] = field(default_factory=dict)
    note: str = ""

    @property
    def uncertainty(self) -> bool:
        """True if the network has to predict log sigma^2."""
        return self.inverse_lambda is not None

    def __call__(self, prediction: Prediction, batch: Batch) -> torch.Tensor:
        """Weigh each row: error / sigma^2 + (1/lambda) log sigma^2, (n,) (FastFill, equation 5), times sigma^(2 beta).

        The last factor has no gradient (Seitzer et al., "On the pitfalls of heteroscedastic uncertainty estimation with
        probabilistic neural networks", ICLR 2022, equation 5).
        """
        error = self.error(prediction, batch)
        if self.inverse_lambda is None or prediction.log_sigma2 is None:
            return error
        log_sigma2 = prediction.log_sigma2.clamp(-_LOG_SIGMA2, _LOG_SIGMA2)
        loss = error * torch.exp(-log_sigma2) + self.inverse_lambda * log_sigma2
        return loss * torch.exp(self.beta * log_sigma2.detach())

    def start(self, model: TwoBranch, rows: Batch) -> None:
        """Set the sigma^2 of all rows to the constant that minimises the objective for the mean error of some rows.

        Random initial weights of sigma^2 would weigh rows at random, and gradients would change vectors to change
        their sigma^2.
        """
        if self.inverse_lambda is None or model.log_sigma2 is None:
            return
        with torch.inference_mode():
            error = self.error(model.eval()(rows.source, rows.side), rows).mean().item()
        nn.init.zeros_(model.log_sigma2.weight)
        nn.init.constant_(model.log_sigma2.bias, math.log(max(error, 1e-12) / self.inverse_lambda))


def train_on_pairs(
    model: TwoBranch,
    pairs: Batch,
    settings: TransformTraining,
    loss: Loss,
    *,
    held_out: Batch | None = None,
    network: str = "h",
    note: str = "",
    progress: OnEpoch | None = None,
) -> float:
    """Train a model in place; afterwards the model is on the CPU, in evaluation mode.

    Args:
        model: The network.
        pairs: All rows, at least 2.
        settings: Epochs, batch size, optimiser, learning rate and the other settings of the loop.
        loss: Loss of each row; a step takes the mean over its batch.
        held_out: Rows on which `progress` gets the loss; they change no weight.
        network: Name for `progress`, "h" or "g".
        note: Message for `progress`.
        progress: Called after each epoch.

    Returns:
        Mean loss of the last epoch.

    Raises:
        InvalidInput: Fewer than 2 rows, or the loss became NaN or infinite.
    """
    if len(pairs) < 2:
        raise InvalidInput("train on pairs", expected="at least 2 rows to train on", found=str(len(pairs)))
    # Equal parts, none of one row: batch normalisation has no statistics of a single row.
    parts = max(1, min(math.ceil(len(pairs) / (settings.batch_size or BATCH)), len(pairs) // 2))
    device, start = settings.torch_device, time.perf_counter()
    model.to(device)
    pairs = pairs.to(device)
    watched = None if held_out is None else held_out.take(torch.arange(min(len(held_out), _WATCHED))).to(device)
    kind = torch.optim.Adam if settings.optimiser == "adam" else torch.optim.AdamW
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimiser = kind(weights, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)
    order = torch.Generator().manual_seed(settings.seed)
    steps, step, mean = settings.epochs * parts, 0, math.nan
    for epoch in range(1, settings.epochs + 1):
        model.train()
        if epoch > settings.freeze_after:  # weights of batch normalisation are still trained (FCT, appendix B)
            for module in model.modules():
                if isinstance(module, nn.BatchNorm1d):
                    module.eval()
        total = torch.zeros((), device=device)
        for rows in torch.randperm(len(pairs), generator=order).tensor_split(parts):
            share = warmup_cosine(step, steps=steps, warmup=settings.warmup * parts)
            optimiser.param_groups[0]["lr"] = settings.learning_rate * share
            batch = pairs.take(rows.to(device))
            with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
                prediction = model(batch.source, batch.side)
            value = loss(prediction, batch).mean()
            optimiser.zero_grad()
            value.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            total += value.detach() * len(rows)
            step += 1
        mean = require_finite("train on pairs", total.item() / len(pairs), epoch)
        if progress is not None:
            held_out_loss = None if watched is None else evaluate(model, watched, loss)
            seconds, epochs = time.perf_counter() - start, settings.epochs
            progress(EpochProgress(network, epoch, epochs, mean, seconds, held_out_loss, note))
    model.cpu().eval()
    return mean


def evaluate(model: TwoBranch, pairs: Batch, loss: Loss) -> float:
    """Return the mean loss in evaluation mode; changes no weights or statistics."""
    model.eval()
    with torch.inference_mode():
        return loss(model(pairs.source, pairs.side), pairs).mean().item()
