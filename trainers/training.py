"""Shared parts of all training loops: progress, seeds, memory errors, and the learning rate of a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from compatstore.errors import InvalidInput


@dataclass(frozen=True)
class EpochProgress:
    """State of a training after an epoch.

    Args:
        network: Trained network: "h" or "g" of a transform, "h, scale 4" where that is tried, "model" of a training on
            images.
        epoch: Epochs done, from 1.
        epochs: Epochs in all.
        loss: Mean loss of this epoch.
        seconds: Since the training of this network began.
        held_out_loss: Loss on rows held out (the first 4,096 of them), or None if none are.
        note: Limits of the method on this data, or "".
    """

    network: str
    epoch: int
    epochs: int
    loss: float
    seconds: float
    held_out_loss: float | None = None
    note: str = ""


OnEpoch = Callable[[EpochProgress], None]
"""The `progress` of every `fit`: called after each epoch."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch within a block; after the block the caller's random state is restored."""
    import torch

    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold torch to one thread within a block, and give the caller's number back after it.

    Networks this small gain next to nothing from a second thread, and on a machine that is busy with other programs
    the threads wait for each other: a short run took 38 s with two threads and 20 s with one.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def within_memory(operation: str) -> Iterator[None]:
    """Turn the error of a network or batch that finds no memory into one that names the settings to lower.

    Raises:
        InvalidInput: The memory of the machine or the device is too small.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch has no type of its own for the memory of a CPU
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        if isinstance(error, RuntimeError) and "out of memory" not in message and "allocate memory" not in message:
            raise
        fix = "Lower dim, width, size or batch_size."
        raise InvalidInput(
            operation, expected="a network and batches that fit into memory", found=message, fix=fix
        ) from error


def warmup_cosine(step: int, *, steps: int, warmup: float) -> float:
    """Return the share of the full learning rate at a step: a linear rise, then half a cosine down to 0.

    Args:
        step: Number of the step, from 0.
        steps: Steps in all.
        warmup: Steps of the rise.

    Returns:
        In (0, 1]; 1 at the end of the rise.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))


def require_finite(operation: str, loss: float, epoch: int) -> float:
    """Return the loss of an epoch.

    Raises:
        InvalidInput: The loss is NaN or infinite.
    """
    if not math.isfinite(loss):
        found = f"{loss} in epoch {epoch}"
        raise InvalidInput(operation, expected="a finite loss", found=found, fix="Lower learning_rate.")
    return loss
