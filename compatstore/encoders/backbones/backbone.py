"""What a backbone is, the description of a network that can be written down and built again, and those around another.

`FinalNorm` ends in a BatchNorm, as side-information models do: values around zero, of one size. `GeneralisedMean` pools
positions by another mean than the usual one. `BasisTransformed` is the network of BT^2: two changes of basis put what a
source model understands in front of a target embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from compatstore.encoders.module import require_torch
from compatstore.errors import InvalidInput

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
class _Around:
    """A backbone around another, whose embeddings have the length and whose images the channels of that one.

    Args:
        inner: The backbone.
    """

    inner: Backbone

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self.inner.dim

    @property
    def channels(self) -> int:
        """Number of channels: 1 or 3."""
        return self.inner.channels


@dataclass(frozen=True, kw_only=True)
class FinalNorm(_Around):
    """A backbone with a BatchNorm after it (FCT, appendix D).

    Args:
        inner: The backbone.
    """

    def build(self) -> nn.Module:
        """Make the network, with random weights."""
        torch = require_torch()
        network: nn.Module = torch.nn.Sequential(self.inner.build(), torch.nn.BatchNorm1d(self.dim))
        return network


@dataclass(frozen=True, kw_only=True)
class GeneralisedMean(_Around):
    """A backbone whose last average pooling is a generalised mean (Radenovic et al. 2018; DMU pools so).

    Args:
        inner: The backbone; its last average pooling gives way, and its weights keep their names.
        power: p, >= 1: 1 for the average; the larger, the nearer to the maximum.

    Raises:
        InvalidInput: The power is out of its range.
    """

    power: float = 3.0

    def __post_init__(self) -> None:
        if not 1 <= self.power < float("inf"):
            raise InvalidInput("describe a generalised mean", expected="a power of 1 or more", found=f"{self.power}")

    def build(self) -> nn.Module:
        """Make the network, with random weights.

        Raises:
            InvalidInput: The network has no average pooling.
        """
        require_torch()
        from compatstore.encoders.backbones.networks import pool_by_generalised_mean

        network = self.inner.build()
        pool_by_generalised_mean(network, self.power)
        return network


@dataclass(frozen=True, kw_only=True)
class BasisTransformed:
    """A backbone behind basis transformations (Zhou et al., arXiv 2211.03989, algorithm 1).

    Args:
        inner: The backbone, whose embeddings have m + n values for a target of m and a source of n.
        source_dim: n.
        extra: d, values for what the source knows and the target does not, 1 to n.
        scale: C, the length of the target's part beside the extra values' length of 1, > 0.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    inner: Backbone
    source_dim: int
    extra: int = 32
    scale: float = 2.0

    def __post_init__(self) -> None:
        n, d, m = self.source_dim, self.extra, self.inner.dim - self.source_dim
        if not 1 <= d <= n or m < 1 or m + d < n or self.scale <= 0:
            expected = "1 <= extra <= source_dim <= target's dimension + extra, scale > 0"
            raise InvalidInput("describe a basis transformation", expected=expected, found=f"{self}")

    @property
    def target_dim(self) -> int:
        """Values of the target's own part, m."""
        return self.inner.dim - self.source_dim

    @property
    def dim(self) -> int:
        """Length of an embedding, m + d; its first n values are compared with the source's."""
        return self.target_dim + self.extra

    @property
    def channels(self) -> int:
        """Number of channels: 1 or 3."""
        return self.inner.channels

    def build(self) -> nn.Module:
        """Make the network, with random weights and random bases."""
        require_torch()
        from compatstore.encoders.backbones.networks import BasisNetwork

        return BasisNetwork(self.inner.build(), self)
