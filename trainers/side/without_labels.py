"""Side-information from images alone: SimCLR and an autoencoder, which read no labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import torch
from pytorch_metric_learning import losses
from torch import nn

from compatstore.encoders.network import Preprocessing
from compatstore.trainers.images.augmentation import Augmentation
from compatstore.trainers.images.images import Images
from compatstore.trainers.settings import BatchRows, Positive, at_least
from compatstore.trainers.side.training import SideTrainer


@dataclass(frozen=True, kw_only=True)
class SimCLR(SideTrainer):
    """Train a network so that views of one image are close, and views of other images far (NT-Xent).

    The network ends in a BatchNorm and has no projection head after it, as FCT's SimCLR models (appendix D.4.1). Labels
    are not read.

    Args:
        temperature: Divides the cosines, > 0.
        augmentation: How the two views of an image are drawn.
        local_views: Further views of each image, drawn by `local`: multi-crop (arXiv 2006.09882). Each costs as much
            as one of the two.
        local: How they are drawn: small parts of the image.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    batch_size: BatchRows = 256
    temperature: Positive = 0.2
    augmentation: Augmentation = field(default_factory=Augmentation)
    local_views: Annotated[int, at_least(0)] = 0
    local: Augmentation = field(default_factory=lambda: Augmentation(smallest_crop=0.2, largest_crop=0.6))

    @property
    def ends_in_norm(self) -> bool:
        """Always."""
        return True

    def objective(self, network: nn.Module, preprocessing: Preprocessing, images: Images) -> nn.Module:
        """Make the contrastive loss."""
        return _Views(self, network, preprocessing)


class _Views(nn.Module):
    """The loss of a batch: (b, c, s, s) uint8, labels ignored -> scalar."""

    def __init__(self, settings: SimCLR, network: nn.Module, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.network, self.preprocessing = network, preprocessing
        self.draws = [settings.augmentation] * 2 + [settings.local] * settings.local_views
        # With one positive an anchor SupCon is NT-Xent; the library's NTXentLoss compares every positive pair with
        # every negative pair, which costs the third power of the batch (14 s an epoch instead of 0.3 on digits).
        self.loss = losses.SupConLoss(temperature=settings.temperature)

    def forward(self, pixels: torch.Tensor, _labels: torch.Tensor) -> torch.Tensor:
        views = torch.cat([draw(pixels) for draw in self.draws])
        image = torch.arange(len(pixels), device=pixels.device).repeat(len(self.draws))
        loss: torch.Tensor = self.loss(self.network(self.preprocessing.scale(views)), image)
        return loss


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
        layers += [
            nn.Upsample(scale_factor=2),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.BatchNorm2d(2 * width),
        ]
        layers += [nn.ReLU()]
    layers += [nn.Upsample((size, size), mode="bilinear"), nn.Conv2d(2 * width, channels, 3, padding=1)]
    return nn.Sequential(*layers)
