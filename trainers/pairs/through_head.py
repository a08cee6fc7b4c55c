"""Training through the target model's frozen classifier head: the losses, and the methods that have no other loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch.nn import functional

from compatstore.artifacts.architecture import Architecture
from compatstore.boundary import checked_fields
from compatstore.trainers.head_losses import MarginKind, scaled_cosines
from compatstore.trainers.pairs.loop import Batch, Loss, Objective, tensor
from compatstore.trainers.pairs.pairs import Pairs, unit_length
from compatstore.trainers.pairs.training import TransformTraining
from compatstore.trainers.pairs.two_branch import (
    UNKNOWN,
    Prediction,
    class_means,
    given_head,
    logistic_regression,
)
from compatstore.trainers.settings import Count, Positive, Share, from_to
from compatstore.versions import HeadLossKind

HeadOrigin = Literal["given", "fitted"]
Discrimination = HeadLossKind

# Those of the losses' papers.
_SCALE = 64.0
_MARGINS: Mapping[Discrimination, float] = {"arcface": 0.5, "cosface": 0.35}


@dataclass(frozen=True, kw_only=True)
class HeadTraining(TransformTraining):
    """Settings of the methods that classify transformed vectors by a frozen head; they need `Pairs.labels`.

    Args:
        head: "given" takes the target model's own head, "fitted" fits one on the target vectors and labels of the
            pairs; None takes the given one if the pairs have it.
        disc: Loss through the head, "cross-entropy", "arcface" or "cosface". It should be the loss that the target
            model was trained by: None takes that of the target's version, and if it is unknown "arcface" for vectors
            of unit length, else "cross-entropy".
        label_smoothing: Of the cross-entropy, in [0, 1).
        margin: Of "arcface" in radians, of "cosface" as a cosine, in [0, pi/2]. Another than that of the target's own
            training can spoil a hop: None takes that of the target's version, and if it is unknown 0.5 and 0.35, as
            in the losses' papers.
        scale: Multiplies the cosines of both, > 0; None takes 64.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    head: HeadOrigin | None = None
    disc: Discrimination | None = None
    label_smoothing: Share = 0.1
    margin: Annotated[float | None, from_to(0, math.pi / 2)] = None
    scale: Positive | None = None

    @property
    def reads_labels(self) -> bool:
        """True if its loss keeps items in their class, rather than near to their natives."""
        return getattr(self, "loss", "disc") != "l2"

    def objective(self, pairs: Pairs) -> Objective:
        """Choose the head and its loss for these pairs.

        Raises:
            InvalidInput: The pairs lack labels, or a label is no row of the given head.
        """
        disc = self.disc_of(pairs)
        if self.head == "given" or (self.head is None and pairs.head is not None):
            head = given_head(pairs)
        elif disc != "cross-entropy":
            head = class_means(pairs)
        else:
            head = logistic_regression(
                pairs, label_smoothing=self.label_smoothing, seed=self.seed, device=self.torch_device
            )
        rows, resolved = tensor(head.rows).to(self.torch_device), {"disc": disc, "head": head.origin}
        if disc == "cross-entropy":
            error = cross_entropy(rows, label_smoothing=self.label_smoothing)
            return Objective(error=error, head=head, resolved=resolved)
        scale, margin, own = self.scale or _SCALE, self.margin, pairs.head_loss
        if margin is None:
            margin = own.margin if own is not None and own.kind == disc else _MARGINS[disc]
        error = margin_loss(rows, margin=margin, scale=scale, kind=disc)
        return Objective(error=error, head=head, resolved={**resolved, "margin": margin, "scale": scale})

    def disc_of(self, pairs: Pairs) -> Discrimination:
        """The loss through the head on these pairs."""
        own = pairs.head_loss.kind if pairs.head_loss else None
        return self.disc or own or ("arcface" if unit_length(pairs.target) else "cross-entropy")


def cross_entropy(head: torch.Tensor, *, label_smoothing: float) -> Loss:
    """Cross-entropy of the classes that the frozen head predicts for transformed vectors (FastFill, section 4.1).

    Args:
        head: (classes, target dim) float32.
        label_smoothing: Share of the label spread over all classes, in [0, 1).

    Returns:
        The loss of each row.
    """

    def loss(prediction: Prediction, batch: Batch) -> torch.Tensor:
        return _entropy(prediction.vectors @ head.T, batch.classes, label_smoothing)

    return loss


def margin_loss(head: torch.Tensor, *, margin: float, scale: float, kind: MarginKind = "arcface") -> Loss:
    """Cross-entropy of scaled cosines with a margin for the true class: ArcFace or CosFace.

    Args:
        head: (classes, target dim) float32; rows of any length.
        margin: As of `scaled_cosines`.
        scale: Multiplies the cosines, > 0.
        kind: Of the angle (arXiv 1801.07698, equation 3) or of the cosine (arXiv 1801.09414, equation 4).

    Returns:
        The loss of each row.
    """

    def loss(prediction: Prediction, batch: Batch) -> torch.Tensor:
        logits = scaled_cosines(prediction.vectors, head, scale=scale, classes=batch.classes, margin=margin, kind=kind)
        return _entropy(logits, batch.classes, 0.0)

    return loss


def _entropy(logits: torch.Tensor, classes: torch.Tensor | None, label_smoothing: float) -> torch.Tensor:
    if classes is None:
        return logits.new_zeros(len(logits))
    return functional.cross_entropy(
        logits, classes, label_smoothing=label_smoothing, ignore_index=UNKNOWN, reduction="none"
    )


@checked_fields
@dataclass(frozen=True, kw_only=True)
class LCE(HeadTraining):
    """Meng et al., "Learning Compatible Embeddings" (ICCV 2021), as FCT's appendix J re-implements its transform.

    A network trained with cross-entropy through the target's frozen head. The widths of that network are not
    published with the comparison; the default here is ours.

    Args:
        width: Width of both hidden layers, >= 1.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    disc: Discrimination | None = "cross-entropy"
    label_smoothing: Share = 0.0
    width: Count = 512

    def architecture(self, linear: Architecture) -> Architecture:
        """Describe two hidden layers."""
        return replace(linear, mixer=(self.width, self.width))


@checked_fields
@dataclass(frozen=True, kw_only=True)
class DMUHead(HeadTraining):
    """Zhang et al., "Darwinian Model Upgrades: Model Evolving with Selective Compatibility" (AAAI 2023).

    The loss L_FA (equation 11) alone: three layers and a linear output, trained for the target's own loss through its
    head. Here the target model is finished and its head frozen; the paper trains both at once. The loss compares
    classes, not native vectors: it leaves the order among items of one class open.

    Args:
        width: Width of the three hidden layers, >= 1.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    width: Count = 1024

    def architecture(self, linear: Architecture) -> Architecture:
        """Describe three hidden layers."""
        return replace(linear, mixer=(self.width,) * 3)
