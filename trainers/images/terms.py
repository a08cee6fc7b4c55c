"""Published compatibility terms: through classes of the source, or between embeddings of target and source.

`BCT` and `UniBCT` train the target through rows of the source as well as its own. `Regression` and `FocalDistillation`
compare an image's own two embeddings, `RACT` contrasts them with other classes, and `LCEAlignment` compares an
embedding with the centre and the boundary of its class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch.nn import functional

from compatstore.boundary import checked_fields
from compatstore.trainers.images.classification import ClassHead
from compatstore.trainers.images.compatible import (
    CompatibilityTerm,
    CompatibleTraining,
    SourceKnowledge,
    Views,
    class_means,
)
from compatstore.trainers.settings import NotNegative, Positive, Rule

Distance = Literal["cosine", "l2"]
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

    def term(self, known: SourceKnowledge, head: ClassHead) -> CompatibilityTerm:
        """Classify through the source's rows."""
        return through_rows(self, known.rows)


def through_rows(method: BCT | UniBCT, rows: torch.Tensor) -> CompatibilityTerm:
    """The classification loss of the target's embeddings through rows (classes, dim) that are not trained."""

    def loss(views: Views, rows: torch.Tensor) -> torch.Tensor:
        return method.weight * method.losses(views.embeddings, rows, views.labels).mean()

    return CompatibilityTerm(loss, rows=rows)


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

    def term(self, known: SourceKnowledge, head: ClassHead) -> CompatibilityTerm:
        """Classify through the prototypes, scaled to the mean length of the source's rows."""
        refined = refined_features(known.features, known.labels, temperature=self.temperature, restart=self.restart)
        means = functional.normalize(class_means(refined, known.labels, len(known.rows)), dim=1)
        return through_rows(self, known.rows.norm(dim=1).mean() * means)


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


@checked_fields
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

    def term(self, known: SourceKnowledge, head: ClassHead) -> CompatibilityTerm:
        """Measure the distance."""
        scale = squared_lengths(known.features).mean().item()

        def loss(views: Views) -> torch.Tensor:
            if self.distance == "cosine":
                return self.weight * (1 - functional.cosine_similarity(views.embeddings, views.source)).mean()
            return self.weight / scale * squared_lengths(views.embeddings - views.source).mean()

        return CompatibilityTerm(loss)


def squared_lengths(vectors: torch.Tensor) -> torch.Tensor:
    """(b, dim) -> (b,)."""
    return vectors.square().sum(dim=1)


@checked_fields
@dataclass(frozen=True, kw_only=True)
class FocalDistillation(CompatibleTraining):
    """Focal distillation (Yan et al., arXiv 2011.09161, equation 4), on embeddings: `(alpha + beta [right]) d^2`.

    `d^2` is the squared distance to the source's embedding of the same view, as a share of the mean squared length of
    the source's embeddings, and `[right]` is 1 if the source's head classifies that embedding correctly, else 0.

    Args:
        alpha: Weight of every item, >= 0.
        beta: Added weight if the source is right, >= 0.
        weight: Of the whole, >= 0.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    alpha: NotNegative = 1.0
    beta: NotNegative = 5.0
    weight: NotNegative = 1.0

    def term(self, known: SourceKnowledge, head: ClassHead) -> CompatibilityTerm:
        """Weigh the distance by the source's own predictions."""
        scale = squared_lengths(known.features).mean().item()

        def loss(views: Views, rows: torch.Tensor) -> torch.Tensor:
            right = (views.source @ rows.T).argmax(dim=1) == views.labels
            distances = squared_lengths(views.embeddings - views.source)
            return self.weight / scale * ((self.alpha + self.beta * right) * distances).mean()

        return CompatibilityTerm(loss, rows=known.rows)


@checked_fields
@dataclass(frozen=True, kw_only=True)
class RACT(CompatibleTraining):
    """Regression-alleviating compatible training (Zhang et al., arXiv 2201.09724), also called Contrast.

    Its gallery is backfilled in the order of the source head's entropy: policy "entropy".

    Args:
        temperature: Of the contrast, > 0: 0.01 in public code, 0.5 in FastFill's implementation.
        weight: Of the contrast, >= 0.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    temperature: Positive = 0.01
    weight: NotNegative = 1.0

    def term(self, known: SourceKnowledge, head: ClassHead) -> CompatibilityTerm:
        """Contrast with the source's embeddings of the same views."""
        return CompatibilityTerm(
            lambda views: self.weight * contrast(views.embeddings, views.source, views.labels, self.temperature)
        )


def contrast(target: torch.Tensor, source: torch.Tensor, labels: torch.Tensor, temperature: float) -> torch.Tensor:
    """InfoNCE over both spaces.

    With cosines c, `-log e^{c(t_i, s_i)/T} / (e^{c(t_i, s_i)/T} + sum_k e^{c(t_i, s_k)/T} + e^{c(t_i, t_k)/T})`, k over
    the items of other classes than i's.

    Args:
        target: (b, dim) float32.
        source: (b, dim) float32, of the same items.
        labels: (b,) int64.
        temperature: T.

    Returns:
        Mean over the batch, ().
    """
    target, source = functional.normalize(target, dim=1), functional.normalize(source, dim=1)
    across, within = target @ source.T / temperature, target @ target.T / temperature
    same = labels[:, None] == labels
    negatives = torch.cat([across, within], dim=1).masked_fill(same.repeat(1, 2), -torch.inf)
    logits = torch.cat([across.diagonal()[:, None], negatives], dim=1)
    return functional.cross_entropy(logits, torch.zeros_like(labels))


@checked_fields
@dataclass(frozen=True, kw_only=True)
class LCEAlignment(CompatibleTraining):
    """Learning compatible embeddings without a transform (Meng et al., ICCV 2021, arXiv 2108.01958).

    The terms are the mean squared difference of the values of unit class rows and unit source centres, and the mean
    over the batch of `max(0, b_y - cos(e, c_y))`, the distance of an item outside of its class's boundary b. The
    transform of the same paper, trained on pairs, is `LCE`.

    Args:
        alignment: Weight of the distance between the target's class rows and the source's class centres, >= 0.
        boundary: Weight of the loss of items outside of their class's boundary in the source, >= 0.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    alignment: NotNegative = 100.0
    boundary: NotNegative = 1.0

    def term(self, known: SourceKnowledge, head: ClassHead) -> CompatibilityTerm:
        """Take centres and boundaries from the source's features of the training images."""
        centres, cosines = centres_and_boundaries(known.features, known.labels, len(known.rows))

        def loss(views: Views, centres: torch.Tensor, cosines: torch.Tensor) -> torch.Tensor:
            apart = functional.mse_loss(functional.normalize(head.rows, dim=1), centres)
            found = functional.cosine_similarity(views.embeddings, centres[views.labels])
            outside = (cosines[views.labels] - found).clamp_min(0).mean()
            return self.alignment * apart + self.boundary * outside

        return CompatibilityTerm(loss, centres=centres, cosines=cosines)


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
