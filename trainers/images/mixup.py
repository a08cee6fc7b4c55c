"""Mixup on images alone: each image is blended with another one and keeps its own class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from compatstore.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Mixup:
    """Blend images: `x' = w x + (1 - w) x_other`, w of Beta(alpha, alpha) for each image (arXiv 1710.09412).

    Labels are left one-hot (FCT, section 5.1). So that a label is that of what is seen most, w is at least 1/2.

    Args:
        alpha: Of the Beta distribution, > 0; the larger, the more even the blends.
        views: Drawn of the images before they are blended, or None for the images as they are.

    Raises:
        InvalidInput: `alpha` is out of its range.
    """

    alpha: float = 0.5
    views: Callable[[torch.Tensor], torch.Tensor] | None = None

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise InvalidInput("blend images", expected="alpha > 0", found=f"{self.alpha}")

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Blend each image with another of the batch: (b, c, s, s) uint8 -> (b, c, s, s) float32 from 0 to 1."""
        images = pixels.float() / 255 if self.views is None else self.views(pixels)
        drawn = torch.distributions.Beta(self.alpha, self.alpha).sample((len(images), 1, 1, 1)).to(images.device)
        weights = torch.maximum(drawn, 1 - drawn)
        return weights * images + (1 - weights) * images.roll(1, dims=0)
