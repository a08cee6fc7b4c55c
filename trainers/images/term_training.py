"""Methods whose loss is the target's own plus one term: what a term sees, and where it is added."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from compatstore.encoders.network import Preprocessing
from compatstore.trainers.images.class_head import ClassHead
from compatstore.trainers.images.compatible import CompatibleTraining
from compatstore.trainers.images.independent import Classification
from compatstore.trainers.images.source_model import FrozenSource, SourceKnowledge


@dataclass(eq=False)
class Views:
    """A batch as a compatibility term sees it.

    Args:
        pixels: (b, c, s, s) uint8, or float32 from 0 to 1: the views that were drawn.
        labels: (b,) int64.
        embeddings: (b, dim) float32, of the target, of unit length where its space is.
        model: The source model.
    """

    pixels: torch.Tensor
    labels: torch.Tensor
    embeddings: torch.Tensor
    model: FrozenSource

    @cached_property
    def source(self) -> torch.Tensor:
        """(b, dim) float32: the source's embeddings of the same views, computed when a term asks; no gradient."""
        features: torch.Tensor = self.model(self.pixels)
        return features


@dataclass(frozen=True, kw_only=True)
class TermTraining(CompatibleTraining, ABC):
    """A method whose loss is the target's own plus one term."""

    def objective(
        self, network: nn.Module, preprocessing: Preprocessing, source: FrozenSource, known: SourceKnowledge
    ) -> CompatibleObjective:
        """Add the term to the target's own loss."""
        return CompatibleObjective(self, network, preprocessing, source, known)

    @abstractmethod
    def term(self, known: SourceKnowledge, head: ClassHead) -> nn.Module:
        """Make the compatibility term, (Views) -> scalar; its parameters are trained.

        Args:
            known: What the source makes of the training images.
            head: The target's own.
        """


class CompatibleObjective(Classification):
    """The target's own loss and the compatibility term: (b, c, s, s) uint8 and (b,) labels -> scalar.

    Args:
        method: Whose term it is.
        network: (b, c, s, s) float32 -> (b, dim).
        preprocessing: From pixels to the input of the network.
        source: Embeds the same views; no gradients.
        known: What the source makes of the training images.
    """

    def __init__(
        self,
        method: TermTraining,
        network: nn.Module,
        preprocessing: Preprocessing,
        source: FrozenSource,
        known: SourceKnowledge,
    ) -> None:
        super().__init__(method, network, preprocessing, method.augmentation, len(known.rows))
        self.source, self.term = source, method.term(known, self.head)

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Loss of a batch, ()."""
        views = self.views(pixels)
        embeddings = self.embed(views)
        with torch.autocast(pixels.device.type, enabled=False):
            own: torch.Tensor = self.head(embeddings, labels)
            term: torch.Tensor = self.term(Views(views, labels, embeddings, self.source))
        return own + term
