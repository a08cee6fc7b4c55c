"""Training through the target model's frozen head: which head, and which loss of its classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from compatstore.trainers.pairs.head import Head, class_means, given_head, logistic_regression
from compatstore.trainers.pairs.head_losses import arcface, cross_entropy
from compatstore.trainers.pairs.loop import require_settings
from compatstore.trainers.pairs.losses import Loss
from compatstore.trainers.pairs.objective import Objective
from compatstore.trainers.pairs.pairs import Pairs, unit_length
from compatstore.trainers.pairs.training import TransformTraining

HeadOrigin = Literal["given", "fitted"]
Discrimination = Literal["cross-entropy", "arcface"]


@dataclass(frozen=True, kw_only=True)
class HeadTraining(TransformTraining):
    """What methods share that look at transformed vectors through a head; they need `Pairs.labels`.

    Args:
        head: "given" takes the target model's own, "fitted" fits one on the target vectors and labels of the pairs;
            None takes the given one where the pairs have it.
        disc: Loss through the head, "cross-entropy" or "arcface"; None takes the latter where target vectors have
            unit length. It should be the one that the target model was trained with.
        label_smoothing: Of the cross-entropy, in [0, 1).
        margin: Of ArcFace, in radians, in [0, pi/2].
        scale: Of ArcFace's cosines, > 0.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    head: HeadOrigin | None = None
    disc: Discrimination | None = None
    label_smoothing: float = 0.1
    margin: float = 0.5
    scale: float = 64.0

    def __post_init__(self) -> None:
        super().__post_init__()
        rules = {
            f"head of {get_args(HeadOrigin)}": self.head in (None, *get_args(HeadOrigin)),
            f"disc of {get_args(Discrimination)}": self.disc in (None, *get_args(Discrimination)),
            "label_smoothing in [0, 1)": 0 <= self.label_smoothing < 1,
            "margin in [0, pi/2]": 0 <= self.margin <= math.pi / 2,
            "scale > 0": self.scale > 0,
        }
        require_settings(type(self).__name__, rules)

    def objective(self, pairs: Pairs) -> Objective:
        """Train for the loss through the head alone.

        Raises:
            InvalidInput: The pairs lack labels, or labels are no rows of the given head.
        """
        disc = self.discrimination(pairs)
        head = self.head_of(pairs, disc)
        return Objective(error=self.loss_through(head, disc), head=head, resolved={"disc": disc, "head": head.origin})

    def discrimination(self, pairs: Pairs) -> Discrimination:
        """Say which loss is taken through the head."""
        return self.disc or ("arcface" if unit_length(pairs.target) else "cross-entropy")

    def head_of(self, pairs: Pairs, disc: Discrimination) -> Head:
        """Take the given head or fit one: means of classes for ArcFace, which sees directions; else a regression."""
        if self.head == "given" or (self.head is None and pairs.head is not None):
            return given_head(pairs)
        if disc == "arcface":
            return class_means(pairs)
        return logistic_regression(
            pairs, label_smoothing=self.label_smoothing, seed=self.seed, device=self.torch_device
        )

    def loss_through(self, head: Head, disc: Discrimination) -> Loss:
        """Make the loss of each row."""
        rows = torch.from_numpy(head.rows).to(self.torch_device)
        if disc == "arcface":
            return arcface(rows, margin=self.margin, scale=self.scale)
        return cross_entropy(rows, label_smoothing=self.label_smoothing)
