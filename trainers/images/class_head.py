"""A classifier's head: a row for each class, and the classification loss of embeddings through the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import nn
from torch.nn import functional

from compatstore.arrays import FloatArray
from compatstore.trainers.head_losses import scaled_cosines
from compatstore.trainers.settings import Count, Positive, from_to

HeadKind = Literal["linear", "cosine", "arcface"]


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """Settings of every trainer that learns from classes: how an embedding is classified.

    Args:
        dim: Length of an embedding, >= 1.
        head: "linear" (cross-entropy of a plain product, no bias), or for embeddings of unit length "cosine"
            (softmax over scaled cosines) or "arcface" (the same with an angular margin).
        scale: Multiplies the cosines of "cosine" and "arcface", > 0.
        margin: Of "arcface", in radians, 0 to 1.5.
        label_smoothing: Of "linear", 0 to 1.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    dim: Count
    head: HeadKind = "linear"
    scale: Positive = 16.0
    margin: Annotated[float, from_to(0, 1.5)] = 0.3
    label_smoothing: Annotated[float, from_to(0, 1)] = 0.0

    @property
    def normalise(self) -> bool:
        """Whether embeddings have unit length."""
        return self.head != "linear"

    def losses(self, embeddings: torch.Tensor, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Classification loss of each embedding through a head.

        Args:
            embeddings: (b, dim) float32; of any length, also where the head takes cosines.
            rows: (classes, dim) float32, of any length.
            labels: (b,) int64, a row each.

        Returns:
            (b,) float32: cross-entropy of `e . w` ("linear"), of `scale cos(e, w)` ("cosine"), or of the latter with
            the angle to the true row larger by the margin ("arcface", arXiv 1801.07698, equation 3).
        """
        if self.head == "linear":
            smoothing = self.label_smoothing
            return functional.cross_entropy(embeddings @ rows.T, labels, reduction="none", label_smoothing=smoothing)
        true = labels if self.head == "arcface" else None
        logits = scaled_cosines(embeddings, rows, scale=self.scale, classes=true, margin=self.margin)
        return functional.cross_entropy(logits, labels, reduction="none")


class ClassHead(nn.Module):
    """A head that is trained.

    Attributes:
        rows: (classes, dim) float32.

    Args:
        classifier: How embeddings are classified, and their length.
        classes: Number of rows, which start at random.
    """

    def __init__(self, classifier: Classifier, classes: int) -> None:
        super().__init__()
        self.classifier = classifier
        # Rows are short at first, also where only the direction counts: a step turns a short row further.
        self.rows = nn.Linear(classifier.dim, classes, bias=False).weight

    def forward(self, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Mean loss, (), of (b, dim) embeddings and (b,) labels."""
        return self.classifier.losses(embeddings, self.rows, labels).mean()

    def to_numpy(self) -> FloatArray:
        """(classes, dim) float32; of unit length where embeddings are."""
        rows = functional.normalize(self.rows, dim=1) if self.classifier.normalise else self.rows
        array: FloatArray = rows.detach().cpu().float().contiguous().numpy()
        return array
