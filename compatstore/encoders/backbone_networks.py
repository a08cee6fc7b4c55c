"""Torch modules of backbones: BT^2's basis transformations and generalised-mean pooling; loaded if one is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from compatstore.errors import InvalidInput

if TYPE_CHECKING:
    from compatstore.encoders.backbones import BasisTransformed


class BasisParts(NamedTuple):
    """Tensors that the losses of BT^2 read.

    Attributes:
        target: (b, m), of unit length: phi_3, the target's part before the changes of basis.
        compared: (b, n): phi_5, compared with the source; its length is not constant.
        output: (b, m + d), of length sqrt(1 + C^2): phi_5, then the rest of phi_4.
    """

    target: torch.Tensor
    compared: torch.Tensor
    output: torch.Tensor


class BasisNetwork(nn.Module):
    """(b, channels, size, size) -> (b, m + d).

    Args:
        inner: The backbone, (b, channels, size, size) -> (b, m + n).
        shape: m, n, d and C.
    """

    def __init__(self, inner: nn.Module, shape: BasisTransformed) -> None:
        super().__init__()
        self.inner, self.shape = inner, shape
        self.extra = nn.Linear(shape.inner.dim, shape.extra)
        self.basis1 = nn.Linear(shape.target_dim, shape.target_dim, bias=False)
        self.basis2 = nn.Linear(shape.source_dim, shape.source_dim, bias=False)
        for basis in (self.basis1, self.basis2):
            nn.init.orthogonal_(basis.weight)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Embed images."""
        return self.parts(pixels).output

    def parts(self, pixels: torch.Tensor) -> BasisParts:
        """Embed images, and keep what leads there (BT^2, algorithm 1)."""
        features = self.inner(pixels)
        kept = self.shape.source_dim - self.shape.extra
        extra = functional.normalize(self.extra(features), dim=1)
        target = functional.normalize(features[:, : self.shape.target_dim], dim=1)
        turned = self.shape.scale * self.basis1(target)
        compared = self.basis2(torch.cat([extra, turned[:, :kept]], dim=1))
        return BasisParts(target, compared, torch.cat([compared, turned[:, kept:]], dim=1))

    @torch.no_grad()
    def target_map(self) -> torch.Tensor:
        """(m, m + d) matrix that gives phi_3 back from the output: the changes of basis lose nothing."""
        m, n, d = self.shape.target_dim, self.shape.source_dim, self.shape.extra
        turned = self.basis1.weight.new_zeros(m, m + d)
        turned[: n - d, :n] = self.basis2.weight.T[d:]
        turned[n - d :, n:] = torch.eye(m - n + d, device=turned.device)
        matrix: torch.Tensor = self.basis1.weight.T @ turned / self.shape.scale
        return matrix


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
        """Pool; powers are taken in float32, for features of any precision."""
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
