"""What the training loops of all families share: progress, seeds, learning rates, and logits of a classifier head."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional

from compatstore.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class EpochProgress:
    """Where a training is after an epoch.

    Args:
        network: What is trained: "h" or "g" of a transform, "h, scale 4" where that is tried, "model" of a training on
            images.
        epoch: Epochs done, from 1.
        epochs: Epochs in all.
        loss: Mean loss of this epoch.
        seconds: Since the training of this network began.
        held_out_loss: Loss on rows held out (the first 4,096 of them), or None where none are.
        note: What the method could not do with the data, or "".
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
def within_memory(asked: str) -> Iterator[None]:
    """Turn the error of a network or batch that finds no memory into one that names the settings to lower.

    Raises:
        InvalidInput: The memory of the machine or the device is too small.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch has no type of its own for the memory of a CPU
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        if not isinstance(error, MemoryError) and not any(
            word in said for word in ("out of memory", "allocate memory")
        ):
            raise
        fix = "Lower dim, width, size or batch_size."
        raise InvalidInput(asked, expected="a network and batches that fit into memory", found=said, fix=fix) from error


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


def require_finite(asked: str, loss: float, epoch: int) -> float:
    """Return the loss of an epoch.

    Raises:
        InvalidInput: The loss is NaN or infinite.
    """
    if not math.isfinite(loss):
        found = f"{loss} in epoch {epoch}"
        raise InvalidInput(asked, expected="a finite loss", found=found, fix="Lower learning_rate.")
    return loss


MarginKind = Literal["arcface", "cosface"]


def scaled_cosines(
    vectors: torch.Tensor,
    rows: torch.Tensor,
    *,
    scale: float,
    classes: torch.Tensor | None = None,
    margin: float = 0.0,
    kind: MarginKind = "arcface",
) -> torch.Tensor:
    """Multiply the cosines of vectors and head rows by a scale, those of true rows less by a margin.

    Args:
        vectors: (n, dim) float32, of any length.
        rows: (classes, dim) float32, of any length.
        scale: Multiplies the cosines, > 0.
        classes: (n,) int64, the true row of each vector, -1 for none; None leaves the cosines as they are.
        margin: Of "arcface", added to the angle between a vector and its true row, in radians, in [0, pi/2] (ArcFace,
            arXiv 1801.07698, equation 3); of "cosface", taken from their cosine, >= 0 (CosFace, arXiv 1801.09414,
            equation 4).
        kind: Which margin.

    Returns:
        (n, classes) float32.
    """
    cosines = functional.normalize(vectors, dim=1) @ functional.normalize(rows, dim=1).T
    if classes is not None:
        is_true = torch.arange(len(rows), device=rows.device) == classes[:, None]
        true = with_margin(cosines, margin) if kind == "arcface" else cosines - margin
        cosines = torch.where(is_true, true, cosines)
    return scale * cosines


def with_margin(cosines: torch.Tensor, margin: float) -> torch.Tensor:
    """Return cos(angle + margin); where that angle would pass pi, a line that keeps falling, as in ArcFace's code."""
    sines = (1 - cosines.square()).clamp_min(1e-12).sqrt()  # the root of 0 has no gradient
    moved = cosines * math.cos(margin) - sines * math.sin(margin)
    return torch.where(cosines >= -math.cos(margin), moved, cosines - margin * math.sin(margin))
