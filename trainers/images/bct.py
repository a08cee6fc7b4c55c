"""Compatibility through the source's classes: the target is trained through rows of the source as well as its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import nn
from torch.nn import functional

from compatstore.boundary import checked_fields
from compatstore.trainers.images.classification import ClassHead, Classifier
from compatstore.trainers.images.compatible import CompatibleTraining, Views
from compatstore.trainers.images.source_model import SourceKnowledge, class_means
from compatstore.trainers.settings import NotNegative, Positive, Rule

_RESTART = Rule("above 0 to 1", lambda value: 0 < value <= 1)


@checked_fields
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


@checked_fields
@dataclass(frozen=True, kw_only=True)
class UniBCT(CompatibleTraining):
    """Universal backward-compatible training (Zhang et al., IJCAI 2022, arXiv 2203.01583).

    The source's features of new images are noisy, most of all those of classes that it was not trained on. The
    features of one class form a graph, and a random walk on it moves each feature towards those that many others of
    its class resemble; means of the refined features take the place of BCT's source head.

    Args:
        temperature: Divides the cosines that transitions are made of, > 0.
        restart: Share of the original feature in a refined one, above 0 to 1; at 1 these are plain class means.
        weight: Of the loss through the prototypes, >= 0.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    temperature: Positive = 0.1
    restart: Annotated[float, _RESTART] = 0.1
    weight: NotNegative = 1.0

    def term(self, known: SourceKnowledge, head: ClassHead) -> nn.Module:
        """Classify through the prototypes, scaled to the mean length of the source's rows."""
        refined = refined_features(known.features, known.labels, temperature=self.temperature, restart=self.restart)
        means = functional.normalize(class_means(refined, known.labels, len(known.rows)), dim=1)
        return ThroughRows(self, known.rows.norm(dim=1).mean() * means, self.weight)


def refined_features(
    features: torch.Tensor, labels: torch.Tensor, *, temperature: float, restart: float
) -> torch.Tensor:
    """Walk at random within each class, with restarts, to the limit: `r (I - (1 - r) P)^-1 F`.

    `P_ij = exp(cos(f_i, f_j) / T)`, rows adding up to 1, over the features of one class.

    Args:
        features: (n, dim) float32.
        labels: (n,) int64.
        temperature: T.
        restart: r.

    Returns:
        (n, dim) float32.
    """
    refined = torch.empty_like(features)
    for label in set(labels.tolist()):
        members = labels == label
        own = features[members].double()
        directions = functional.normalize(own, dim=1)
        transition = (directions @ directions.T / temperature).softmax(dim=1)
        identity = torch.eye(len(own), dtype=own.dtype)
        refined[members] = torch.linalg.solve(identity - (1 - restart) * transition, restart * own).float()
    return refined
