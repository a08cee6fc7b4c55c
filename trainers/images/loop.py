"""The training loop of every network on images: minimise a loss that a module computes from a batch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.state import AcceleratorState
from accelerate.utils import broadcast
from torch import nn
from torch.utils.data import DataLoader

from compatstore.errors import InvalidInput
from compatstore.trainers.images.checkpoint import Checkpoint, Resumable
from compatstore.trainers.training import EpochProgress, OnEpoch, require_finite, warmup_cosine

if TYPE_CHECKING:
    from compatstore.trainers.images.training import ImageTraining, MixedPrecision

Batches = DataLoader[tuple[torch.Tensor, torch.Tensor]]


def train(
    objective: nn.Module,
    batches: Batches,
    settings: ImageTraining,
    progress: OnEpoch | None = None,
    checkpoint: Checkpoint | None = None,
) -> float:
    """Minimise `objective(*batch)`, a scalar, over its parameters that require a gradient, in place.

    Networks, heads and loss parameters are parts of `objective`, so that accelerate distributes all of them. With a
    checkpoint, a killed training continues from the last save, and on the CPU ends with exactly the weights of a
    training that was not killed.

    Args:
        objective: (a batch) -> scalar loss; left on the CPU, in evaluation mode.
        batches: What to minimise over, in an order of its own generator; each item is the arguments of one call.
        settings: How.
        progress: Called after each epoch, in the main process.
        checkpoint: Saved to after each epoch, and within epochs where it says so; a saved training is continued.

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
        losses = [torch.tensor(mean)]  # the mean over all processes: a checkpoint holds no other
        require_finite("train on images", mean, epoch + 1)
        if saves_to:
            state.save(saves_to, step, losses, order.get_state())
        if progress is not None and accelerator.is_main_process:
            seconds, epochs = time.perf_counter() - start, settings.epochs
            progress(EpochProgress(network="model", epoch=epoch + 1, epochs=epochs, loss=mean, seconds=seconds))
    # After the last step each process has statistics of its own; all processes return those of the first.
    for buffer in objective.buffers():
        broadcast(buffer)
    objective.cpu().eval()
    return _mean(accelerator, losses)


def _step(
    accelerator: Accelerator,
    model: nn.Module,
    optimiser: AcceleratedOptimizer,
    batch: tuple[torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    with accelerator.autocast():
        loss: torch.Tensor = model(*batch)
    accelerator.backward(loss)
    optimiser.step()
    optimiser.zero_grad()
    return loss.detach()


def _mean(accelerator: Accelerator, losses: list[torch.Tensor]) -> float:
    """Mean over steps and processes."""
    mean: float = accelerator.reduce(torch.stack(losses).mean().to(accelerator.device), reduction="mean").item()
    return mean


def _accelerator(precision: str) -> Accelerator:
    """Accelerate has one precision for the whole process; later trainings may have another."""
    if AcceleratorState._shared_state and AcceleratorState().mixed_precision != precision:
        AcceleratorState._reset_state()  # processes and devices stay as they are
    return Accelerator(mixed_precision=precision)


def _precision(precision: MixedPrecision) -> str:
    """Name a precision as accelerate does."""
    if precision == "auto":
        return "bf16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "no"
    return {"float32": "no", "float16": "fp16", "bfloat16": "bf16"}[precision]


def _optimiser(objective: nn.Module, settings: ImageTraining) -> torch.optim.Optimizer:
    trained = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimiser == "sgd":
        return torch.optim.SGD(trained, rate, 0.9, weight_decay=decay, nesterov=True)
    return torch.optim.AdamW(trained, rate, weight_decay=decay)


def _set_rate(optimiser: AcceleratedOptimizer, settings: ImageTraining, step: int, steps_per_epoch: int) -> None:
    """Set the learning rate of a step: a function of the step alone, so that it has no state to save."""
    steps, warmup = settings.epochs * steps_per_epoch, settings.warmup_epochs * steps_per_epoch
    for group in optimiser.param_groups:
        group["lr"] = settings.learning_rate * warmup_cosine(step, steps=steps, warmup=warmup)


def _require_steps(steps: int, processes: int) -> int:
    if not steps:
        expected, found = f"a batch for each of {processes} processes", "fewer batches an epoch"
        raise InvalidInput("train on images", expected=expected, found=found, fix="Lower the batch size.")
    return steps
