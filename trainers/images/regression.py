"""Regression: the distance between the target's and the source's embedding of an image is minimised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from compatstore.trainers.images.class_head import ClassHead
from compatstore.trainers.images.compatible import CompatibleTraining, Views
from compatstore.trainers.images.source_model import SourceKnowledge
from compatstore.trainers.settings import NotNegative

Distance = Literal["cosine", "l2"]


@dataclass(frozen=True, kw_only=True)
class Regression(CompatibleTraining):
    """The target's own loss and the distance to the source's embedding of the same view.

    Args:
        distance: "cosine", or "l2": squared, as a share of the mean squared length of the source's embeddings.
        weight: Of the distance, >= 0.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    distance: Distance = "cosine"
    weight: NotNegative = 1.0

    def term(self, known: SourceKnowledge, head: ClassHead) -> nn.Module:
        """Measure the distance."""
        return _Regression(self, known.features)


class _Regression(nn.Module):
    def __init__(self, method: Regression, features: torch.Tensor) -> None:
        super().__init__()
        self.method, self.scale = method, squared_length(features)

    def forward(self, views: Views) -> torch.Tensor:
        if self.method.distance == "cosine":
            return self.method.weight * cosine_distances(views.embeddings, views.source).mean()
        return self.method.weight / self.scale * squared_distances(views.embeddings, views.source).mean()


def cosine_distances(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """1 minus the cosine of each pair: (b, dim) twice -> (b,)."""
    return 1 - functional.cosine_similarity(target, source)


def squared_distances(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Squared distance of each pair, summed over values: (b, dim) twice -> (b,)."""
    return (target - source).square().sum(dim=1)


def squared_length(features: torch.Tensor) -> float:
    """Mean squared length, (n, dim) -> a number: 1 for unit vectors. Squared distances are divided by it."""
    return features.square().sum(dim=1).mean().item()
