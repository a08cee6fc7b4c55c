"""The forward transform of learning compatible embeddings."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compatstore.artifacts.architecture import Architecture
from compatstore.trainers.pairs.through_head import Discrimination, HeadTraining
from compatstore.trainers.settings import Count, Share


@dataclass(frozen=True, kw_only=True)
class LCE(HeadTraining):
    """Meng et al., "Learning Compatible Embeddings" (ICCV 2021), as FCT's appendix J re-implements its transform.

    A network trained with cross-entropy through the target's frozen head. The widths of that network are not
    published with the comparison; the default here is ours.

    Args:
        width: Width of both hidden layers, >= 1.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    disc: Discrimination | None = "cross-entropy"
    label_smoothing: Share = 0.0
    width: Count = 512

    def architecture(self, linear: Architecture) -> Architecture:
        """Describe two hidden layers."""
        return replace(linear, mixer=(self.width, self.width))
