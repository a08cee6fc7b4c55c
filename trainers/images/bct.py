"""BCT: the target is trained through the source's frozen head as well as through its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from compatstore.trainers.images.class_head import ClassHead, Classifier
from compatstore.trainers.images.compatible import CompatibleTraining, Views
from compatstore.trainers.images.source_model import SourceKnowledge
from compatstore.trainers.settings import NotNegative


@dataclass(frozen=True, kw_only=True)
class BCT(CompatibleTraining):
    """Backward-compatible training (Shen et al., arXiv 2003.11942): `L(kappa_t) + weight L(w_s)`.

    With a `dim` above the source's it is BCT(+d): the source's head is filled up with zeros.

    Args:
        weight: Of the loss through the source's head, >= 0.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    weight: NotNegative = 1.0

    def term(self, known: SourceKnowledge, head: ClassHead) -> nn.Module:
        """Classify through the source's rows."""
        return ThroughRows(self, known.rows, self.weight)


class ThroughRows(nn.Module):
    """The classification loss of the target's embeddings through rows that are not trained.

    Args:
        classifier: How to classify.
        rows: (classes, dim) float32.
        weight: Multiplies the loss.
    """

    def __init__(self, classifier: Classifier, rows: torch.Tensor, weight: float) -> None:
        super().__init__()
        self.classifier, self.weight, self.rows = classifier, weight, nn.Buffer(rows)

    def forward(self, views: Views) -> torch.Tensor:
        """Loss of a batch, ()."""
        return self.weight * self.classifier.losses(views.embeddings, self.rows, views.labels).mean()
