"""Focal distillation: regression to the source, with more weight on items that the source classifies rightly."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from compatstore.trainers.images.class_head import ClassHead
from compatstore.trainers.images.compatible import CompatibleTraining, Views
from compatstore.trainers.images.regression import squared_distances, squared_length
from compatstore.trainers.images.source_model import SourceKnowledge
from compatstore.trainers.settings import NotNegative


@dataclass(frozen=True, kw_only=True)
class FocalDistillation(CompatibleTraining):
    """Focal distillation (Yan et al., arXiv 2011.09161, equation 4), on embeddings: `(alpha + beta [right]) d^2`.

    `d^2` is the squared distance to the source's embedding of the same view, as a share of the mean squared length of
    the source's embeddings, and `[right]` whether the source's head classifies that embedding rightly.

    Args:
        alpha: Weight of every item, >= 0.
        beta: Added where the source is right, >= 0.
        weight: Of the whole, >= 0.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    alpha: NotNegative = 1.0
    beta: NotNegative = 5.0
    weight: NotNegative = 1.0

    def term(self, known: SourceKnowledge, head: ClassHead) -> nn.Module:
        """Weigh the distance by the source's own predictions."""
        return _Focus(self, known)


class _Focus(nn.Module):
    def __init__(self, method: FocalDistillation, known: SourceKnowledge) -> None:
        super().__init__()
        self.method, self.rows, self.scale = method, nn.Buffer(known.rows), squared_length(known.features)

    def forward(self, views: Views) -> torch.Tensor:
        right = (views.source @ self.rows.T).argmax(dim=1) == views.labels
        alpha, beta = self.method.alpha, self.method.beta
        loss = focal_distillation(views.embeddings, views.source, right, alpha, beta)
        return self.method.weight / self.scale * loss


def focal_distillation(
    target: torch.Tensor, source: torch.Tensor, right: torch.Tensor, alpha: float, beta: float
) -> torch.Tensor:
    """Mean over the batch of `(alpha + beta [right]) |t - s|^2`.

    Args:
        target: (b, dim) float32.
        source: (b, dim) float32, of the same items.
        right: (b,) bool, whether the source classifies the item rightly.
        alpha: Weight of every item.
        beta: Added where the source is right.

    Returns:
        () float32.
    """
    return ((alpha + beta * right) * squared_distances(target, source)).mean()
