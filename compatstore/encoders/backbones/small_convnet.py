"""A small convolutional network, for images of 8 to 64 pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from compatstore.encoders.module import require_torch
from compatstore.errors import InvalidInput

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class SmallConvNet:
    """A plain convolutional network for small images, good on a CPU.

    Stages of two 3x3 convolutions, each with BatchNorm and ReLU; the image is halved and the width doubled between
    stages until 4x4 positions are left; these are averaged to 2x2 and mapped to the embedding by one linear layer.

    Args:
        size: Side of the image, in pixels, 8 to 64.
        dim: Length of an embedding.
        channels: 1 (grey) or 3 (colour).
        width: Channels of the first stage.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    size: int
    dim: int
    channels: int = 1
    width: int = 32

    def __post_init__(self) -> None:
        if not 8 <= self.size <= 64 or self.dim < 1 or self.channels not in (1, 3) or self.width < 1:
            expected = "size 8 to 64, dim >= 1, channels 1 or 3, width >= 1"
            raise InvalidInput("describe a small network", expected=expected, found=f"{self}")

    @property
    def stages(self) -> int:
        """Number of stages: 2 for 8 pixels, up to 5 for 64."""
        return (self.size // 4).bit_length()

    def build(self) -> nn.Module:
        """Make the network, with random weights."""
        torch = require_torch()
        layers: list[nn.Module] = []
        before = self.channels
        for stage in range(self.stages):
            after = self.width * min(2**stage, 8)
            layers += [torch.nn.MaxPool2d(2)] if stage else []
            layers += [*_convolution(before, after), *_convolution(after, after)]
            before = after
        layers += [torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(4 * before, self.dim)]
        network: nn.Module = torch.nn.Sequential(*layers)
        return network


def _convolution(before: int, after: int) -> list[nn.Module]:
    torch = require_torch()
    convolution = torch.nn.Conv2d(before, after, 3, padding=1, bias=False)
    return [convolution, torch.nn.BatchNorm2d(after), torch.nn.ReLU(inplace=True)]
