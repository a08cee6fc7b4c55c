"""Architectures of timm."""

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
        if not timm.is_model(self.name):
            raise InvalidInput("build a timm network", expected="a name of timm.list_models()", found=self.name)
        network: nn.Module = timm.create_model(
            self.name, pretrained=False, num_classes=self.dim, in_chans=self.channels
        )
        return network
