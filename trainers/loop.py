"""The one training loop: every method on images is a loss that it minimises."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader

from compatstore.errors import InvalidInput

Optimiser = Literal["sgd", "adamw"]
Precision = Literal["auto", "no", "fp16", "bf16"]


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """How to minimise a loss.

    Args:
        epochs: Passes over the images, >= 1.
        batch_size: Images a step, >= 2.
        optimiser: "adamw", or "sgd" with Nesterov momentum 0.9.
        learning_rate: Its peak, > 0.
        weight_decay: >= 0.
        warmup_epochs: Epochs of linear rise from 0, before the cosine back to 0; fractions are fine.
        precision: Mixed precision; "auto" takes bfloat16 on a CUDA device that has it, and none elsewhere.
        workers: Processes that read files, >= 0; arrays in memory need none.
        seed: Of weights, order and augmentation. Equal seeds repeat a run on the same machine and device.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    epochs: int = 30
    batch_size: int = 64
    optimiser: Optimiser = "adamw"
    learning_rate: float = 2e-3
    weight_decay: float = 5e-2
    warmup_epochs: float = 2.0
    precision: Precision = "auto"
    workers: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        checks = {
            "epochs >= 1": self.epochs >= 1,
            "batch_size >= 2": self.batch_size >= 2,
            "optimiser sgd or adamw": self.optimiser in get_args(Optimiser),
            "learning_rate > 0": self.learning_rate > 0,
            "weight_decay >= 0": self.weight_decay >= 0,
            "warmup_epochs from 0 to epochs": 0 <= self.warmup_epochs <= self.epochs,
            f"precision of {get_args(Precision)}": self.precision in get_args(Precision),
            "workers >= 0": self.workers >= 0,
        }
        self.require(checks)

    def require(self, checks: dict[str, bool]) -> None:
        """Refuse settings of which a check, in words, does not hold."""
        broken = [words for words, holds in checks.items() if not holds]
        if broken:
            raise InvalidInput(f"set up {type(self).__name__}", expected=", ".join(broken), found=repr(self))


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where training is, after an epoch.

    Args:
        epoch: Epochs done, from 1.
        epochs: Epochs in all.
        loss: Mean loss of this epoch.
        seconds: Since training began.
    """

    epoch: int
    epochs: int
    loss: float
    seconds: float


Report = Callable[[Progress], None]


def train(
    objective: nn.Module, batches: DataLoader[Any], settings: LoopSettings, report: Report | None = None
) -> float:
    """Minimise `objective(*batch)`, a scalar, over all of its parameters, in place.

    Networks, heads and loss parameters live inside `objective`, so that one wrapping distributes all of them.

    Args:
        objective: (a batch) -> scalar loss; left on the CPU, in evaluation mode.
        batches: What to minimise over; each item is the arguments of one call.
        settings: How.
        report: Called after each epoch, in the main process.

    Returns:
        Mean loss of the last epoch.

    Raises:
        InvalidInput: The loss became NaN or infinite.
    """
    accelerator = Accelerator(mixed_precision=_precision(settings.precision))
    optimiser = _optimiser(objective, settings)
    model, optimiser, batches = accelerator.prepare(objective, optimiser, batches)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, _warmup_cosine(settings, len(batches)))
    start, mean = time.perf_counter(), math.nan
    for epoch in range(1, settings.epochs + 1):
        model.train()
        losses = [_step(accelerator, model, optimiser, schedule, batch) for batch in batches]
        mean = accelerator.reduce(torch.stack(losses).mean(), reduction="mean").item()
        _require_finite(mean, epoch)
        if report is not None and accelerator.is_main_process:
            report(Progress(epoch=epoch, epochs=settings.epochs, loss=mean, seconds=time.perf_counter() - start))
    objective.cpu().eval()
    return mean


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch within a block, and give the caller's random state back after it."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def _step(accelerator: Any, model: nn.Module, optimiser: Any, schedule: Any, batch: Any) -> torch.Tensor:
    with accelerator.autocast():
        loss: torch.Tensor = model(*batch)
    accelerator.backward(loss)
    optimiser.step()
    optimiser.zero_grad()
    schedule.step()
    return loss.detach()


def _precision(precision: Precision) -> str:
    if precision != "auto":
        return precision
    return "bf16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "no"


def _optimiser(objective: nn.Module, settings: LoopSettings) -> torch.optim.Optimizer:
    if settings.optimiser == "sgd":
        return torch.optim.SGD(
            objective.parameters(), settings.learning_rate, 0.9, weight_decay=settings.weight_decay, nesterov=True
        )
    return torch.optim.AdamW(objective.parameters(), settings.learning_rate, weight_decay=settings.weight_decay)


def _warmup_cosine(settings: LoopSettings, steps_per_epoch: int) -> Callable[[int], float]:
    warmup, steps = settings.warmup_epochs * steps_per_epoch, settings.epochs * steps_per_epoch

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))

    return factor


def _require_finite(loss: float, epoch: int) -> None:
    if not math.isfinite(loss):
        raise InvalidInput(
            "train", expected="a finite loss", found=f"{loss} in epoch {epoch}", fix="Lower the learning rate."
        )
