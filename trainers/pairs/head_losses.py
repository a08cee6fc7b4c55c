"""The target model's own training losses, through its frozen head: they keep a transformed item in its class."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from compatstore.trainers.pairs.losses import Batch, Loss
from compatstore.trainers.pairs.two_branch import Prediction

# Class of a row that the head does not know; its loss is 0.
UNKNOWN = -1


def cross_entropy(head: torch.Tensor, *, label_smoothing: float) -> Loss:
    """Cross-entropy of the classes that the frozen head gives a prediction (FastFill, section 4.1).

    Args:
        head: (classes, target dim) float32.
        label_smoothing: Share of the label spread over all classes, in [0, 1).

    Returns:
        The loss of each row.
    """

    def loss(prediction: Prediction, batch: Batch) -> torch.Tensor:
        return _entropy(prediction.vectors @ head.T, batch.classes, label_smoothing)

    return loss


def arcface(head: torch.Tensor, *, margin: float, scale: float) -> Loss:
    """Cross-entropy of scaled cosines, the true class at an angle larger by a margin (ArcFace, arXiv 1801.07698).

    Args:
        head: (classes, target dim) float32; rows of any length.
        margin: Added to the angle between a prediction and its class, in radians, in [0, pi/2].
        scale: Multiplies the cosines, > 0.

    Returns:
        The loss of each row.
    """
    directions = functional.normalize(head, dim=1)
    index = torch.arange(len(head), device=head.device)

    def loss(prediction: Prediction, batch: Batch) -> torch.Tensor:
        cosines = functional.normalize(prediction.vectors, dim=1) @ directions.T
        is_true = None if batch.classes is None else index == batch.classes[:, None]
        logits = cosines if is_true is None else torch.where(is_true, with_margin(cosines, margin), cosines)
        return _entropy(scale * logits, batch.classes, 0.0)

    return loss


def with_margin(cosines: torch.Tensor, margin: float) -> torch.Tensor:
    """cos(angle + margin); where that angle would pass pi, a line that goes on falling (as ArcFace's authors do)."""
    sines = (1 - cosines.square()).clamp_min(1e-12).sqrt()  # the root of 0 has no gradient
    moved = cosines * math.cos(margin) - sines * math.sin(margin)
    return torch.where(cosines >= -math.cos(margin), moved, cosines - margin * math.sin(margin))


def _entropy(logits: torch.Tensor, classes: torch.Tensor | None, label_smoothing: float) -> torch.Tensor:
    if classes is None:
        return logits.new_zeros(len(logits))
    return functional.cross_entropy(
        logits, classes, label_smoothing=label_smoothing, ignore_index=UNKNOWN, reduction="none"
    )
