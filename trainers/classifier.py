"""Independent training: a classifier whose embedding knows nothing of any other model's."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from pytorch_metric_learning import losses
from torch import nn

from compatstore.encoders.network import NetworkEncoder, Preprocessing
from compatstore.encoders.protocol import FloatArray
from compatstore.errors import InvalidInput
from compatstore.trainers.augmentation import Augmentation
from compatstore.trainers.images import Images
from compatstore.trainers.loop import Report, seeded, train
from compatstore.trainers.recipe import Recipe, encoder_of

Head = Literal["linear", "cosine", "arcface"]


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModel:
    """What training a classifier makes.

    Args:
        encoder: The embedding model.
        head: (classes, dim) float32: the logits of an embedding e are `head @ e`, up to a positive scale.
        class_names: The class of each row of `head`.
        figures: What was measured: "loss" (mean of the last epoch), "images", "classes", "seconds", and with
            held-out images "accuracy" (share that the head classifies rightly).
    """

    encoder: NetworkEncoder
    head: FloatArray
    class_names: tuple[str, ...]
    figures: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Independent(Recipe):
    """Train a network to classify, and keep its embedding.

    Args:
        head: "linear" (cross-entropy of a plain product, no bias), or for embeddings of unit length "cosine"
            (softmax over scaled cosines) or "arcface" (the same with an angular margin).
        scale: Multiplies the cosines of "cosine" and "arcface", > 0.
        margin: Of "arcface", in radians, 0 to 1.5.
        label_smoothing: Of "linear", 0 to 1.
        augmentation: Random views to train on; None trains on the images as they are.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    head: Head = "linear"
    scale: float = 16.0
    margin: float = 0.3
    label_smoothing: float = 0.0
    augmentation: Augmentation | None = None

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

    def fit(self, images: Images, *, held_out: Images | None = None, report: Report | None = None) -> TrainedModel:
        """Train from random weights.

        Args:
            images: What to train on; at least two classes.
            held_out: Images of the same classes, to measure the accuracy on.
            report: Called after each epoch.

        Raises:
            InvalidInput: There are fewer than two classes or images, or the held-out classes are others.
            SourceError: Some files cannot be read.
        """
        _require_classes(images, held_out)
        preprocessing = self.preprocessing(images)
        images.require_readable(preprocessing.mode)
        backbone = self.backbone(preprocessing)
        start = time.perf_counter()
        with seeded(self.seed):
            objective = _Classification(self, backbone.build(), preprocessing, len(images.class_names))
            batches = images.batches(preprocessing, size=self.batch_size, seed=self.seed, workers=self.workers)
            loss = train(objective, batches, self, report)
        figures = {"loss": loss, "images": len(images), "classes": len(images.class_names)}
        figures |= {"seconds": time.perf_counter() - start}
        encoder = encoder_of(backbone, preprocessing, objective.network, normalise=self.head != "linear")
        head = objective.class_rows()
        if held_out is not None:
            figures["accuracy"] = accuracy(encoder, head, held_out)
        return TrainedModel(encoder=encoder, head=head, class_names=images.class_names, figures=figures)


def accuracy(encoder: NetworkEncoder, head: FloatArray, images: Images) -> float:
    """Share of images whose label is the row of `head` (classes, dim) with the largest product."""
    logits = encoder.encode(list(images.images)) @ head.T
    return float(np.mean(logits.argmax(axis=1) == np.asarray(images.labels)))


class _Classification(nn.Module):
    """The loss of a batch: (b, c, s, s) uint8 and (b,) labels -> scalar."""

    def __init__(self, settings: Independent, network: nn.Module, preprocessing: Preprocessing, classes: int) -> None:
        super().__init__()
        self.network, self.preprocessing, self.augmentation = network, preprocessing, settings.augmentation
        self.loss = _head_loss(settings, classes)

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        views = pixels if self.augmentation is None else self.augmentation(pixels)
        loss: torch.Tensor = self.loss(self.network(self.preprocessing.scale(views)), labels)
        return loss

    def class_rows(self) -> FloatArray:
        """(classes, dim) float32; of unit length where embeddings are."""
        if isinstance(self.loss, _LinearLoss):
            weights = self.loss.linear.weight
        else:
            weights = nn.functional.normalize(self.loss.get_parameter("W").T, dim=1)
        rows: FloatArray = weights.detach().cpu().float().contiguous().numpy()
        return rows


class _LinearLoss(nn.Module):
    """Cross-entropy of a linear head without bias: with one, `head @ e` would not be the logits."""

    def __init__(self, dim: int, classes: int, label_smoothing: float) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, classes, bias=False)
        self.label_smoothing = label_smoothing

    def forward(self, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.linear(embeddings), labels, label_smoothing=self.label_smoothing)


def _head_loss(settings: Independent, classes: int) -> nn.Module:
    if settings.head == "linear":
        return _LinearLoss(settings.dim, classes, settings.label_smoothing)
    if settings.head == "cosine":
        cosine: nn.Module = losses.NormalizedSoftmaxLoss(classes, settings.dim, temperature=1 / settings.scale)
        return cosine
    arcface: nn.Module = losses.ArcFaceLoss(
        classes, settings.dim, margin=float(np.degrees(settings.margin)), scale=settings.scale
    )
    return arcface


def _require_classes(images: Images, held_out: Images | None) -> None:
    present = len(np.unique(np.asarray(images.labels)))
    if present < 2:
        fix = "Add images of another class, or train SimCLR, which needs no classes."
        raise InvalidInput("train a classifier", expected="images of two classes", found=f"{present}", fix=fix)
    if held_out is not None and held_out.class_names != images.class_names:
        raise InvalidInput(
            "measure a classifier", expected=f"classes {images.class_names}", found=f"{held_out.class_names}"
        )
