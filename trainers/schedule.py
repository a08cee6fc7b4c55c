"""Learning rate over the steps of a training."""

from __future__ import annotations

import math


def warmup_cosine(step: int, *, steps: int, warmup: float) -> float:
    """Return the share of the full learning rate at a step: a linear rise, then half a cosine down to 0.

    Args:
        step: The step at hand, from 0.
        steps: Steps in all.
        warmup: Steps of the rise.

    Returns:
        In (0, 1]; 1 at the end of the rise.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))
