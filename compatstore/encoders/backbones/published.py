"""Architectures of timm and torchvision, to be trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from compatstore.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from torch import nn


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
