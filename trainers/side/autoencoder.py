"""Autoencoder: side-information from which a decoder can reconstruct the image."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from compatstore.encoders.network import Preprocessing
from compatstore.trainers.images.images import Images
from compatstore.trainers.side.training import SideTrainer


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
