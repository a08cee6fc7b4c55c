"""Random views of images: small changes that suit small grey and colour images, and blends of two images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from torchvision.transforms import v2

from compatstore.boundary import checked_fields
from compatstore.trainers.settings import Count, Positive, Rule, require_settings

_DEGREES = 10.0  # of rotation and shear, at most
_JITTER = 0.2  # relative change of brightness and contrast, at most
_BLUR = 0.7  # deviation of the Gaussian blur in pixels, at most
_NOISE = 0.05  # deviation of the Gaussian noise, where pixels run from 0 to 1
_CROP = Rule("above 0 to 1", lambda value: 0 < value <= 1)


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """A random crop, a small affine map, changes of brightness, blur and noise; a flip only where asked for.

    Args:
        smallest_crop: Least share of the area that a crop keeps, above 0 to 1.
        largest_crop: Largest share, from `smallest_crop` to 1.
        flip: Mirror half of the images. Digits and letters must not be mirrored.
        group: Images that share one draw of the parameters: torchvision draws once a call, and one call an image
            is slow on small images. 1 for the most variety.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    smallest_crop: Annotated[float, _CROP] = 0.6
    largest_crop: Annotated[float, _CROP] = 1.0
    flip: bool = False
    group: Count = 4

    def __post_init__(self) -> None:
        require_settings(self)
        require_settings(self, {"largest_crop >= smallest_crop": self.largest_crop >= self.smallest_crop})

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Draw one view of each image: (b, c, s, s) uint8 -> (b, c, s, s) float32 from 0 to 1."""
        transform = self._transform(pixels.shape[-1])
        images = pixels.float() / 255
        return torch.cat([transform(images[i : i + self.group]) for i in range(0, len(images), self.group)])

    def _transform(self, size: int) -> v2.Compose:
        bilinear = v2.InterpolationMode.BILINEAR
        steps: list[v2.Transform] = [
            v2.RandomAffine(_DEGREES, shear=_DEGREES, interpolation=bilinear),
            v2.RandomResizedCrop(size, (self.smallest_crop, self.largest_crop), ratio=(0.85, 1.18)),
        ]
        steps += [v2.RandomHorizontalFlip()] if self.flip else []
        steps += [v2.ColorJitter(_JITTER, _JITTER), v2.GaussianBlur(3, (0.1, _BLUR)), v2.GaussianNoise(sigma=_NOISE)]
        return v2.Compose(steps)


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

    alpha: Positive = 0.5
    views: Callable[[torch.Tensor], torch.Tensor] | None = None

    def __post_init__(self) -> None:
        require_settings(self)

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Blend each image with another of the batch: (b, c, s, s) uint8 -> (b, c, s, s) float32 from 0 to 1."""
        images = pixels.float() / 255 if self.views is None else self.views(pixels)
        drawn = torch.distributions.Beta(self.alpha, self.alpha).sample((len(images), 1, 1, 1)).to(images.device)
        weights = torch.maximum(drawn, 1 - drawn)
        return weights * images + (1 - weights) * images.roll(1, dims=0)
