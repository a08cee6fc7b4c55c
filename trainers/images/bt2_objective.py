"""What BT^2 minimises: a batch of images, or of images with given source vectors, -> a scalar."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize

from compatstore.arrays import FloatArray
from compatstore.encoders.backbones.basis_network import BasisNetwork, Parts
from compatstore.encoders.network import Preprocessing
from compatstore.trainers.images.class_head import ClassHead
from compatstore.trainers.images.images import Images
from compatstore.trainers.images.independent import Classification
from compatstore.trainers.images.source_model import FrozenSource, class_means

if TYPE_CHECKING:
    from compatstore.trainers.images.bt2 import BT2


class BT2Objective(Classification):
    """(b, c, s, s) uint8 and (b,) labels -> scalar.

    Args:
        method: Its settings.
        network: A `BasisNetwork`.
        preprocessing: From pixels to the input of the network.
        rows: (classes, n) float32, the source's head.
        source: Embeds the same views; no gradients. None where a subclass has the source's vectors.
        goal: The independent target, which embeds the same views; None leaves its term out.
    """

    def __init__(
        self,
        method: BT2,
        network: nn.Module,
        preprocessing: Preprocessing,
        rows: torch.Tensor,
        source: FrozenSource | None,
        goal: FrozenSource | None,
    ) -> None:
        super().__init__(method, network, preprocessing, method.augmentation, len(rows))
        self.method, self.source, self.goal, self.rows = method, source, goal, nn.Buffer(rows)
        if method.classified == "target":
            self.head = ClassHead(method.independent(), len(rows))
        for basis in (self.bases.basis1, self.bases.basis2):
            parametrizations.orthogonal(basis, orthogonal_map="matrix_exp")

    @property
    def bases(self) -> BasisNetwork:
        """The network, as its type."""
        assert isinstance(self.network, BasisNetwork)
        return self.network

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Loss of a batch, ()."""
        views = self.views(pixels)
        assert self.source is not None
        return self.loss_of(views, labels, self.source(views)[:, : self.source.source_dim])

    def loss_of(self, views: torch.Tensor, labels: torch.Tensor, of_source: torch.Tensor) -> torch.Tensor:
        """Loss of views (b, c, s, s), given the source's vectors of the same items, (b, n)."""
        parts = self.bases.parts(self.preprocessing.scale(views))
        goal = None if self.goal is None else self.goal(views)
        with torch.autocast(views.device.type, enabled=False):
            return self.loss(Parts(*(part.float() for part in parts)), labels, of_source, goal)

    def loss(
        self, parts: Parts, labels: torch.Tensor, of_source: torch.Tensor, goal: torch.Tensor | None
    ) -> torch.Tensor:
        """`L(kappa, phi_3) + l_1 (1 - cos(phi_3, phi'_t)) + l_2 L(w_s, phi_5) + l_3 (1 - cos(phi_5, phi_s))`.

        Args:
            parts: phi_3 (b, m), phi_5 (b, n) and the output (b, m + d).
            labels: (b,) int64.
            of_source: phi_s, (b, n).
            goal: phi'_t, (b, m), or None.
        """
        method = self.method
        classified = parts.output if method.classified == "output" else parts.target
        loss: torch.Tensor = self.head(classified, labels)
        if goal is not None:
            loss = loss + method.target_weight * cosine_distance(parts.target, goal)
        through = method.losses(parts.compared, self.rows, labels).mean()
        return loss + method.head_weight * through + method.source_weight * cosine_distance(parts.compared, of_source)

    def finished(self) -> nn.Module:
        """Return the network with its bases as plain matrices."""
        for basis in (self.bases.basis1, self.bases.basis2):
            if parametrize.is_parametrized(basis):
                parametrize.remove_parametrizations(basis, "weight")
        return self.network

    def class_rows(self) -> FloatArray:
        """(classes, m + d) float32: logits of the output, up to a positive scale; phi_3 is a linear map of it."""
        rows = self.head.to_numpy()
        if self.method.classified == "output":
            return rows
        moved: FloatArray = rows @ self.bases.target_map().cpu().float().numpy()
        return moved


class AcrossObjective(BT2Objective):
    """(b, c, s, s) uint8 and (b,) positions of the images -> scalar.

    Args:
        method: Its settings.
        network: A `BasisNetwork`.
        preprocessing: From pixels to the input of the network.
        images: n images; their classes are what the head classifies.
        vectors: (n, dim) float32, of the source, in the images' order.
        goal: The independent target, which embeds the same views.
    """

    def __init__(
        self,
        method: BT2,
        network: nn.Module,
        preprocessing: Preprocessing,
        images: Images,
        vectors: torch.Tensor,
        goal: FrozenSource,
    ) -> None:
        labels = torch.from_numpy(np.asarray(images.labels))
        rows = class_means(vectors, labels, len(images.class_names))
        super().__init__(method, network, preprocessing, rows, None, goal)
        self.labels, self.vectors = nn.Buffer(labels, persistent=False), nn.Buffer(vectors, persistent=False)

    def forward(self, pixels: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Loss of a batch, ()."""
        return self.loss_of(self.views(pixels), self.labels[positions], self.vectors[positions])


def cosine_distance(vectors: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Mean of 1 - cosine over pairs of rows, ()."""
    return (1 - functional.cosine_similarity(vectors, others)).mean()
