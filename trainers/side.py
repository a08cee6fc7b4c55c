"""Side-information: SimCLR and an autoencoder, which read no labels, and a second source model; their training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Self

import numpy as np
import torch
from pytorch_metric_learning import losses
from torch import nn

from compatstore.boundary import checked, checked_fields
from compatstore.encoders.network import NetworkEncoder, Preprocessing
from compatstore.encoders.protocol import Encoder
from compatstore.evaluation.agreement import linear_cka
from compatstore.trainers.images.classification import Classification, Classifier, require_classes
from compatstore.trainers.images.images import Augmentation, Images, Mixup
from compatstore.trainers.images.training import ImageTraining, TrainingRun, encoder_of
from compatstore.trainers.settings import BatchRows, Count, NotNegative, Positive, at_least
from compatstore.trainers.training import OnEpoch

COMPARED = 2000  # images that the linear CKA is measured on, at most


@dataclass(frozen=True, kw_only=True, eq=False)
class SideModel:
    """The result of training side-information.

    Args:
        encoder: The side-information model: `EmbeddingVersion(..., side_dim=encoder.dim, side_encoder=encoder)`.
        figures: Measurements: "loss" (mean of the last epoch), "images", "steps" (of the optimiser, in all),
            "seconds", and where the source's encoder is known "cka", the linear CKA with its embeddings; low where the
            two complement each other.
    """

    encoder: NetworkEncoder
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SideTrainer(ImageTraining, ABC):
    """Train a network whose output is stored beside each embedding, as further input of later transforms.

    Args:
        dim: Values of side-information an item.
        steps: Steps of the optimiser to train for, >= 1, in place of `epochs`: rounded up to whole passes over the
            images, with the warm-up's share of all passes kept. Kinds of side-information differ in their batches, so
            equal steps compare them as FCT's table 6 does, equal passes do not. None trains for `epochs`.
        codes: Train for `side_dtype="bits"`: while it trains, the loss sees the signs of the values, which a BatchNorm
            keeps even; gradients skip the sign (straight-through estimator, arXiv 1308.3432).

    Raises:
        InvalidInput: A setting is out of its range.
    """

    dim: Count = 64
    steps: Count | None = None
    codes: bool = False

    def epochs_for(self, images: int) -> Self:
        """The same trainer with the passes over n images that its `steps` take."""
        if self.steps is None:
            return self
        epochs = -(-self.steps // self._steps_a_pass(images))
        return replace(self, epochs=epochs, warmup_epochs=self.warmup_epochs * epochs / self.epochs)

    def _steps_a_pass(self, images: int) -> int:
        """A last batch that is not full is left out, as `Images.batches` does."""
        return images // min(self.batch_size, images)

    @abstractmethod
    def objective(self, network: nn.Module, preprocessing: Preprocessing, images: Images) -> nn.Module:
        """Make the loss of a batch, ((b, c, s, s) uint8, (b,) labels) -> scalar, around a network."""

    @property
    def unit_length(self) -> bool:
        """True if the side-information has unit length."""
        return False

    @property
    def ends_in_norm(self) -> bool:
        """True if the network ends in a BatchNorm."""
        return self.codes

    @checked
    def fit(
        self,
        images: Images,
        *,
        source: Encoder | None = None,
        held_out: Images | None = None,
        progress: OnEpoch | None = None,
        checkpoint: str | Path | None = None,
    ) -> SideModel:
        """Train from random weights, or those of `pretrained`.

        Args:
            images: Training images: those that the source model learnt from, or more of their kind.
            source: The source's encoder, to measure the linear CKA with; it has no part in the training.
            held_out: Images to measure it on; by default those that were trained on.
            progress: Called after each epoch.
            checkpoint: File to save to, from which training continues after a kill.

        Raises:
            InvalidInput: The loss became NaN or infinite, or the trainer needs other images.
            SourceError: Some files cannot be read.
            Incompatible: The checkpoint is of other settings or images.
            CorruptArtifact: The checkpoint is damaged.
        """
        preprocessing = self.require_readable(images, held_out)
        backbone = self.backbone(preprocessing, final_norm=self.ends_in_norm)

        def make(network: nn.Module) -> nn.Module:
            seen = nn.Sequential(network, StraightThrough()) if self.codes else network
            return self.objective(seen, preprocessing, images)

        training = self.epochs_for(len(images))
        run = TrainingRun(progress, checkpoint)
        objective, figures = training.train_network(make, images, preprocessing, backbone, run)
        network = objective.get_submodule("network.0" if self.codes else "network")
        encoder = encoder_of(backbone, preprocessing, network, normalise=self.unit_length)
        figures["steps"] = training.epochs * self._steps_a_pass(len(images))
        if source is not None:
            compared = held_out or images
            rows = np.linspace(0, len(compared) - 1, min(COMPARED, len(compared))).astype(int)
            some = list(compared.take(rows).images)
            # At 1 the side-information adds nothing to the embedding (FCT, section 5.3).
            figures["cka"] = linear_cka(encoder.encode(some), source.encode(some))
        return SideModel(encoder=encoder, figures=figures)


class StraightThrough(nn.Module):
    """Signs of values, (..., dim) of -1 and 1; the gradient is that of the values, between -1 and 1."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """The signs; 0 counts as negative, as where they are stored."""
        signs = torch.where(values > 0, 1.0, -1.0).to(values.dtype)
        within = values.clamp(-1, 1)
        return within + (signs - within).detach()


@checked_fields
@dataclass(frozen=True, kw_only=True)
class SimCLR(SideTrainer):
    """Train a network so that views of one image are close, and views of other images far (SimCLR, arXiv 2002.05709).

    The loss of view i is NT-Xent (equation 1 of that paper), averaged over the other views p of its image:
    `-log e^{cos(z_i, z_p)/T} / sum_k e^{cos(z_i, z_k)/T}`, k over all views of the batch but i. `z = W_2 relu(W_1 h)`
    is a projection of the side-information h, dropped after training. The network ends in a BatchNorm, as FCT's SimCLR
    models (FCT, appendix D.4.1). Labels are not read.

    Args:
        temperature: Divides the cosines, > 0.
        projection: Values of z, >= 0; the hidden layer is as wide as h. 0 compares h itself.
        augmentation: Augmentation of the two views of an image: parts of 20 % of it and more.
        local_views: Further views of each image, drawn by `local`: multi-crop (arXiv 2006.09882), which FCT trains
            with.
        local: Augmentation of these: small parts of the image.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    batch_size: BatchRows = 256
    temperature: Positive = 0.2
    projection: Annotated[int, at_least(0)] = 128
    augmentation: Augmentation = field(default_factory=lambda: Augmentation(smallest_crop=0.2))
    local_views: Annotated[int, at_least(0)] = 0
    local: Augmentation = field(default_factory=lambda: Augmentation(smallest_crop=0.1, largest_crop=0.4))

    @property
    def ends_in_norm(self) -> bool:
        """Always."""
        return True

    def objective(self, network: nn.Module, preprocessing: Preprocessing, images: Images) -> nn.Module:
        """Make the contrastive loss."""
        return ViewsObjective(self, network, preprocessing)


class ViewsObjective(nn.Module):
    """The loss of a batch: (b, c, s, s) uint8, labels ignored -> scalar.

    Args:
        settings: Of the trainer.
        network: (b, c, s, s) float32 -> (b, dim), the side-information.
        preprocessing: From pixels to the input of the network.
    """

    def __init__(self, settings: SimCLR, network: nn.Module, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.network, self.preprocessing, self.settings = network, preprocessing, settings
        dim, out = settings.dim, settings.projection
        hidden = (nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, out)) if out else ()
        self.projection = nn.Sequential(*hidden)  # SimCLR, section 2.1
        # With one positive an anchor SupCon is NT-Xent; the library's NTXentLoss compares every positive pair with
        # every negative pair, which costs the third power of the batch (14 s an epoch instead of 0.3 on digits).
        self.loss = losses.SupConLoss(temperature=settings.temperature)

    def forward(self, pixels: torch.Tensor, _labels: torch.Tensor) -> torch.Tensor:
        """Loss of a batch, ()."""
        settings = self.settings
        views = [(settings.augmentation, 2), (settings.local, settings.local_views)]
        drawn = [torch.cat([augment(pixels) for _ in range(count)]) for augment, count in views if count]
        embeddings = torch.cat([self.network(self.preprocessing.scale(some)) for some in drawn])
        image = torch.arange(len(pixels), device=pixels.device).repeat(2 + settings.local_views)
        loss: torch.Tensor = self.loss(self.projection(embeddings), image)
        return loss


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Autoencoder(SideTrainer):
    """Train a network and a decoder to reconstruct each image (mean squared error of pixels); keep the network.

    Labels are not read.
    """

    def objective(self, network: nn.Module, preprocessing: Preprocessing, images: Images) -> nn.Module:
        """Make the loss, with a decoder of its own."""
        return _Reconstruction(self, network, preprocessing)


class _Reconstruction(nn.Module):
    """The loss of a batch: (b, c, s, s) uint8, labels ignored -> scalar."""

    def __init__(self, settings: Autoencoder, network: nn.Module, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.network, self.preprocessing = network, preprocessing
        self.decoder = decoder(settings.dim, preprocessing.channels, preprocessing.size, settings.width)

    def forward(self, pixels: torch.Tensor, _labels: torch.Tensor) -> torch.Tensor:
        images = self.preprocessing.scale(pixels)
        return nn.functional.mse_loss(self.decoder(self.network(images)), images)


def decoder(dim: int, channels: int, size: int, width: int) -> nn.Sequential:
    """(b, dim) -> (b, channels, size, size): 4x4 positions, doubled until they cover `size`, then resized to it."""
    doublings = max((size - 1) // 4, 0).bit_length()
    layers: list[nn.Module] = [nn.Linear(dim, 2 * width * 16), nn.Unflatten(1, (2 * width, 4, 4)), nn.ReLU()]
    for _ in range(doublings):
        convolution = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        layers += [nn.Upsample(scale_factor=2), convolution, nn.BatchNorm2d(2 * width), nn.ReLU()]
    layers += [nn.Upsample((size, size), mode="bilinear"), nn.Conv2d(2 * width, channels, 3, padding=1)]
    return nn.Sequential(*layers)


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Alternate(Classifier, SideTrainer):
    """Train a classifier as `Independent` does, and keep its embedding as side-information (FCT, section 5.1).

    Args:
        dim: Values of side-information an item.
        seed: Of weights, order and augmentation; it must differ from the source model's, or both are one model.
        mixup: Blend each image with another one, by weights of Beta(mixup, mixup), and keep its class; 0 does not.
            Blending gives a model that differs more from the source's.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    dim: Count = 64
    seed: int = 1
    mixup: NotNegative = 0.0

    @property
    def unit_length(self) -> bool:
        """True if the side-information has unit length, as the embeddings of its kind of head."""
        return self.normalise

    def objective(self, network: nn.Module, preprocessing: Preprocessing, images: Images) -> nn.Module:
        """Make the classification loss.

        Raises:
            InvalidInput: The images are of a single class.
        """
        require_classes(images, None)
        objective = Classification(self, network, preprocessing, len(images.class_names))
        if self.mixup:
            objective.augmentation = Mixup(alpha=self.mixup, views=self.augmentation)
        return objective
