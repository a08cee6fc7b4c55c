"""Network architectures, described by small frozen dataclasses so that they can be written down and built again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from compatstore.encoders.basis_transformed import BasisTransformed
from compatstore.encoders.final_norm import FinalNorm
from compatstore.encoders.module import require_torch
from compatstore.encoders.small_transformer import SmallVisionTransformer
from compatstore.encoders.torchvision_backbone import TorchvisionBackbone
from compatstore.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from torch import nn


class Backbone(Protocol):
    """A description of a network of (b, channels, size, size) -> (b, dim)."""

    @property
    def dim(self) -> int: ...  # noqa: D102
    @property
    def channels(self) -> int: ...  # noqa: D102
    def build(self) -> nn.Module:
        """Make the network, with random weights."""
        ...


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
        if not timm.is_model(self.name):
            raise InvalidInput("build a timm network", expected="a name of timm.list_models()", found=self.name)
        network: nn.Module = timm.create_model(
            self.name, pretrained=False, num_classes=self.dim, in_chans=self.channels
        )
        return network


def to_description(backbone: Backbone) -> dict[str, Any]:
    """Write a backbone down as JSON-able values, one inside it likewise."""
    kind = type(backbone).__name__
    if kind not in _KINDS:
        raise InvalidInput("describe a network", expected=f"one of {', '.join(_KINDS)}", found=kind)
    settings = dict(vars(backbone))
    nested = {name: to_description(value) for name, value in settings.items() if type(value).__name__ in _KINDS}
    return {"kind": kind, **settings, **nested}


def from_description(description: Mapping[str, Any]) -> Backbone:
    """Read what `to_description` wrote.

    Raises:
        InvalidInput: The kind is unknown or a setting is missing, unknown or out of its range.
    """
    settings = dict(description)
    kind = settings.pop("kind", None)
    if kind not in _KINDS:
        raise InvalidInput("describe a network", expected=f"one of {', '.join(_KINDS)}", found=repr(kind))
    nested = {name: from_description(value) for name, value in settings.items() if isinstance(value, Mapping)}
    try:
        return _KINDS[kind](**settings | nested)
    except TypeError as error:
        raise InvalidInput("describe a network", expected=f"the settings of {kind}", found=str(error)) from error


def _convolution(before: int, after: int) -> list[nn.Module]:
    torch = require_torch()
    convolution = torch.nn.Conv2d(before, after, 3, padding=1, bias=False)
    return [convolution, torch.nn.BatchNorm2d(after), torch.nn.ReLU(inplace=True)]


_KINDS: dict[str, Callable[..., Backbone]] = {
    kind.__name__: kind
    for kind in (SmallConvNet, SmallVisionTransformer, TimmBackbone, TorchvisionBackbone, BasisTransformed, FinalNorm)
}
