"""Classification: the head and the loss of every trainer that learns from classes, and training by that loss alone."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from compatstore.arrays import FloatArray
from compatstore.boundary import checked, checked_fields
from compatstore.encoders.backbones import Backbone
from compatstore.encoders.network import NetworkEncoder, Preprocessing
from compatstore.errors import CompatStoreWarning, InvalidInput
from compatstore.trainers.head_losses import MarginKind, scaled_cosines
from compatstore.trainers.images.images import Augmentation, Images
from compatstore.trainers.images.trained_model import TrainedModel
from compatstore.trainers.images.training import ImageTraining, TrainingRun, encoder_of
from compatstore.trainers.settings import Count, Positive, from_to
from compatstore.trainers.training import OnEpoch
from compatstore.versions import HeadLoss

# Images whose angles to their class's row are checked after a training.
_CHECKED = 500

HeadKind = Literal["linear", "unit-linear", "cosine", "arcface", "cosface"]


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """Settings of every trainer that learns from classes: how an embedding is classified.

    Args:
        dim: Length of an embedding, >= 1.
        head: "linear" (cross-entropy of a plain product, no bias), or for embeddings of unit length "unit-linear"
            (cross-entropy of the product with rows of any length, without a scale, as in BT^2's public code), "cosine"
            (softmax over scaled cosines), "arcface" (the same with a margin of the angle) or "cosface" (with a margin
            of the cosine). If classes are hard to separate, ArcFace's margin costs least among vectors opposite
            to all rows, and training may end there; CosFace's costs the same everywhere.
        scale: Multiplies cosines, > 0.
        margin: Of "arcface" in radians, of "cosface" as a cosine, 0 to 1.5.
        label_smoothing: Of "linear" and "unit-linear", 0 to 1.
        augmentation: Random views to train on; None trains on the images as they are.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    dim: Count
    head: HeadKind = "linear"
    scale: Positive = 16.0
    margin: Annotated[float, from_to(0, 1.5)] = 0.3
    label_smoothing: Annotated[float, from_to(0, 1)] = 0.0
    augmentation: Augmentation | None = None

    @property
    def normalise(self) -> bool:
        """True if embeddings have unit length."""
        return self.head != "linear"

    @property
    def takes_cosines(self) -> bool:
        """True if only the direction of a head's rows counts."""
        return self.head in ("cosine", "arcface", "cosface")

    @property
    def head_loss(self) -> HeadLoss:
        """Loss that is recorded with a model of this training."""
        if self.head == "arcface":
            return HeadLoss("arcface", self.margin)
        if self.takes_cosines:
            return HeadLoss("cosface", self.margin if self.head == "cosface" else 0.0)
        return HeadLoss("cross-entropy")

    def logits(self, embeddings: torch.Tensor, rows: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        """Logits of each embedding through a head.

        Args:
            embeddings: (b, dim) float32, of any length.
            rows: (classes, dim) float32, of any length.
            labels: (b,) int64, a row each, that a margin is given to; None for no margin.

        Returns:
            (b, classes) float32: `e . w` ("linear"), `e/|e| . w` ("unit-linear"), `scale cos(e, w)` ("cosine"), or the
            latter with the angle to the true row larger by the margin ("arcface", arXiv 1801.07698, equation 3), or
            their cosine smaller by it ("cosface", arXiv 1801.09414, equation 4).
        """
        if self.takes_cosines:
            kind: MarginKind = "arcface" if self.head == "arcface" else "cosface"
            margin = 0.0 if self.head == "cosine" else self.margin
            return scaled_cosines(embeddings, rows, scale=self.scale, classes=labels, margin=margin, kind=kind)
        return (functional.normalize(embeddings, dim=1) if self.normalise else embeddings) @ rows.T

    def losses(self, embeddings: torch.Tensor, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Classification loss of each embedding through a head: the cross-entropy of its logits.

        Args:
            embeddings: (b, dim) float32, of any length.
            rows: (classes, dim) float32, of any length.
            labels: (b,) int64, a row each.

        Returns:
            (b,) float32.
        """
        smoothing = 0.0 if self.takes_cosines else self.label_smoothing
        logits = self.logits(embeddings, rows, labels)
        return functional.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)


class ClassHead(nn.Module):
    """A head that is trained.

    Attributes:
        rows: (classes, dim) float32.

    Args:
        classifier: Settings of the classification, and the embeddings' length.
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
        """(classes, dim) float32; of unit length where only their direction counts."""
        rows = functional.normalize(self.rows, dim=1) if self.classifier.takes_cosines else self.rows
        array: FloatArray = rows.detach().cpu().float().contiguous().numpy()
        return array


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Independent(Classifier, ImageTraining):
    """Train a network to classify, and keep its embedding."""

    @checked
    def fit(
        self,
        images: Images,
        *,
        held_out: Images | None = None,
        progress: OnEpoch | None = None,
        checkpoint: str | Path | None = None,
    ) -> TrainedModel:
        """Train from random weights, or those of `pretrained`.

        Args:
            images: Training images; at least two classes.
            held_out: Images of the same classes, to measure the accuracy on.
            progress: Called after each epoch.
            checkpoint: File to save to, from which training continues after a kill.

        Raises:
            InvalidInput: There are fewer than two classes or images, or the held-out classes are others.
            SourceError: Some files cannot be read.
            Incompatible: The checkpoint is of other settings or images.
            CorruptArtifact: The checkpoint is damaged.
        """
        require_classes(images, held_out)
        preprocessing = self.require_readable(images, held_out)

        def make(network: nn.Module) -> Classification:
            return Classification(self, network, preprocessing, len(images.class_names))

        backbone = self.backbone(preprocessing)
        run = TrainingRun(progress, checkpoint)
        objective, figures = self.train_network(make, images, preprocessing, backbone, run)
        return objective.model(backbone, images, held_out, figures)


class Classification(nn.Module):
    """The classification loss of a batch: (b, c, s, s) uint8 and (b,) labels -> scalar.

    Args:
        classifier: Settings of the classification.
        network: (b, c, s, s) float32 -> (b, dim).
        preprocessing: From pixels to the input of the network.
        classes: Rows of the head, which starts at random.
    """

    def __init__(self, classifier: Classifier, network: nn.Module, preprocessing: Preprocessing, classes: int) -> None:
        super().__init__()
        self.classifier, self.network, self.preprocessing = classifier, network, preprocessing
        self.augmentation: Callable[[torch.Tensor], torch.Tensor] | None = classifier.augmentation
        self.head = ClassHead(classifier, classes)

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Loss of a batch, ()."""
        embeddings = self.embed(self.views(pixels))
        with torch.autocast(pixels.device.type, enabled=False):
            loss: torch.Tensor = self.head(embeddings, labels)
        return loss

    def views(self, pixels: torch.Tensor) -> torch.Tensor:
        """Draw the view of each image that the network gets: uint8 as it is, or float32 from 0 to 1."""
        if self.augmentation is None:
            return pixels
        # A blur is a convolution: with autocast it would give bfloat16, which the source, without, cannot read.
        with torch.autocast(pixels.device.type, enabled=False):
            return self.augmentation(pixels)

    def embed(self, views: torch.Tensor) -> torch.Tensor:
        """(b, c, s, s) views -> (b, dim) float32, of unit length where the encoder's are."""
        embeddings: torch.Tensor = self.network(self.preprocessing.scale(views)).float()
        return functional.normalize(embeddings, dim=1) if self.classifier.normalise else embeddings

    def finished(self) -> nn.Module:
        """Return the network as it is to be stored, once it is trained."""
        return self.network

    def class_rows(self) -> FloatArray:
        """(classes, dim) float32: the head of the stored network's embeddings."""
        return self.head.to_numpy()

    def model(
        self, backbone: Backbone, images: Images, held_out: Images | None, figures: Mapping[str, float]
    ) -> TrainedModel:
        """Make the model of a training.

        Args:
            backbone: Of the network.
            images: Its training images.
            held_out: To measure the accuracy on.
            figures: Of the training.
        """
        normalise, names = self.classifier.normalise, images.class_names
        encoder = encoder_of(backbone, self.preprocessing, self.finished(), normalise=normalise)
        head, loss = self.class_rows(), self.classifier.head_loss
        warn_of_opposite_rows(self.classifier, encoder, head, images)
        measured = {} if held_out is None else {"accuracy": accuracy(encoder, head, held_out)}
        figures = {**figures, "classes": len(names), **measured}
        return TrainedModel(encoder=encoder, head=head, class_names=names, figures=figures, head_loss=loss)


def accuracy(encoder: NetworkEncoder, head: FloatArray, images: Images) -> float:
    """Share of images whose label is the row of `head` (classes, dim) with the largest product."""
    logits = encoder.encode(list(images.images)) @ head.T
    return float(np.mean(logits.argmax(axis=1) == np.asarray(images.labels)))


def warn_of_opposite_rows(classifier: Classifier, encoder: NetworkEncoder, head: FloatArray, images: Images) -> None:
    """Warn if ArcFace has turned vectors so far from their own class's rows that its margin costs little.

    A margin m costs `2 sin(m / 2) sin(a + m / 2)` of a cosine at the angle a: less than half of the most beyond
    150 degrees less m / 2.

    Args:
        classifier: Settings of the loss.
        encoder: The trained encoder.
        head: (classes, dim) float32.
        images: Its training images, of which a sample is checked.
    """
    if classifier.head != "arcface":
        return
    some = images.take(np.unique(np.linspace(0, len(images) - 1, _CHECKED).astype(int)))
    vectors, rows = encoder.encode(list(some.images)), head[np.asarray(some.labels)]
    own = functional.cosine_similarity(torch.from_numpy(vectors), torch.from_numpy(rows)).mean().item()
    if math.acos(min(max(own, -1), 1)) > math.radians(150) - classifier.margin / 2:
        warnings.warn(
            f"ArcFace left vectors opposite to the rows of their classes (mean cosine {own:.2f}): there its margin "
            'costs least, and classes are separated badly. Train with head="cosface", or with a smaller margin.',
            CompatStoreWarning,
            stacklevel=5,  # of `fit`, whose arguments are checked
        )


def require_classes(images: Images, held_out: Images | None) -> None:
    """Refuse images of a single class, and held-out images of other classes.

    Raises:
        InvalidInput: They are.
    """
    present = len(np.unique(np.asarray(images.labels)))
    if present < 2:
        fix = "Add images of another class, or train SimCLR, which needs no classes."
        raise InvalidInput("train a classifier", expected="images of two classes", found=f"{present}", fix=fix)
    if held_out is not None and held_out.class_names != images.class_names:
        expected, found = f"classes {images.class_names}", f"{held_out.class_names}"
        raise InvalidInput("measure a classifier", expected=expected, found=found)
