"""Architectures to be trained: small ones for small images, and those of timm and torchvision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compatstore.encoders.module import require_torch
from compatstore.errors import InvalidInput, MissingExtra

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
            layers += [*_normed_convolution(before, after), *_normed_convolution(after, after)]
            before = after
        layers += [torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(4 * before, self.dim)]
        network: nn.Module = torch.nn.Sequential(*layers)
        return network


def _normed_convolution(before: int, after: int) -> list[nn.Module]:
    torch = require_torch()
    convolution = torch.nn.Conv2d(before, after, 3, padding=1, bias=False)
    return [convolution, torch.nn.BatchNorm2d(after), torch.nn.ReLU(inplace=True)]


# Values of one attention head.
_HEAD = 16


@dataclass(frozen=True, kw_only=True)
class SmallVisionTransformer:
    """A vision transformer of 4 to 8 patches a side, averaged over patches and mapped to the embedding.

    Convolutions of 3x3 make the patches, one at full size and one for each halving (Xiao et al., arXiv 2106.14881), as
    small transformers learn slowly from raw pixels. With the first of them alone the accuracy on digits of 8 pixels
    was 95.3 % after 15 epochs instead of 97.4 %, and CMC-1 on glyphs of 32 pixels 7.9 after 7 epochs instead of 13.4.

    Args:
        size: Side of the image, in pixels, 8 to 64, a multiple of 4, 5, 6, 7 or 8 patches of two pixels or more.
        dim: Length of an embedding.
        channels: 1 (grey) or 3 (colour).
        width: Values of a patch inside the network, a multiple of 16.
        depth: Layers.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    size: int
    dim: int
    channels: int = 1
    width: int = 64
    depth: int = 4

    def __post_init__(self) -> None:
        fine = self.dim >= 1 and self.channels in (1, 3) and self.width % _HEAD == 0 < self.width
        if not fine or not 1 <= self.depth <= 256 or not 8 <= self.size <= 64 or not self.patch:
            sizes = "8 to 64 that splits into 4 to 8 patches (8, 16, 28, 32, 48, 64)"
            expected = f"size {sizes}, dim >= 1, channels 1 or 3, width a multiple of {_HEAD}, depth 1 to 256"
            raise InvalidInput("describe a small transformer", expected=expected, found=f"{self}")

    @property
    def patch(self) -> int:
        """Side of a patch, in pixels: the smallest that gives 8 patches a side or fewer; 0 where none does."""
        sides = (self.size // count for count in (8, 7, 6, 5, 4) if self.size % count == 0)
        return next((side for side in sides if side >= 2), 0)

    def build(self) -> nn.Module:
        """Make the network, with random weights.

        Raises:
            MissingExtra: timm is not installed.
        """
        try:
            from timm.models.vision_transformer import VisionTransformer
        except ImportError as error:
            raise MissingExtra("timm", "train") from error
        torch, patch, channels = require_torch(), self.patch, max(self.width // 4, 8)
        stem = _stem_convolution(torch, self.channels, channels, 1)
        while patch % 2 == 0:
            patch //= 2
            stem += _stem_convolution(torch, channels, 2 * channels, 2)
            channels *= 2
        transformer = VisionTransformer(
            img_size=self.size * patch // self.patch,
            patch_size=patch,
            in_chans=channels,
            num_classes=self.dim,
            embed_dim=self.width,
            depth=self.depth,
            num_heads=self.width // _HEAD,
            mlp_ratio=2,
            global_pool="avg",
            class_token=False,
        )
        network: nn.Module = torch.nn.Sequential(*stem, transformer)
        return network


def _stem_convolution(torch: Any, channels: int, out: int, stride: int) -> list[Any]:
    convolution = torch.nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False)
    return [convolution, torch.nn.BatchNorm2d(out), torch.nn.ReLU()]


@dataclass(frozen=True, kw_only=True)
class TimmBackbone:
    """An architecture of timm, its classifier replaced by a linear layer to the embedding.

    Args:
        name: Name of the model ("resnet18").
        dim: Length of an embedding.
        channels: 1 (grey) or 3 (colour).

    Raises:
        InvalidInput: A setting is out of its range.
    """

    name: str
    dim: int
    channels: int = 3

    def __post_init__(self) -> None:
        if not self.name or self.dim < 1 or self.channels not in (1, 3):
            expected = "a name, dim >= 1, channels 1 or 3"
            raise InvalidInput("describe a timm network", expected=expected, found=f"{self}")

    def build(self) -> nn.Module:
        """Make the network, with random weights.

        Raises:
            InvalidInput: timm has no such model.
            MissingExtra: timm is not installed.
        """
        try:
            import timm
        except ImportError as error:
            raise MissingExtra("timm", "train") from error
        asked, expected = "build a timm network", "a name of timm.list_models()"
        if not timm.is_model(self.name):
            raise InvalidInput(asked, expected=expected, found=self.name)
        try:
            network: nn.Module = timm.create_model(
                self.name, pretrained=False, num_classes=self.dim, in_chans=self.channels
            )
        except RuntimeError as error:
            if "tag" not in str(error):
                raise
            found = f"{self.name}: {error}"
            raise InvalidInput(asked, expected=f"{expected}, with a tag of its weights or none", found=found) from error
        return network


@dataclass(frozen=True, kw_only=True)
class TorchvisionBackbone:
    """A classifier of torchvision, with the values of the embedding in place of its classes.

    Args:
        name: Name of the model ("resnet18").
        dim: Length of an embedding.
        channels: 3: torchvision's models take colour. Grey images are converted by the preprocessing mode "RGB".

    Raises:
        InvalidInput: A setting is out of its range.
    """

    name: str
    dim: int
    channels: int = 3

    def __post_init__(self) -> None:
        if not self.name or self.dim < 1 or self.channels != 3:
            expected = "a name, dim >= 1, 3 channels"
            fix = 'Set mode="RGB", which converts grey images.' if self.channels == 1 else ""
            raise InvalidInput("describe a torchvision network", expected=expected, found=f"{self}", fix=fix)

    def build(self) -> nn.Module:
        """Make the network, with random weights.

        Raises:
            InvalidInput: torchvision has no such classifier, or it has several outputs while it trains.
            MissingExtra: torchvision is not installed.
        """
        try:
            from torchvision import models
        except ImportError as error:
            raise MissingExtra("torchvision", "train") from error
        asked = "build a torchvision network"
        if self.name not in models.list_models(module=models):
            expected = "a name of torchvision.models.list_models(module=torchvision.models)"
            raise InvalidInput(asked, expected=expected, found=self.name)
        if self.name in ("googlenet", "inception_v3"):
            raise InvalidInput(asked, expected="a model of one output", found=f"{self.name}, with auxiliary outputs")
        network: nn.Module = models.get_model(self.name, weights=None, num_classes=self.dim)
        return network
