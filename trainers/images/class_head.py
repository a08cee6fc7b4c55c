"""A classifier's head: a row for each class, and the loss that these give embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import nn
from torch.nn import functional

from compatstore.arrays import FloatArray
from compatstore.trainers.images.recipe import Recipe
from compatstore.trainers.pairs.head_losses import with_margin

Head = Literal["linear", "cosine", "arcface"]


@dataclass(frozen=True, kw_only=True)
class ClassifierRecipe(Recipe):
    """What all trainers share that learn from classes: how an embedding is classified.

    Args:
        head: "linear" (cross-entropy of a plain product, no bias), or for embeddings of unit length "cosine"
            (softmax over scaled cosines) or "arcface" (the same with an angular margin).
        scale: Multiplies the cosines of "cosine" and "arcface", > 0.
        margin: Of "arcface", in radians, 0 to 1.5.
        label_smoothing: Of "linear", 0 to 1.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    head: Head = "linear"
    scale: float = 16.0
    margin: float = 0.3
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            {
                f"head of {get_args(Head)}": self.head in get_args(Head),
                "scale > 0": self.scale > 0,
                "margin from 0 to 1.5": 0 <= self.margin <= 1.5,
                "label_smoothing from 0 to 1": 0 <= self.label_smoothing <= 1,
            }
        )

    @property
    def normalise(self) -> bool:
        """Whether embeddings have unit length."""
        return self.head != "linear"

    def losses(self, embeddings: torch.Tensor, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Classification loss of each embedding through a head.

        Args:
            embeddings: (b, dim) float32; of any length, also where the head takes cosines.
            rows: (classes, dim) float32, likewise.
            labels: (b,) int64, a row each.

        Returns:
            (b,) float32: cross-entropy of `e . w` ("linear"), of `scale cos(e, w)` ("cosine"), or of the latter with
            the angle to the true row larger by the margin ("arcface", arXiv 1801.07698, equation 3).
        """
        if self.head == "linear":
            smoothing = self.label_smoothing
            return functional.cross_entropy(embeddings @ rows.T, labels, reduction="none", label_smoothing=smoothing)
        cosines = functional.normalize(embeddings, dim=1) @ functional.normalize(rows, dim=1).T
        if self.head == "arcface":
            is_true = functional.one_hot(labels, len(rows)).bool()
            cosines = torch.where(is_true, with_margin(cosines, self.margin), cosines)
        return functional.cross_entropy(self.scale * cosines, labels, reduction="none")


class ClassHead(nn.Module):
    """A head that is trained.

    Attributes:
        rows: (classes, dim) float32.

    Args:
        recipe: How it classifies, and its dimension.
        classes: Number of rows, which start at random.
    """

    def __init__(self, recipe: ClassifierRecipe, classes: int) -> None:
        super().__init__()
        self.recipe = recipe
        # Short rows in all directions, also where only the direction counts: a step turns a short row further.
        self.rows = nn.Linear(recipe.dim, classes, bias=False).weight

    def forward(self, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Mean loss, (), of (b, dim) embeddings and (b,) labels."""
        return self.recipe.losses(embeddings, self.rows, labels).mean()

    def to_numpy(self) -> FloatArray:
        """(classes, dim) float32; of unit length where embeddings are."""
        rows = functional.normalize(self.rows, dim=1) if self.recipe.normalise else self.rows
        array: FloatArray = rows.detach().cpu().float().contiguous().numpy()
        return array
