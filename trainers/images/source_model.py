"""The source model in a compatible training: frozen, its vectors filled up with zeros to the target's length."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from compatstore.encoders.network import NetworkEncoder
from compatstore.trainers.images.images import Images
from compatstore.trainers.images.trained_model import TrainedModel

SourceRows = Literal["auto", "head", "means", "plain-means"]

# ITU-R BT.601, as Pillow converts colours to grey.
_GREY = (0.299, 0.587, 0.114)


class FrozenSource(nn.Module):
    """Embeds the views that the target is trained on, as the source's own encoder would.

    Weights get no gradients. Statistics stay in evaluation mode, also while the target is trained. Vectors are filled
    up with zeros to the target's length, as BCT(+d) compares them.

    Args:
        encoder: Of the source; copied.
        dim: Length of the target's embeddings, at least the source's.
    """

    def __init__(self, encoder: NetworkEncoder, dim: int) -> None:
        super().__init__()
        self.network = copy.deepcopy(encoder.module).cpu().requires_grad_(False)
        self.preprocessing, self.normalise = encoder.preprocessing, encoder.normalise
        self.source_dim, self.dim = encoder.dim, dim
        self.eval()

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, views: torch.Tensor) -> torch.Tensor:
        """Embed views of another model's size and colours.

        Args:
            views: (b, c, s, s) uint8, or float32 from 0 to 1.

        Returns:
            (b, dim) float32, zeros beyond the source's own dimension.
        """
        images = self._sized(self._coloured(views if views.is_floating_point() else views.float() / 255))
        embeddings = self.network(self.preprocessing.scale(images)).float()
        return padded(functional.normalize(embeddings, dim=1) if self.normalise else embeddings, self.dim)

    def _coloured(self, images: torch.Tensor) -> torch.Tensor:
        if images.shape[1] == self.preprocessing.channels:
            return images
        if self.preprocessing.channels == 3:
            return images.expand(-1, 3, -1, -1)
        return (images * images.new_tensor(_GREY).view(1, 3, 1, 1)).sum(dim=1, keepdim=True)

    def _sized(self, images: torch.Tensor) -> torch.Tensor:
        size = (self.preprocessing.size, self.preprocessing.size)
        if images.shape[2:] == size:
            return images
        return functional.interpolate(images, size, mode="bilinear", antialias=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class SourceKnowledge:
    """What the source predicts for the images that the target is trained on.

    Args:
        rows: (classes, dim) float32: a source head for all classes of the target, zeros beyond the source's dimension.
        features: (n, dim) float32: the images embedded by the source, zeros beyond the source's dimension.
        labels: (n,) int64: their classes.
        known: (classes,) bool: whether the source was itself trained on the class.
    """

    rows: torch.Tensor
    features: torch.Tensor
    labels: torch.Tensor
    known: torch.Tensor

    @classmethod
    def of(cls, source: TrainedModel, images: Images, *, dim: int, take: SourceRows = "auto") -> Self:
        """Embed the images, and give every class of them a row.

        Args:
            source: The source model.
            images: The target's training images.
            dim: Length of the target's embeddings.
            take: "head" takes the source's own rows, and the mean source feature of its images for a class that the
                source does not know; "means" takes means for all; "auto" the head where it knows all classes, else
                means, because rows of both kinds separate classes that are near each other. A mean is scaled to the
                mean length of the source's rows, so that all rows have equal weight; "plain-means" are not scaled.
        """
        features = source.encoder.encode(list(images.images))
        labels, names = np.asarray(images.labels), images.class_names
        rows = class_means(torch.from_numpy(features), torch.from_numpy(labels), len(names))
        if take != "plain-means":
            rows = float(np.linalg.norm(source.head, axis=1).mean()) * functional.normalize(rows, dim=1)
        known = torch.tensor([name in source.class_names for name in names])
        if take == "head" or (take == "auto" and bool(known.all())):
            for row in torch.nonzero(known).flatten().tolist():
                rows[row] = torch.from_numpy(source.head[source.class_names.index(names[row])])
        return cls(
            rows=padded(rows, dim),
            features=padded(torch.from_numpy(features), dim),
            labels=torch.from_numpy(labels),
            known=known,
        )


def class_means(features: torch.Tensor, labels: torch.Tensor, classes: int) -> torch.Tensor:
    """Mean feature of each class: (n, d) and (n,) -> (classes, d); zeros for a class without features."""
    sums = features.new_zeros(classes, features.shape[1]).index_add_(0, labels, features)
    return sums / torch.bincount(labels, minlength=classes).clamp_min(1)[:, None]


def padded(vectors: torch.Tensor, dim: int) -> torch.Tensor:
    """Fill up with zeros: (n, d) -> (n, dim)."""
    return functional.pad(vectors, (0, dim - vectors.shape[1]))
