"""Labelled images to train on: an array in memory or paths, and the batches that training reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset, default_convert
from torchvision.transforms import v2

from compatstore.boundary import array_of, checked, checked_fields, foreign, refuse_masked, require_fields, shown
from compatstore.digests import fingerprint
from compatstore.encoders.images import FIX, Mode, find_classes, read_image
from compatstore.encoders.network import Preprocessing
from compatstore.errors import InvalidInput, NotFound, SourceError
from compatstore.paths import is_file
from compatstore.trainers.settings import Count, Positive, Rule

Item = tuple[torch.Tensor, torch.Tensor]


# More class names than that are made for no data set, and would fill the memory.
_MOST_CLASSES = 10_000_000


@checked_fields
@checked
@dataclass(frozen=True, eq=False)
class Images:
    """Images with their classes.

    Args:
        images: (n, h, w) or (n, h, w, c) uint8 array, or n paths.
        labels: (n,) integers, the position of each image's class in `class_names`.
        class_names: Names of the classes; by default "0", "1", ... up to the largest label.

    Raises:
        InvalidInput: There are no images, or they or the labels are of another type or range. There are not as many
            labels as images.
    """

    images: npt.NDArray[np.uint8] | Sequence[str | Path]
    labels: npt.ArrayLike
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        images, labels = self.images, array_of(self.labels, "hold images", "labels")
        if not isinstance(images, np.ndarray | list | tuple):
            raise InvalidInput("hold images", expected="an array of images, or a list of paths", found=shown(images))
        refuse_masked(images, "hold images")
        if not _holds_images(images):
            found = f"{images.shape} {images.dtype}" if isinstance(images, np.ndarray) else "none"
            expected = "(n, h, w) or (n, h, w, c) uint8, none of them 0 and c from 1 to 4, or n >= 1 paths"
            raise InvalidInput("hold images", expected=expected, found=found)
        if labels.shape != (len(images),):
            raise InvalidInput("hold images", expected=f"({len(images)},) labels", found=f"{labels.shape}")
        most = len(self.class_names) or _MOST_CLASSES
        if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= most:
            limits = f" from {labels.min()} to {labels.max()}" if labels.dtype.kind in "iu" else ""
            expected, found = f"integer labels from 0 to {most - 1}", f"{labels.dtype}{limits}"
            fix = "Number the classes from 0, and pass their names as class_names."
            raise InvalidInput("hold images", expected=expected, found=found, fix=fix)
        names = tuple(self.class_names) or tuple(str(label) for label in range(int(labels.max()) + 1))
        object.__setattr__(self, "labels", labels.astype(np.int64))
        object.__setattr__(self, "class_names", names)

    @classmethod
    def from_folder(cls, folder: str | Path) -> Self:
        """List a folder of class folders; files are read when they are needed.

        Raises:
            NotFound: There is no such folder, or no sub-folder holds an image.
        """
        paths, labels, names = find_classes(folder)
        return cls(paths, labels, names)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def fingerprint(self) -> str:
        """Digest (32 hex digits) of images, labels and classes; of files the paths and sizes, not the contents.

        Raises:
            SourceError: There is no such file.
        """
        hasher = hashlib.sha256(np.asarray(self.labels).tobytes())
        if isinstance(self.images, np.ndarray):
            hasher.update(f"{self.images.shape}".encode())
            hasher.update(np.ascontiguousarray(self.images).data)
        else:
            hasher.update(json.dumps([_identity(source) for source in self.images]).encode())
        return fingerprint(images=hasher.hexdigest(), class_names=self.class_names)

    def take(self, positions: npt.ArrayLike) -> Self:
        """Keep the images at these positions, in this order.

        Raises:
            InvalidInput: There are none, or they are no whole numbers from 0 to n - 1.
        """
        rows = array_of(positions, "choose images", "positions", ndim=1)
        if not rows.size or rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= len(self):
            expected = f"positions from 0 to {len(self) - 1}, one or more"
            raise InvalidInput("choose images", expected=expected, found=shown(positions))
        chosen = self.images[rows] if isinstance(self.images, np.ndarray) else [self.images[row] for row in rows]
        return type(self)(chosen, np.asarray(self.labels)[rows], self.class_names)

    def of_classes(self, classes: Sequence[str | int]) -> Self:
        """Keep the images of some classes, by name or label; labels become positions in this shorter list.

        Raises:
            NotFound: A class is unknown.
            InvalidInput: A class is named twice, or none of them has an image.
        """
        names: list[str] = []
        for item in classes:
            if not (item in self.class_names if isinstance(item, str) else 0 <= item < len(self.class_names)):
                raise NotFound("choose classes", expected=f"of {', '.join(self.class_names)}", found=repr(item))
            names.append(item if isinstance(item, str) else self.class_names[item])
        if len(set(names)) < len(names):
            raise InvalidInput("choose classes", expected="each class once", found=", ".join(names))
        old_to_new = np.full(len(self.class_names), -1)
        old_to_new[[self.class_names.index(name) for name in names]] = np.arange(len(names))
        labels = old_to_new[np.asarray(self.labels)]
        rows = np.flatnonzero(labels >= 0)
        if not len(rows):
            raise InvalidInput("choose classes", expected="some images", found=f"none of {', '.join(names)}")
        return type(self)(self.take(rows).images, labels[rows], tuple(names))

    def split(self, fraction: float = 0.25, *, seed: int = 0) -> tuple[Self, Self]:
        """Split off a random share of every class: (the rest, the share).

        Classes of one image stay in the rest; every larger class is in both.

        Raises:
            InvalidInput: `fraction` is not between 0 and 1, the seed is negative, or no class has two images.
        """
        if not 0 < fraction < 1:
            raise InvalidInput("split images", expected="a fraction between 0 and 1", found=f"{fraction}")
        with foreign("split images", "a seed from 0"):
            random = np.random.default_rng(seed)
        labels = np.asarray(self.labels)
        chosen: list[npt.NDArray[np.int64]] = []
        for label in np.unique(labels):
            rows = random.permutation(np.flatnonzero(labels == label))
            chosen.append(rows[: min(max(round(fraction * len(rows)), 1), len(rows) - 1)])
        share = np.sort(np.concatenate(chosen))
        if not len(share):
            raise InvalidInput("split images", expected="a class of at least two images", found="one image a class")
        return self.take(np.setdiff1d(np.arange(len(self)), share)), self.take(share)

    def require_readable(self, mode: Mode) -> None:
        """Read every file once, so that a corrupt file is reported before training.

        Raises:
            SourceError: Some files cannot be read; all of them are listed.
        """
        failures = self._unreadable(mode)
        if failures:
            raise SourceError(f"train on {len(self)} images", failures, fix=FIX)

    def readable(self, mode: Mode) -> tuple[Self, list[str]]:
        """Leave out the files that cannot be read: (the others, why each was left out).

        Raises:
            SourceError: No file can be read.
        """
        failures = self._unreadable(mode)
        if len(failures) == len(self):
            raise SourceError(f"train on {len(self)} images", failures, fix=FIX)
        return self.take(np.setdiff1d(np.arange(len(self)), list(failures))), list(failures.values())

    def _unreadable(self, mode: Mode) -> dict[int, str]:
        if isinstance(self.images, np.ndarray):
            return {}
        with ThreadPoolExecutor() as pool:
            reasons = list(pool.map(lambda path: _why_unreadable(path, mode), self.images))
        return {row: reason for row, reason in enumerate(reasons) if reason}

    def batches(
        self, preprocessing: Preprocessing, *, size: int, seed: int, workers: int = 0
    ) -> DataLoader[tuple[torch.Tensor, torch.Tensor]]:
        """Batches of ((b, c, s, s) uint8, (b,) int64), in another seeded order each epoch.

        Arrays are resized once and kept in memory; files are read again in each epoch, by `workers` processes.
        A last batch of fewer than `size` images is left out.
        """
        workers = 0 if isinstance(self.images, np.ndarray) else workers
        return DataLoader(
            _Pixels(self, preprocessing),
            batch_size=min(size, len(self)),
            shuffle=True,
            drop_last=True,
            generator=torch.Generator().manual_seed(seed),
            collate_fn=default_convert,  # `__getitems__` returns a whole batch
            num_workers=workers,
            # Forking after CUDA or threads have started can hang; a spawned worker starts clean.
            multiprocessing_context="spawn" if workers else None,
            persistent_workers=workers > 0,
        )


def _holds_images(images: npt.NDArray[np.uint8] | Sequence[object]) -> bool:
    if not isinstance(images, np.ndarray):
        return bool(images)
    colours = images.shape[3] if images.ndim == 4 else 1
    return images.dtype == np.uint8 and images.ndim in (3, 4) and min(images.shape) > 0 and colours <= 4


def _identity(source: str | Path) -> list[str | int]:
    """Identity of a source: path and size of a file, or a digest of the pixels of anything else."""
    if isinstance(source, str | Path) and is_file(source):
        return [str(source), Path(source).stat().st_size]
    return [hashlib.sha256(np.asarray(read_image(source)).data).hexdigest()]


class _Pixels(Dataset[Item]):
    """Batches of pixels and labels: of arrays all pixels are made at once, files are read batch by batch."""

    def __init__(self, images: Images, preprocessing: Preprocessing) -> None:
        self.sources, self.preprocessing = images.images, preprocessing
        self.labels = torch.from_numpy(np.asarray(images.labels))
        self.pixels = self._read(range(len(images))) if isinstance(images.images, np.ndarray) else None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, rows: list[int]) -> Item:
        return self._read(rows) if self.pixels is None else self.pixels[rows], self.labels[rows]

    def _read(self, rows: Sequence[int]) -> torch.Tensor:
        return torch.stack([self.preprocessing.pixels(self.sources[row]) for row in rows])


def _why_unreadable(path: str | Path, mode: Mode) -> str:
    try:
        read_image(path, mode)
    except SourceError as error:
        return error.failures[0]
    return ""


_DEGREES = 10.0  # of rotation and shear, at most
_JITTER = 0.2  # relative change of brightness and contrast, at most
_BLUR = 0.7  # deviation of the Gaussian blur in pixels, at most
_NOISE = 0.05  # deviation of the Gaussian noise, where pixels run from 0 to 1
_CROP = Rule("above 0 to 1", lambda value: 0 < value <= 1)


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """A random crop, a small affine map, changes of brightness, blur and noise; a flip only if requested.

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
        require_fields(self, {"largest_crop >= smallest_crop": self.largest_crop >= self.smallest_crop})

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Draw one view of each image: (b, c, s, s) uint8 -> (b, c, s, s) float32 from 0 to 1."""
        crop = (self.smallest_crop, self.largest_crop)
        steps: list[v2.Transform] = [
            v2.RandomAffine(_DEGREES, shear=_DEGREES, interpolation=v2.InterpolationMode.BILINEAR),
            v2.RandomResizedCrop(pixels.shape[-1], crop, ratio=(0.85, 1.18)),
            *([v2.RandomHorizontalFlip()] if self.flip else []),
            v2.ColorJitter(_JITTER, _JITTER),
            v2.GaussianBlur(3, (0.1, _BLUR)),
            v2.GaussianNoise(sigma=_NOISE),
        ]
        transform, images = v2.Compose(steps), pixels.float() / 255
        return torch.cat([transform(images[i : i + self.group]) for i in range(0, len(images), self.group)])


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Mixup:
    """Blend images: `x' = w x + (1 - w) x_other`, w of Beta(alpha, alpha) for each image (arXiv 1710.09412).

    Labels are left one-hot (FCT, section 5.1). w is at least 1/2, so the label is that of the larger part.

    Args:
        alpha: Of the Beta distribution, > 0; the larger, the more even the blends.
        views: Drawn of the images before they are blended, or None for the images as they are.

    Raises:
        InvalidInput: `alpha` is out of its range.
    """

    alpha: Positive = 0.5
    views: Callable[[torch.Tensor], torch.Tensor] | None = None

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Blend each image with another of the batch: (b, c, s, s) uint8 -> (b, c, s, s) float32 from 0 to 1."""
        images = pixels.float() / 255 if self.views is None else self.views(pixels)
        drawn = torch.distributions.Beta(self.alpha, self.alpha).sample((len(images), 1, 1, 1)).to(images.device)
        weights = torch.maximum(drawn, 1 - drawn)
        return weights * images + (1 - weights) * images.roll(1, dims=0)
