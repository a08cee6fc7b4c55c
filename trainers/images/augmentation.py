"""Random views of images, gentle enough for small grey and colour images."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torchvision.transforms import v2

from compatstore.boundary import require_fields
from compatstore.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """A random crop, a small affine map, blur and noise; a flip and colour changes only where asked for.

    Args:
        smallest_crop: Least share of the area that a crop keeps, above 0 to 1.
        largest_crop: Largest share, from `smallest_crop` to 1.
        degrees: Largest rotation and shear, in degrees.
        blur: Largest deviation of the Gaussian blur, in pixels; 0 for none.
        noise: Deviation of the Gaussian noise, where pixels run from 0 to 1; 0 for none.
        jitter: Largest relative change of brightness and contrast; 0 for none.
        flip: Mirror half of the images. Digits and letters must not be mirrored.
        group: Images that share one draw of the parameters: torchvision draws once a call, and one call an image
            is slow on small images. 1 for the most variety.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    smallest_crop: float = 0.6
    largest_crop: float = 1.0
    degrees: float = 10.0
    blur: float = 0.7
    noise: float = 0.05
    jitter: float = 0.2
    flip: bool = False
    group: int = 4

    def __post_init__(self) -> None:
        require_fields(self)
        least = min(self.degrees, self.blur, self.noise, self.jitter)
        if not 0 < self.smallest_crop <= self.largest_crop <= 1 or least < 0 or self.group < 1:
            expected = "0 < smallest_crop <= largest_crop <= 1, amounts >= 0, group >= 1"
            raise InvalidInput("describe an augmentation", expected=expected, found=repr(self))

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Draw one view of each image: (b, c, s, s) uint8 -> (b, c, s, s) float32 from 0 to 1."""
        transform = self._transform(pixels.shape[-1])
        images = pixels.float() / 255
        return torch.cat([transform(images[i : i + self.group]) for i in range(0, len(images), self.group)])

    def _transform(self, size: int) -> v2.Compose:
        bilinear = v2.InterpolationMode.BILINEAR
        steps: list[v2.Transform] = [
            v2.RandomAffine(self.degrees, shear=self.degrees, interpolation=bilinear),
            v2.RandomResizedCrop(size, (self.smallest_crop, self.largest_crop), ratio=(0.85, 1.18)),
        ]
        steps += [v2.RandomHorizontalFlip()] if self.flip else []
        steps += [v2.ColorJitter(self.jitter, self.jitter)] if self.jitter else []
        steps += [v2.GaussianBlur(3, (0.1, max(self.blur, 0.1)))] if self.blur else []
        steps += [v2.GaussianNoise(sigma=self.noise)] if self.noise else []
        return v2.Compose(steps)
