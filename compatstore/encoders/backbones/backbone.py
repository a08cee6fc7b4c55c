"""What a backbone is: the description of a network that can be written down and built again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

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
