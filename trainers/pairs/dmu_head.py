"""The forward-adaptation head of Darwinian model upgrades."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compatstore.artifacts.architecture import Architecture
from compatstore.trainers.pairs.through_head import HeadTraining
from compatstore.trainers.settings import Count


@dataclass(frozen=True, kw_only=True)
class DMUHead(HeadTraining):
    """Zhang et al., "Darwinian Model Upgrades: Model Evolving with Selective Compatibility" (AAAI 2023).

    The loss L_FA (equation 11) alone: three layers and a linear output, trained for the target's own loss through its
    head. Here the target model is finished and its head frozen; the paper trains both at once. The loss compares
    classes, not native vectors: it leaves the order among items of one class open.

    Args:
        width: Width of the three hidden layers, >= 1.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    width: Count = 1024

    def architecture(self, linear: Architecture) -> Architecture:
        """Describe three hidden layers."""
        return replace(linear, mixer=(self.width,) * 3)
