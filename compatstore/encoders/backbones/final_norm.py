"""A network that ends in a BatchNorm, as side-information models do: values around zero, of one size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from compatstore.encoders.backbones.backbone import Backbone
from compatstore.encoders.module import require_torch

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class FinalNorm:
    """A backbone with a BatchNorm after it (FCT, appendix D).

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

    def build(self) -> nn.Module:
        """Make the network, with random weights."""
        torch = require_torch()
        network: nn.Module = torch.nn.Sequential(self.inner.build(), torch.nn.BatchNorm1d(self.dim))
        return network
