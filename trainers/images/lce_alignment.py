"""LCE, trained jointly: classes of the target have the centres and boundaries that they have in the source."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from compatstore.trainers.images.class_head import ClassHead
from compatstore.trainers.images.compatible import CompatibleTraining, Views
from compatstore.trainers.images.source_model import SourceKnowledge, class_means
from compatstore.trainers.settings import NotNegative


@dataclass(frozen=True, kw_only=True)
class LCEAlignment(CompatibleTraining):
    """Learning compatible embeddings without a transform (Meng et al., ICCV 2021, arXiv 2108.01958).

    The transform of the same paper, trained on pairs, is `LCE`.

    Args:
        alignment: Weight of the distance between the target's class rows and the source's class centres, >= 0.
        boundary: Weight of the loss of items outside of their class's boundary in the source, >= 0.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    alignment: NotNegative = 100.0
    boundary: NotNegative = 1.0

    def term(self, known: SourceKnowledge, head: ClassHead) -> nn.Module:
        """Take centres and boundaries from the source's features of the training images."""
        return _AlignmentAndBoundary(self, known, head)


class _AlignmentAndBoundary(nn.Module):
    def __init__(self, method: LCEAlignment, known: SourceKnowledge, head: ClassHead) -> None:
        super().__init__()
        self.method, self.head = method, head
        centres, cosines = centres_and_boundaries(known.features, known.labels, len(known.rows))
        self.centres, self.cosines = nn.Buffer(centres), nn.Buffer(cosines)

    def forward(self, views: Views) -> torch.Tensor:
        alignment = alignment_loss(self.head.rows, self.centres)
        outside = boundary_loss(views.embeddings, views.labels, self.centres, self.cosines)
        return self.method.alignment * alignment + self.method.boundary * outside


def centres_and_boundaries(
    features: torch.Tensor, labels: torch.Tensor, classes: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Describe the source's classes by direction and width.

    Args:
        features: (n, dim) float32, of the source.
        labels: (n,) int64.
        classes: Number of classes.

    Returns:
        Centres (classes, dim), means of unit features, of unit length; and boundaries (classes,), the least cosine of
        a feature of the class with its centre. A class without features has the centre 0 and no boundary (-inf).
    """
    directions = functional.normalize(features, dim=1)
    centres = functional.normalize(class_means(directions, labels, classes), dim=1)
    cosines = (directions * centres[labels]).sum(dim=1)
    least = torch.full((classes,), torch.inf).scatter_reduce(0, labels, cosines, "amin")
    return centres, least.where(least < torch.inf, -torch.inf)


def alignment_loss(rows: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """Mean squared difference of values of unit rows and centres: (classes, dim) twice -> ()."""
    return functional.mse_loss(functional.normalize(rows, dim=1), centres)


def boundary_loss(
    embeddings: torch.Tensor, labels: torch.Tensor, centres: torch.Tensor, cosines: torch.Tensor
) -> torch.Tensor:
    """Mean over the batch of `max(0, b_y - cos(e, c_y))`: how far an item lies outside of its class's boundary.

    Args:
        embeddings: (b, dim) float32, of the target.
        labels: (b,) int64.
        centres: (classes, dim) float32, of unit length.
        cosines: (classes,) float32: the boundaries b.

    Returns:
        () float32.
    """
    found = functional.cosine_similarity(embeddings, centres[labels])
    return (cosines[labels] - found).clamp_min(0).mean()
