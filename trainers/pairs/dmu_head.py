"""The forward-adaptation head of Darwinian model upgrades."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compatstore.artifacts.architecture import Architecture
from compatstore.trainers.pairs.loop import require_settings
from compatstore.trainers.pairs.through_head import HeadTraining


@dataclass(frozen=True, kw_only=True)
class DMUHead(HeadTraining):
    """Zhang et al., "Darwinian Model Upgrades: Model Evolving with Selective Compatibility" (AAAI 2023), L_FA.

    Three layers and a linear output, trained for the target's own loss through its head. Here the target model is
    finished and its head frozen; the paper trains both at once. The loss knows classes, not native vectors: among
    items of a class the order is anyone's guess.

    Args:
        width: Width of the three hidden layers, >= 1.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    width: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        require_settings("DMUHead", {"width >= 1": self.width >= 1})

    def architecture(self, linear: Architecture) -> Architecture:
        """Describe three hidden layers."""
        return replace(linear, mixer=(self.width,) * 3)
