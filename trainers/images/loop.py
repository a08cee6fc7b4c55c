"""The one training loop: every method on images is a loss that it minimises."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.state import AcceleratorState
from accelerate.utils import broadcast
from torch import nn
from torch.utils.data import DataLoader

from compatstore.boundary import require_fields
from compatstore.errors import InvalidInput
from compatstore.trainers.images.checkpoint import Checkpoint, Resumable
from compatstore.trainers.schedule import warmup_cosine

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
        checkpoint_steps: Steps between two saves, >= 1, where training is given a checkpoint; None saves after each
            epoch only.

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
    checkpoint_steps: int | None = None

    def __post_init__(self) -> None:
        require_fields(self)
        checks = {
            "epochs >= 1": self.epochs >= 1,
            "batch_size >= 2": self.batch_size >= 2,
            "optimiser sgd or adamw": self.optimiser in get_args(Optimiser),
            "learning_rate > 0": self.learning_rate > 0,
            "weight_decay >= 0": self.weight_decay >= 0,
            "warmup_epochs from 0 to epochs": 0 <= self.warmup_epochs <= self.epochs,
            f"precision of {get_args(Precision)}": self.precision in get_args(Precision),
            "workers >= 0": self.workers >= 0,
            "checkpoint_steps >= 1": self.checkpoint_steps is None or self.checkpoint_steps >= 1,
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
    objective: nn.Module,
    batches: DataLoader[Any],
    settings: LoopSettings,
    report: Report | None = None,
    checkpoint: Checkpoint | None = None,
) -> float:
    """Minimise `objective(*batch)`, a scalar, over its parameters that require a gradient, in place.

    Networks, heads and loss parameters live inside `objective`, so that one wrapping distributes all of them. With a
    checkpoint, a training that was killed goes on from the last save, and on the CPU ends with the very weights of
    one that was not.

    Args:
        objective: (a batch) -> scalar loss; left on the CPU, in evaluation mode.
        batches: What to minimise over, in an order of its own generator; each item is the arguments of one call.
        settings: How.
        report: Called after each epoch, in the main process.
        checkpoint: Saved to after each epoch and perhaps within; gone on from where it holds something.

    Returns:
        Mean loss of the last epoch.

    Raises:
        InvalidInput: The loss became NaN or infinite, or there are more processes than batches.
        Incompatible: The checkpoint is of another training.
        CorruptArtifact: The checkpoint is damaged.
    """
    order, start = batches.generator, time.perf_counter()
    accelerator = _accelerator(_precision(settings.precision))
    optimiser = _optimiser(objective, settings)
    model, optimiser, batches = accelerator.prepare(objective, optimiser, batches)
    state = Resumable(objective, optimiser, order, accelerator.scaler)
    saves_to = checkpoint if accelerator.is_main_process else None
    step, losses = state.resume(checkpoint) if checkpoint else (0, [])
    steps = _require_steps(len(batches), accelerator.num_processes)
    for epoch in range(step // steps, settings.epochs):
        model.train()
        order_of_epoch, skipped = order.get_state(), step % steps
        losses = losses if skipped else []
        for batch in skip_first_batches(batches, skipped) if skipped else batches:
            _set_rate(optimiser, settings, step, steps)
            losses.append(_step(accelerator, model, optimiser, batch))
            step += 1
            if saves_to and saves_to.every and step % saves_to.every == 0 and step % steps:
                state.save(saves_to, step, losses, order_of_epoch)
        mean = _mean(accelerator, losses)
        losses = [torch.tensor(mean)]  # of all processes, where a checkpoint would hold those of one
        _require_finite(mean, epoch + 1)
        if saves_to:
            state.save(saves_to, step, losses, order.get_state())
        if report is not None and accelerator.is_main_process:
            report(Progress(epoch=epoch + 1, epochs=settings.epochs, loss=mean, seconds=time.perf_counter() - start))
    # Statistics are each process's own after the last step; all of them return one model.
    for buffer in objective.buffers():
        broadcast(buffer)
    objective.cpu().eval()
    return _mean(accelerator, losses)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch within a block, and give the caller's random state back after it."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def _step(accelerator: Any, model: nn.Module, optimiser: Any, batch: Any) -> torch.Tensor:
    with accelerator.autocast():
        loss: torch.Tensor = model(*batch)
    accelerator.backward(loss)
    optimiser.step()
    optimiser.zero_grad()
    return loss.detach()


def _mean(accelerator: Any, losses: list[torch.Tensor]) -> float:
    """Mean over steps and processes."""
    mean: float = accelerator.reduce(torch.stack(losses).mean().to(accelerator.device), reduction="mean").item()
    return mean


def _accelerator(precision: str) -> Accelerator:
    """Accelerate holds one precision for the whole process; trainings that follow each other may have several."""
    if AcceleratorState._shared_state and AcceleratorState().mixed_precision != precision:
        AcceleratorState._reset_state()  # processes and devices stay as they are
    return Accelerator(mixed_precision=precision)


def _precision(precision: Precision) -> str:
    if precision != "auto":
        return precision
    return "bf16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "no"


def _optimiser(objective: nn.Module, settings: LoopSettings) -> torch.optim.Optimizer:
    trained = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimiser == "sgd":
        return torch.optim.SGD(trained, rate, 0.9, weight_decay=decay, nesterov=True)
    return torch.optim.AdamW(trained, rate, weight_decay=decay)


def _set_rate(optimiser: Any, settings: LoopSettings, step: int, steps_per_epoch: int) -> None:
    """Set the learning rate of a step: a function of the step alone, so that it has no state to save."""
    steps, warmup = settings.epochs * steps_per_epoch, settings.warmup_epochs * steps_per_epoch
    for group in optimiser.param_groups:
        group["lr"] = settings.learning_rate * warmup_cosine(step, steps=steps, warmup=warmup)


def _require_steps(steps: int, processes: int) -> int:
    if not steps:
        expected, found = f"a batch for each of {processes} processes", "fewer batches an epoch"
        raise InvalidInput("train", expected=expected, found=found, fix="Lower the batch size.")
    return steps


def _require_finite(loss: float, epoch: int) -> None:
    if not math.isfinite(loss):
        raise InvalidInput(
            "train", expected="a finite loss", found=f"{loss} in epoch {epoch}", fix="Lower the learning rate."
        )
