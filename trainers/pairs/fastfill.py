"""FastFill: a transform that knows where it fails, so that a backfill can begin there."""

from __future__ import annotations

from dataclasses import dataclass

from compatstore.artifacts.architecture import Architecture
from compatstore.trainers.pairs.alignment import Alignment
from compatstore.trainers.pairs.fct import two_branches
from compatstore.trainers.pairs.loop import require_settings


@dataclass(frozen=True, kw_only=True)
class FastFill(Alignment):
    """Jaeckle et al., "FastFill: Efficient Compatible Model Update" (ICLR 2023).

    FCT's network and schedule, trained for the objective of `Alignment`; sigma^2, from high to low, is the order of
    the backfill. Further settings are those of `Alignment`, `HeadTraining`, `TransformTraining` and `PairTraining`.

    Args:
        branch_width: Width of both layers of a branch, >= 1.
        mixer_width: Width of both hidden layers of the mixer, >= 1.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    branch_width: int = 256
    mixer_width: int = 2048

    def __post_init__(self) -> None:
        super().__post_init__()
        rules = {"branch_width >= 1": self.branch_width >= 1, "mixer_width >= 1": self.mixer_width >= 1}
        require_settings("FastFill", rules)

    def architecture(self, linear: Architecture) -> Architecture:
        """Describe FCT's network."""
        return two_branches(linear, self.branch_width, self.mixer_width)
