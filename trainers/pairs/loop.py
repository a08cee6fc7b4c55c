"""The training loop of every network on pairs."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import torch
from torch import nn

from compatstore.errors import InvalidInput
from compatstore.trainers.pairs.objective import Batch, Loss
from compatstore.trainers.pairs.two_branch import TwoBranch
from compatstore.trainers.training import EpochProgress, OnEpoch, require_finite, warmup_cosine

if TYPE_CHECKING:
    from compatstore.trainers.pairs.training import TransformTraining

# Rows of the held-out part on which the loss after each epoch is measured.
_WATCHED = 4096


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
        loss: What to minimise, of each row; a step takes the mean over its batch.
        held_out: Rows on which `progress` gets the loss; they change no weight.
        network: Name for `progress`, "h" or "g".
        note: Message for `progress`.
        progress: Called after each epoch.

    Returns:
        Mean loss of the last epoch.

    Raises:
        InvalidInput: Fewer than 2 rows, or the loss became NaN or infinite.
    """
    parts, device, start = _parts(len(pairs), settings.batch_size), settings.torch_device, time.perf_counter()
    model.to(device)
    pairs = pairs.to(device)
    watched = None if held_out is None else held_out.take(torch.arange(min(len(held_out), _WATCHED))).to(device)
    optimiser = _optimiser(model, settings)
    order = torch.Generator().manual_seed(settings.seed)
    steps, step, mean = settings.epochs * parts, 0, math.nan
    for epoch in range(1, settings.epochs + 1):
        model.train()
        if epoch > settings.freeze_after:
            freeze_statistics(model)
        total = torch.zeros((), device=device)
        for rows in torch.randperm(len(pairs), generator=order).tensor_split(parts):
            share = warmup_cosine(step, steps=steps, warmup=settings.warmup * parts)
            optimiser.param_groups[0]["lr"] = settings.learning_rate * share
            total += _step(model, pairs.take(rows.to(device)), settings, loss, optimiser) * len(rows)
            step += 1
        mean = require_finite("train on pairs", total.item() / len(pairs), epoch)
        if progress is not None:
            progress(
                EpochProgress(
                    network=network,
                    epoch=epoch,
                    epochs=settings.epochs,
                    loss=mean,
                    seconds=time.perf_counter() - start,
                    held_out_loss=None if watched is None else evaluate(model, watched, loss),
                    note=note,
                )
            )
    model.cpu().eval()
    return mean


def evaluate(model: TwoBranch, pairs: Batch, loss: Loss) -> float:
    """Return the mean loss in evaluation mode; changes no weights or statistics."""
    model.eval()
    with torch.inference_mode():
        return loss(model(pairs.source, pairs.side), pairs).mean().item()


def freeze_statistics(model: nn.Module) -> None:
    """Hold the running statistics of batch normalisation; its weights are still trained (FCT, appendix B).

    To be called after every `model.train()`, which lets the statistics run again.
    """
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.eval()


def _step(
    model: TwoBranch, batch: Batch, settings: TransformTraining, loss: Loss, optimiser: torch.optim.Optimizer
) -> torch.Tensor:
    with torch.autocast(batch.source.device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
        prediction = model(batch.source, batch.side)
    value = loss(prediction, batch).mean()
    optimiser.zero_grad()
    value.backward()  # type: ignore[no-untyped-call]
    if settings.clip_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
    optimiser.step()
    return value.detach()


def _optimiser(model: nn.Module, settings: TransformTraining) -> torch.optim.Optimizer:
    kind = torch.optim.Adam if settings.optimiser == "adam" else torch.optim.AdamW
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    return kind(weights, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)


def _parts(rows: int, batch_size: int) -> int:
    # Equal parts, none of one row: batch normalisation has no statistics of a single row.
    if rows < 2:
        raise InvalidInput("train on pairs", expected="at least 2 rows to train on", found=str(rows))
    return max(1, min(math.ceil(rows / batch_size), rows // 2))
