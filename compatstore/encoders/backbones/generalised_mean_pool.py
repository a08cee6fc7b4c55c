"""Generalised-mean pooling, as a torch module; loaded only where one is built."""

from __future__ import annotations

import torch
from torch import nn

from compatstore.errors import InvalidInput

_LEAST = 1e-6  # a power of 1 / p has no gradient at 0
_AVERAGES = ("AdaptiveAvgPool2d", "FastAdaptiveAvgPool")  # of torch, and of timm


class GeneralisedMeanPool(nn.Module):
    """An average pooling of x^p, to the power of 1 / p: between the mean (p = 1) and the maximum (p -> infinity).

    Args:
        average: (b, c, h, w) -> means over positions, in the shape that the network wants.
        power: p.
    """

    def __init__(self, average: nn.Module, power: float) -> None:
        super().__init__()
        self.average, self.power = average, power

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Pool; powers are taken in float32, whatever the precision of the features."""
        with torch.autocast(features.device.type, enabled=False):
            raised = features.float().clamp(min=_LEAST).pow(self.power)
            pooled: torch.Tensor = self.average(raised).pow(1 / self.power)
        return pooled


def pool_by_generalised_mean(network: nn.Module, power: float) -> None:
    """Put the pooling in the place of the last average pooling of a network, in place; names of weights stay.

    Raises:
        InvalidInput: The network has none.
    """
    names = [name for name, module in network.named_modules() if type(module).__name__ in _AVERAGES]
    if not names:
        expected = f"a network that ends in one of {', '.join(_AVERAGES)}"
        found = f"{type(network).__name__} without one"
        raise InvalidInput("pool by a generalised mean", expected=expected, found=found, fix='Leave pooling="average".')
    holder, _, attribute = names[-1].rpartition(".")
    average = network.get_submodule(names[-1])
    setattr(network.get_submodule(holder), attribute, GeneralisedMeanPool(average, power))
